// A step of one cell.
KERNEL(stencil)(
    TILE, READS(real, now), TABLE(real, along_z), TABLE(real, along_y), TABLE(real, along_x), WRITES(real, next),
    SCALAR(real, w000), SCALAR(real, w001), SCALAR(real, w010), SCALAR(real, w011), SCALAR(real, w100),
    SCALAR(real, w101), SCALAR(real, w110), SCALAR(real, w111), SCALAR(real, source)
) {
    POINT(z, y, x);
    const u64 row = now_extents.points[2], plane = now_extents.points[1] * row;
    const real factor = source * (along_z[z] * along_y[y]);
    AT(next, z, y, x) = value(
        &AT(now, z, y, x), row, plane, w000, w001, w010, w011, w100, w101, w110, w111, factor * along_x[x]
    );
}

// The squares of what the stencil gives at the cells of some rows, added up lane by lane: `strip` rows one behind the
// other, of each every `lanes`th cell. Its tile is strips of planes, and lanes; the rows begin at the cell `first_*`,
// and there are `rows` of `cells` in a plane.
KERNEL(residual)(
    TILE, TABLE(real, now), TABLE(real, along_z), TABLE(real, along_y), TABLE(real, along_x), WRITES(f64, sums),
    SCALAR(real, w000), SCALAR(real, w001), SCALAR(real, w010), SCALAR(real, w011), SCALAR(real, w100),
    SCALAR(real, w101), SCALAR(real, w110), SCALAR(real, w111), SCALAR(real, source),
    SCALAR(i64, first_z), SCALAR(i64, first_y), SCALAR(i64, first_x), SCALAR(i64, rows), SCALAR(i64, cells),
    SCALAR(i64, strip), SCALAR(i64, lanes)
) {
    POINT(plane_of_tile, strip_of_plane, lane);
    const u64 row = now_extents.points[2], plane = now_extents.points[1] * row;
    const i64 z = first_z + (i64)plane_of_tile, first = strip * (i64)strip_of_plane;
    f64 sum = 0;
    for (i64 index = first; index < first + strip && index < rows; ++index) {
        const i64 y = first_y + index;
        const real factor = source * (along_z[z] * along_y[y]);
        for (i64 cell = (i64)lane; cell < cells; cell += lanes) {
            const i64 x = first_x + cell;
            const f64 found = value(
                &AT(now, z, y, x), row, plane, w000, w001, w010, w011, w100, w101, w110, w111, factor * along_x[x]
            );
            sum += found * found;
        }
    }
    AT(sums, plane_of_tile, strip_of_plane, lane) = sum;
}

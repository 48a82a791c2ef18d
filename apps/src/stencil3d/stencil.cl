// Stencils of 7 points, or of 27 where `FULL` is defined, of cells that are `real`. Terms are added up in the order, and rounded
// with their products, as `kernel.rs` tells.

#ifdef FULL
// P, or Q, of a column of 9 cells: by weights at its own place, beside along y, along z, and along both.
FUNCTION real weigh(
    ARRAY const real *here, const u64 row, const u64 plane, const real own, const real along_y, const real along_z,
    const real along_both
) {
    const real low = *(here - plane - row) + *(here + plane - row);
    const real middle = *(here - plane) + *(here + plane);
    const real high = *(here - plane + row) + *(here + plane + row);
    const real beside = fma(along_y, *(here - row) + *(here + row), own * *here);
    return fma(along_both, low + high, fma(along_z, middle, beside));
}
#endif

// What the stencil gives at a cell. `row` and `plane` are how far the next cells along y and z are.
FUNCTION real value(
    ARRAY const real *here, const u64 row, const u64 plane, const real w000, const real w001, const real w010,
    const real w011, const real w100, const real w101, const real w110, const real w111, const real source, const real shape
) {
#ifdef FULL
    const real left = weigh(here - 1, row, plane, w001, w011, w101, w111);
    const real right = weigh(here + 1, row, plane, w001, w011, w101, w111);
    return fma(source, shape, weigh(here, row, plane, w000, w010, w100, w110)) + (left + right);
#else
    const real along_x = fma(w001, *(here - 1) + *(here + 1), fma(w000, *here, source * shape));
    return fma(w100, *(here - plane) + *(here + plane), fma(w010, *(here - row) + *(here + row), along_x));
#endif
}

// A step of one cell.
KERNEL(stencil)(
    TILE, READS(real, now), TABLE(real, along_z), TABLE(real, along_y), TABLE(real, along_x), WRITES(real, next),
    SCALAR(real, w000), SCALAR(real, w001), SCALAR(real, w010), SCALAR(real, w011), SCALAR(real, w100),
    SCALAR(real, w101), SCALAR(real, w110), SCALAR(real, w111), SCALAR(real, source)
) {
    POINT(z, y, x);
    const u64 row = now_rows.strides[1], plane = now_rows.strides[0];
    const real factor = source * (along_z[z] * along_y[y]);
    AT(next, z, y, x) = value(
        &AT(now, z, y, x), row, plane, w000, w001, w010, w011, w100, w101, w110, w111, factor, along_x[x]
    );
}

#ifdef HAS_F64
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
    const u64 row = now_rows.strides[1], plane = now_rows.strides[0];
    const i64 z = first_z + (i64)plane_of_tile, first = strip * (i64)strip_of_plane;
    f64 sum = 0;
    for (i64 index = first; index < first + strip && index < rows; ++index) {
        const i64 y = first_y + index;
        const real factor = source * (along_z[z] * along_y[y]);
        for (i64 cell = (i64)lane; cell < cells; cell += lanes) {
            const i64 x = first_x + cell;
            const f64 found = value(
                &AT(now, z, y, x), row, plane, w000, w001, w010, w011, w100, w101, w110, w111, factor, along_x[x]
            );
            sum += found * found;
        }
    }
    AT(sums, plane_of_tile, strip_of_plane, lane) = sum;
}
#endif

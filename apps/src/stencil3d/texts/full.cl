// What a stencil of 27 points gives at a cell, added up in the order that `kernel.rs` tells. `row` and `plane` are how
// far the next cells along y and z are.

// P, or Q, of a column of 9 cells: by weights at its own place, beside along y, along z, and along both.
FUNCTION real weigh(
    GLOBAL const real *here, const u64 row, const u64 plane, const real own, const real along_y, const real along_z,
    const real along_both
) {
    const real low = *(here - plane - row) + *(here + plane - row);
    const real middle = *(here - plane) + *(here + plane);
    const real high = *(here - plane + row) + *(here + plane + row);
    return own * *here + along_y * (*(here - row) + *(here + row)) + along_z * middle + along_both * (low + high);
}

FUNCTION real value(
    GLOBAL const real *here, const u64 row, const u64 plane, const real w000, const real w001, const real w010,
    const real w011, const real w100, const real w101, const real w110, const real w111, const real added
) {
    const real left = weigh(here - 1, row, plane, w001, w011, w101, w111);
    const real right = weigh(here + 1, row, plane, w001, w011, w101, w111);
    return weigh(here, row, plane, w000, w010, w100, w110) + (left + right) + added;
}

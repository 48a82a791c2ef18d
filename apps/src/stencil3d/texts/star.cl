// What a stencil of 7 points gives at a cell, added up in the order that `kernel.rs` tells. `row` and `plane` are how far
// the next cells along y and z are.
FUNCTION real value(
    GLOBAL const real *here, const u64 row, const u64 plane, const real w000, const real w001, const real w010,
    const real w011, const real w100, const real w101, const real w110, const real w111, const real added
) {
    return w000 * *here + w001 * (*(here - 1) + *(here + 1)) + w010 * (*(here - row) + *(here + row))
        + w100 * (*(here - plane) + *(here + plane)) + added;
}

// Sets an owned cell. `shift_*` is what a local index is before a global one, `base` what the numbers of this
// cycle and variable begin with.
KERNEL(set_cells)(
    TILE, WRITES(real, values), SCALAR(i64, shift_z), SCALAR(i64, shift_y), SCALAR(i64, shift_x), SCALAR(i64, height),
    SCALAR(i64, base)
) {
    POINT(z, y, x);
    const i64 row = ((i64)z + shift_z) * height + (i64)y + shift_y;
    AT(values, z, y, x) = (real)number_of(base, row, (i64)x + shift_x);
}

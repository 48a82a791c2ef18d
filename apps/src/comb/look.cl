// Counts a ghost that does not hold what it must. `along_*` is where it is in the whole grid, negative beyond the ends.
KERNEL(look_at_ghosts)(
    TILE, READS(real, values), TABLE(i64, along_z), TABLE(i64, along_y), TABLE(i64, along_x), WRITES(i32, wrong),
    SCALAR(i64, height), SCALAR(i64, base)
) {
    POINT(z, y, x);
    const i64 at_z = along_z[z], at_y = along_y[y], at_x = along_x[x];
    const i64 number = at_z < 0 || at_y < 0 || at_x < 0 ? 0 : number_of(base, at_z * height + at_y, at_x);
    AT(wrong, z, y, x) += AT(values, z, y, x) != (real)number;
}

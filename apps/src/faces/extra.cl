// Sweeps over one value.
KERNEL(extra_compute)(TILE, WRITES(f64, work), SCALAR(i64, sweeps)) {
    POINT(z, y, x);
    f64 value = AT(work, z, y, x);
    for (i64 sweep = 0; sweep < sweeps; ++sweep) {
        value = value + 1.0;
    }
    AT(work, z, y, x) = value;
}

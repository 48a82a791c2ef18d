// Sums of `count` rows of `width` numbers, which lie one behind the other: row `j` of `to` is that of rows `j * count` on.
KERNEL(fold)(TILE, TABLE(f64, from), WRITES(f64, to), SCALAR(i64, count), SCALAR(i64, width)) {
    POINT(i, j, k);
    f64 sum = 0;
    for (i64 row = 0; row < count; ++row) {
        sum += from[((i64)j * count + row) * width + (i64)k % width];
    }
    AT(to, i, j, k) = sum;
}

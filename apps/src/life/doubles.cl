// Rule B3/S23 on one cell that is an `f64`: `next = 1` if `t = 3` or `t - here = 3`, where t is the number of live cells
// among the nine. Sums of so few integers are exact.
KERNEL(life)(TILE, READS(f64, now), WRITES(f64, next)) {
    POINT(i, y, x);
    f64 all = 0;
    for (int side = -1; side <= 1; ++side) {
        all += AT(now, i, y + side, x - 1) + AT(now, i, y + side, x) + AT(now, i, y + side, x + 1);
    }
    AT(next, i, y, x) = all == 3 || all - AT(now, i, y, x) == 3;
}

// Rule B3/S23 on one cell: `next = 1` if `(n | here) = 3`, where n is the number of live neighbours.
KERNEL(life)(TILE, READS(u8, now), WRITES(u8, next)) {
    POINT(i, y, x);
    const u8 here = AT(now, i, y, x);
    u8 n = 0;
    for (int side = -1; side <= 1; ++side) {
        n += AT(now, i, y + side, x - 1) + AT(now, i, y + side, x) + AT(now, i, y + side, x + 1);
    }
    n -= here;
    AT(next, i, y, x) = (n | here) == 3;
}

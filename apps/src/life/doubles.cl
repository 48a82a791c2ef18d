// Rule B3/S23 on cells that are `f64`: `next = 1` if `t = 3` or `t - here = 3`, where t is the number of live cells
// among the nine. Sums of so few integers are exact.
//
// A thread computes 4 cells of a column: each row of three is loaded and summed once for the three cells that it counts for.

FUNCTION f64 three(ARRAY const f64 *at, const u64 step) { return *(at - step) + *at + *(at + step); }

FUNCTION f64 lives(const f64 all, const f64 own) { return all == 3 || all - own == 3; }

KERNEL(life)(TILE, READS(f64, now), WRITES(f64, next)) {
    BLOCK(i, y, x, 4, 1);
    if (x >= tile.end[2]) return;
    const u64 rows = tile.end[1] - y, stride = now_rows.strides[1], step = now_rows.strides[2];
    ARRAY const f64 *own = &AT(now, i, y, x);
    ARRAY f64 *to = &AT(next, i, y, x);
    const u64 last = rows < 4 ? rows : 4, down = next_rows.strides[1];
    // Of rows that do not count the last that does.
    const u64 b = last > 1 ? stride : 0, c = last > 2 ? 2 * stride : b, d = last > 3 ? 3 * stride : c;
    const f64 s0 = three(own - stride, step), s1 = three(own, step), s2 = three(own + stride, step);
    const f64 s3 = three(own + b + stride, step), s4 = three(own + c + stride, step), s5 = three(own + d + stride, step);
    const f64 o0 = *own, o1 = own[b], o2 = own[c], o3 = own[d];
    to[0] = lives(s0 + s1 + s2, o0);
    if (last > 1) to[down] = lives(s1 + s2 + s3, o1);
    if (last > 2) to[2 * down] = lives(s2 + s3 + s4, o2);
    if (last > 3) to[3 * down] = lives(s3 + s4 + s5, o3);
}

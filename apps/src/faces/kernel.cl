// The sum of the copies of a point, in pairs along z, then y, then x, as `kernel.rs` has it. Points without copies are
// not touched.

// Where the copy of a point in the next element is along an axis, from the point on; 0 if it has none there. Index 0 is
// that of a ghost.
FUNCTION i64 partner(const u64 index, const u64 points) {
    const u64 within = (index + points - 1) % points;
    return within == 0 ? -1 : within + 1 == points ? 1 : 0;
}

// The sum of the copies along y and z.
FUNCTION f64 column(ARRAY const f64 *here, const i64 along_z, const i64 along_y) {
    f64 sum = along_z == 0 ? *here : *here + *(here + along_z);
    if (along_y != 0) {
        here += along_y;
        sum += along_z == 0 ? *here : *here + *(here + along_z);
    }
    return sum;
}

KERNEL(sum_of_copies)(TILE, READS(f64, now), WRITES(f64, next), SCALAR(i64, points)) {
    POINT(z, y, x);
    const i64 row = now_rows.strides[1], plane = now_rows.strides[0];
    const i64 along_z = plane * partner(z, points), along_y = row * partner(y, points), along_x = partner(x, points);
    if (along_z == 0 && along_y == 0 && along_x == 0) {
        return;
    }
    ARRAY const f64 *here = &AT(now, z, y, x);
    f64 sum = column(here, along_z, along_y);
    if (along_x != 0) {
        sum += column(here + along_x, along_z, along_y);
    }
    AT(next, z, y, x) = sum;
}

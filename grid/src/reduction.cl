// Sums, minima and maxima of the entries of a field, in the order that `reduction.rs` tells. Entries are `entry`, and become
// `total`, which is added and multiplied as `wrapped`: integers wrap.

// The numbers of `op`: 0 is the sum, 1 the smaller and 2 the larger, of which a NaN is ignored.
FUNCTION total combined(const i32 op, const total own, const total other) {
    if (op == 0) return (total)((wrapped)own + (wrapped)other);
    // From which a NaN differs, and an integer, of which compilers would warn, does not.
    const total itself = own;
    return own != itself || (op == 1 ? other < own : other > own) ? other : own;
}

// The lanes of blocks: of some rows, or of a piece of one, every `lanes`th element. Of all `all_rows` a plane has `rows`, of
// `elements` each; they are cut into strips of `strip` rows and pieces of `piece` elements, of which `first_of_*` is the first.
KERNEL(reduce_blocks)(
    TILE, PART(entry, a), PART(entry, b), WRITES(total, blocks), SCALAR(i32, op), SCALAR(total, identity),
    SCALAR(i32, is_product), SCALAR(i64, first_of_a), SCALAR(i64, first_of_b), SCALAR(i64, all_rows), SCALAR(i64, rows),
    SCALAR(i64, elements), SCALAR(i64, strip), SCALAR(i64, piece), SCALAR(i64, lanes)
) {
    POINT(i, block, lane);
    const i64 pieces = (elements + piece - 1) / piece;
    const i64 first = (i64)block / pieces * strip, start = (i64)block % pieces * piece;
    total own = identity;
    for (i64 row = first; row < first + strip && row < all_rows; ++row) {
        const i64 z = row / rows, y = row % rows;
        const i64 of_a = first_of_a + z * (i64)a_rows.strides[0] + y * (i64)a_rows.strides[1];
        const i64 of_b = first_of_b + z * (i64)b_rows.strides[0] + y * (i64)b_rows.strides[1];
        for (i64 n = start + (i64)lane; n < start + piece && n < elements; n += lanes) {
            const total value = (total)a[of_a + n];
            own = combined(op, own, is_product ? (total)((wrapped)value * (wrapped)(total)b[of_b + n]) : value);
        }
    }
    AT(blocks, i, block, lane) = own;
}

// Of `rows` rows of `width` numbers, which lie one behind the other: row `j` of `to` is that of `count` from `j * count` on.
KERNEL(reduce_rows)(
    TILE, TABLE(total, from), WRITES(total, to), SCALAR(i32, op), SCALAR(total, identity), SCALAR(i64, rows),
    SCALAR(i64, count), SCALAR(i64, width)
) {
    POINT(i, j, k);
    const i64 first = (i64)j * count;
    total own = identity;
    for (i64 row = first; row < first + count && row < rows; ++row) {
        own = combined(op, own, from[row * width + (i64)k]);
    }
    AT(to, i, j, k) = own;
}

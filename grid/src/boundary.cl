// Ghosts beyond a boundary, as `boundary.rs` tells. Entries are `entry`, and are computed with as `wrapped`: integers wrap.

// Of the points of the tile the components from `first` up to `end`. `condition` 0 is a value, 1 what is at another point,
// and 2 that reflected about a value. The other point has the index `sum - factor * index` along `axis`, and the same
// along the others.
KERNEL(boundary)(
    TILE, PART(entry, inside), WRITES(entry, ghosts), SCALAR(i32, condition), SCALAR(entry, value), SCALAR(i32, axis),
    SCALAR(i64, sum), SCALAR(i64, factor), SCALAR(i64, first), SCALAR(i64, end)
) {
    POINT(i, j, k);
    const u64 index = axis == 0 ? i : axis == 1 ? j : k;
    const u64 within = (u64)(sum - factor * (i64)index);
    const u64 z = axis == 0 ? within : i, y = axis == 1 ? within : j, x = axis == 2 ? within : k;
    const u64 from =
        inside_rows.first + z * inside_rows.strides[0] + y * inside_rows.strides[1] + x * inside_rows.strides[2];
    const u64 to =
        ghosts_rows.first + i * ghosts_rows.strides[0] + j * ghosts_rows.strides[1] + k * ghosts_rows.strides[2];
    for (i64 component = first; component < end; ++component) {
        if (condition == 0) {
            ghosts[to + (u64)component] = value;
        } else {
            const entry found = inside[from + (u64)component];
            ghosts[to + (u64)component] =
                condition == 1 ? found : (entry)((wrapped)value + (wrapped)value - (wrapped)found);
        }
    }
}

// Rule B3/S23 on cells that are bytes: `next = 1` if `(n | here) = 3`, where n is the number of live neighbours.
//
// A thread computes 4 rows of 8 cells, in words of 4: bytes are added in words, as no sum is above 9. Rows begin
// anywhere, but words are loaded and stored on their boundaries, so that threads side by side move words side by side.
// So of every row 13 cells are taken, from the fourth to the left of the block on, and the block's cells are those
// from the boundary at or before `x` on.

// A word of the 8 bytes of two, one behind the other.
FUNCTION u32 cut(const u32 low, const u32 high, const u64 bytes) {
    return (u32)(((u64)high << 32 | low) >> 8 * bytes);
}

// 13 cells, from the fourth before `at` on. What is no cell of the array is none that a cell of the tile depends on.
FUNCTION void take(ARRAY const u32 *words, const u64 last, const u64 at, u32 *cells) {
    u32 found[4];
    for (u64 word = 0; word < 4; ++word) {
        const u64 index = at / 4 + word;
        found[word] = words[index == 0 ? 0 : index - 1 < last ? index - 1 : last];
    }
    for (int word = 0; word < 4; ++word) {
        cells[word] = cut(found[word], word < 3 ? found[word + 1] : 0, at % 4);
    }
}

KERNEL(life)(TILE, READS(u8, now), WRITES(u8, next)) {
    BLOCK(i, y, x, 4, 8);
    ARRAY const u32 *words = (ARRAY const u32 *)now;
    const u64 last = (now_rows.elements - 1) / 4;
    u32 above[4], here[4], below[4], sums[4];
    take(words, last, &AT(now, i, y - 1, x) - now, above);
    take(words, last, &AT(now, i, y, x) - now, here);
    for (u64 row = y; row < y + 4 && row < tile.end[1]; ++row) {
        take(words, last, &AT(now, i, row + 1, x) - now, below);
        for (int word = 0; word < 4; ++word) {
            sums[word] = above[word] + here[word] + below[word];
        }
        const u64 at = &AT(next, i, row, x) - next, before = at % 4;
        for (u64 word = 0; word < 2; ++word) {
            // From the column to the left of the word on.
            const u32 low = cut(sums[word], sums[word + 1], 3 - before);
            const u32 high = cut(sums[word + 1], sums[word + 2], 3 - before);
            const u32 own = cut(here[word], here[word + 1], 4 - before);
            const u32 neighbours = low + cut(low, high, 1) + cut(low, high, 2) - own;
            // Of each byte: below 16, and 0 if the cell lives.
            const u32 wrong = (neighbours | own) ^ 0x03030303;
            const u32 lives = ~((wrong + 0x0f0f0f0f) >> 4) & 0x01010101;
            const u64 first = x + 4 * word;
            if (first >= tile.start[2] + before && first + 4 <= tile.end[2] + before) {
                ((ARRAY u32 *)next)[at / 4 + word] = lives;
                continue;
            }
            for (u64 cell = 0; cell < 4; ++cell) {
                if (first + cell >= tile.start[2] + before && first + cell < tile.end[2] + before) {
                    next[at - before + 4 * word + cell] = (u8)(lives >> 8 * cell);
                }
            }
        }
        for (int word = 0; word < 4; ++word) {
            above[word] = here[word];
            here[word] = below[word];
        }
    }
}

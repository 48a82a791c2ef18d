// Rule B3/S23 on cells that are bytes: `next = 1` if `(n | here) = 3`, where n is the number of live neighbours.
//
// A thread computes 4 rows of 16 cells, in words of 4: bytes are added in words, as no sum is above 9. Threads side by side
// move words side by side, on their boundaries: a block's cells are those from the boundary at or before `x` on.

// Of each byte, 1 if the cell lives on.
FUNCTION u32 rule(const u32 neighbours, const u32 own) {
    // Below 16, and 0 if it does.
    const u32 wrong = (neighbours | own) ^ 0x03030303;
    return ~((wrong + 0x0f0f0f0f) >> 4) & 0x01010101;
}

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
    BLOCK(i, y, x, 4, 16);
    ARRAY const u32 *words = (ARRAY const u32 *)now;
    const u64 last = (now_rows.elements - 1) / 4, stride = now_rows.strides[1];
    const u64 rows = tile.end[1] - y < 4 ? tile.end[1] - y : 4;

    // Rows that begin alike, in both generations: all that a thread needs is on the same boundaries.
    if (stride % 16 == 0 && stride == next_rows.strides[1] && &AT(now, i, y, x) - now == &AT(next, i, y, x) - next) {
        const u64 at = &AT(now, i, y, x) - now, before = at % 16, block = at - before;
        if (x >= tile.end[2] + before) return;
        // A word to the left, four, and one to the right.
        u32 cells[6][6];
        for (u64 row = 0; row < 6; ++row) {
            const u64 start = block - stride + (row < rows + 2 ? row : rows + 1) * stride;
            const u128 found = *(ARRAY const u128 *)(now + start);
            cells[row][0] = words[start == 0 ? 0 : start / 4 - 1];
            cells[row][1] = (u32)found.x;
            cells[row][2] = (u32)(found.x >> 32);
            cells[row][3] = (u32)found.y;
            cells[row][4] = (u32)(found.y >> 32);
            cells[row][5] = words[start / 4 + 4 < last ? start / 4 + 4 : last];
        }
        const int is_whole = x >= tile.start[2] + before && x + 16 <= tile.end[2] + before;
        for (u64 row = 0; row < 4; ++row) {
            if (row >= rows) return;
            u32 sums[6];
            for (int word = 0; word < 6; ++word) {
                sums[word] = cells[row][word] + cells[row + 1][word] + cells[row + 2][word];
            }
            u32 lives[4];
            for (int word = 0; word < 4; ++word) {
                const u32 left = sums[word + 1] << 8 | sums[word] >> 24;
                const u32 right = sums[word + 1] >> 8 | sums[word + 2] << 24;
                const u32 own = cells[row + 1][word + 1];
                lives[word] = rule(left + sums[word + 1] + right - own, own);
            }
            if (is_whole) {
                u128 all;
                all.x = (u64)lives[1] << 32 | lives[0];
                all.y = (u64)lives[3] << 32 | lives[2];
                *(ARRAY u128 *)(next + block + row * stride) = all;
                continue;
            }
            for (u64 word = 0; word < 4; ++word) {
                for (u64 cell = 0; cell < 4; ++cell) {
                    const u64 column = x + 4 * word + cell;
                    if (column >= tile.start[2] + before && column < tile.end[2] + before) {
                        next[block + row * stride + 4 * word + cell] = (u8)(lives[word] >> 8 * cell);
                    }
                }
            }
        }
        return;
    }

    // Short rows begin anywhere in words: 8 cells of each at a time.
    for (u64 part = x; part < x + 16; part += 8) {
        u32 above[4], here[4], below[4], sums[4];
        take(words, last, &AT(now, i, y - 1, part) - now, above);
        take(words, last, &AT(now, i, y, part) - now, here);
        for (u64 row = y; row < y + rows; ++row) {
            take(words, last, &AT(now, i, row + 1, part) - now, below);
            for (int word = 0; word < 4; ++word) sums[word] = above[word] + here[word] + below[word];
            const u64 at = &AT(next, i, row, part) - next, before = at % 4;
            for (u64 word = 0; word < 2; ++word) {
                // From the column to the left of the word on.
                const u32 low = cut(sums[word], sums[word + 1], 3 - before);
                const u32 high = cut(sums[word + 1], sums[word + 2], 3 - before);
                const u32 own = cut(here[word], here[word + 1], 4 - before);
                const u32 lives = rule(low + cut(low, high, 1) + cut(low, high, 2) - own, own);
                const u64 first = part + 4 * word;
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
}

// What streams need of a device themselves: moves, reductions, signals and waits. One text for all vendors, of
// whom each defines in a prelude:
//
//   KERNEL(name)              begins a kernel, and GROUP_KERNEL one that is launched as one group of many threads; FUNCTION
//                             begins a function that kernels call
//   GLOBAL                    qualifies what a pointer to the device's memory points to
//   u8 u16 u32 u64 u128       words of 1, 2, 4, 8 and 16 bytes, the last for copies only; i32 i64 f32 and, with
//   HAS_F64, f64              the types of elements: products and sums are not contracted
//   ITEM                      the number of the thread along the fastest axis
//   GROUP GROUPS              the number of its group, and how many groups there are
//   ITEM_OF_GROUP             its number in its group, of THREADS_OF_GROUP; GROUP_BARRIER until all threads of the
//                             group have come to it, and their stores are seen by each other
//   GROUP_BARRIER_ANY(of_own, noted)   the same, and whether a condition holds for any of them, of which those for whom it
//                             holds have made what is at `noted` not zero
//
// and with HAS_ATOMICS, at a scope that takes in the host, all devices and other processes:
//
//   word                      a u32 for atomic operations
//   LOAD(at)                  its value, relaxed; LOAD_ACQUIRE(at)
//   STORE(at, value)          relaxed
//   ADD(at, value)            relaxed, with the value before; at the scope of the device, which all that add share
//   FENCE_RELEASE             a fence before the stores of signals: what earlier kernels of the queue stored, too.
//                             It may wait for stores on their way to the host: there is one, and no store has its own
//   FENCE                     the same, and its other side
//
// `failed` is set once a wait of the stream has been stopped: what is behind it must not touch other ranks' memory.
// Addresses of other ranks' memory stand in tables; the host has told the runtime which memory is meant.

// Numbers that change from replay to replay of a graph are `value` on top of what is at `base`; without a graph `base`
// is null.
FUNCTION u32 halo_number(GLOBAL const u32 *base, const u32 value) { return base ? *base + value : value; }

// How far the counts of a graph have moved on: set, where something else has moved them on, and by a replay.
KERNEL(halo_set)(GLOBAL u32 *counts, const u32 index, const u32 moved) {
    if (ITEM == 0) counts[index] = moved;
}

// At the end of a replay: no wait of it is the current one any more.
KERNEL(halo_move_on)(GLOBAL u32 *counts, GLOBAL const u32 *strides, const u64 count, GLOBAL u32 *current) {
    if (ITEM < count) counts[ITEM] += strides[ITEM];
    if (ITEM == 0) *current = 0;
}

// A box of runs of words: `words` in each run, `inner` runs along the inner axis, `all` words together, less than 2^31.
typedef struct {
    u64 source, destination;
    u64 source_strides[2], destination_strides[2];
    u32 inner, words, all, word_bytes;
} piece;

// What a group of threads moves at a time: words of one box, from `start` on.
typedef struct {
    u32 piece, start;
} chunk;

// What stands in tables, entry by entry: C++ has no copies of structures from qualified memory.
FUNCTION piece halo_piece(GLOBAL const piece *at) {
    piece own;
    own.source = at->source;
    own.destination = at->destination;
    for (int n = 0; n < 2; ++n) {
        own.source_strides[n] = at->source_strides[n];
        own.destination_strides[n] = at->destination_strides[n];
    }
    own.inner = at->inner;
    own.words = at->words;
    own.all = at->all;
    own.word_bytes = at->word_bytes;
    return own;
}

FUNCTION chunk halo_chunk(GLOBAL const chunk *at) {
    chunk own;
    own.piece = at->piece;
    own.start = at->start;
    return own;
}

// Words that a thread has on their way at a time.
#define EACH 4

#define MOVE(type)                                                                      \
    {                                                                                   \
        type kept[EACH];                                                                \
        for (u32 n = 0; n < EACH; ++n)                                                  \
            if (n < count) kept[n] = *(GLOBAL const type *)from[n];                     \
        for (u32 n = 0; n < EACH; ++n)                                                  \
            if (n < count) *(GLOBAL type *)to[n] = kept[n];                             \
    }                                                                                   \
    break

// One chunk: neighbouring threads take neighbouring words, and each thread loads all of its words before it stores one.
FUNCTION void halo_move_chunk(const piece own, const u32 start, const u32 length) {
    const u32 end = own.all - start < length ? own.all : start + length;
    for (u32 word = start + ITEM_OF_GROUP; word < end; word += EACH * THREADS_OF_GROUP) {
        u64 from[EACH], to[EACH];
        u32 count = 0;
        for (u32 n = 0; n < EACH; ++n) {
            const u32 at = word + n * THREADS_OF_GROUP;
            const u32 run = at / own.words, outer = run / own.inner, inner = run - outer * own.inner;
            const u64 place = (u64)(at - run * own.words) * own.word_bytes;
            from[n] = own.source + outer * own.source_strides[0] + inner * own.source_strides[1] + place;
            to[n] = own.destination + outer * own.destination_strides[0] +
                    inner * own.destination_strides[1] + place;
            if (at < end) count = n + 1;
        }
        switch (own.word_bytes) {
            case 16: MOVE(u128);
            case 8: MOVE(u64);
            case 4: MOVE(u32);
            case 2: MOVE(u16);
            default: MOVE(u8);
        }
    }
}

// All boxes of all fields and neighbours together: as many groups as chunks, or fewer that take turns. A group's first is
// read, as `FIRST`, before it is known whether anything is to be moved: two reads that depend on each other take as long as
// a short move does.
#define FIRST_OF(first, pieces, chunks)             \
    const chunk first = halo_chunk(chunks + GROUP); \
    const piece first##_piece = halo_piece(pieces + first.piece)
#define FIRST FIRST_OF(first, pieces, chunks)

FUNCTION void halo_move_all(chunk own, piece own_piece, GLOBAL const piece *pieces, GLOBAL const chunk *chunks,
                            const u32 count, const u32 length) {
    for (u32 n = GROUP;;) {
        halo_move_chunk(own_piece, own.start, length);
        n += GROUPS;
        if (n >= count) return;
        own = halo_chunk(chunks + n);
        own_piece = halo_piece(pieces + own.piece);
    }
}

KERNEL(halo_move)(GLOBAL const u32 *failed, GLOBAL const piece *pieces, GLOBAL const chunk *chunks, const u32 count,
                  const u32 length) {
    const int stopped = *failed;
    FIRST;
    if (!stopped) halo_move_all(first, first_piece, pieces, chunks, count, length);
}

// The smaller and the larger, of which a NaN is ignored, as the host has them.
#define SMALLER(a, b) ((b) < (a) ? (b) : (a))
#define LARGER(a, b) ((b) > (a) ? (b) : (a))
#define SMALLER_NUMBER(a, b) ((a) != (a) ? (b) : (b) != (b) ? (a) : SMALLER(a, b))
#define LARGER_NUMBER(a, b) ((a) != (a) ? (b) : (b) != (b) ? (a) : LARGER(a, b))

// One thread an element of the destination, which takes its contributions in their order: `firsts[n]` is where
// those of element n begin in `sources`.
#define REDUCE(type, sum, smaller, larger)                                                                  \
    KERNEL(halo_reduce_##type)(GLOBAL const u32 *failed, const u32 op, GLOBAL const u64 *destinations,      \
                               GLOBAL const u64 *firsts, GLOBAL const u64 *sources, const u64 total) {      \
        const u64 item = ITEM;                                                                              \
        if (item >= total || *failed) return;                                                               \
        GLOBAL type *own = (GLOBAL type *)destinations[item];                                               \
        type a = *own;                                                                                      \
        for (u64 n = firsts[item]; n < firsts[item + 1]; ++n) {                                             \
            const type b = *(GLOBAL const type *)sources[n];                                                \
            switch (op) {                                                                                   \
                case 1: a = sum; break;                                                                     \
                case 2: a = smaller(a, b); break;                                                           \
                default: a = larger(a, b); break;                                                           \
            }                                                                                               \
        }                                                                                                   \
        *own = a;                                                                                           \
    }

REDUCE(u8, (u8)(a + b), SMALLER, LARGER)
REDUCE(i32, (i32)((u32)a + (u32)b), SMALLER, LARGER)
REDUCE(i64, (i64)((u64)a + (u64)b), SMALLER, LARGER)
REDUCE(f32, a + b, SMALLER_NUMBER, LARGER_NUMBER)
#ifdef HAS_F64
REDUCE(f64, a + b, SMALLER_NUMBER, LARGER_NUMBER)
#endif

#ifdef HAS_ATOMICS
// Tells other ranks of what was stored before a fence. Words that are not needed are null.
FUNCTION void halo_post(GLOBAL word *at, const u32 value, const u32 increments) {
    if (!at) return;
    if (increments) {
        ADD(at, value);
    } else {
        STORE(at, value);
    }
}

KERNEL(halo_signal)(GLOBAL word *a, GLOBAL word *b, GLOBAL word *c, GLOBAL word *d, GLOBAL const u32 *failed,
                    GLOBAL const u32 *base, const u32 given, const u32 increments) {
    if (ITEM != 0 || *failed) return;
    const u32 value = halo_number(base, given);
    FENCE_RELEASE;
    halo_post(a, value, increments);
    halo_post(b, value, increments);
    halo_post(c, value, increments);
    halo_post(d, value, increments);
}

// A word that is told, by its address: it becomes the value, or one more.
typedef struct {
    u64 at, increments;
} notice;

FUNCTION notice halo_notice(GLOBAL const notice *at) {
    notice own;
    own.at = at->at;
    own.increments = at->increments;
    return own;
}

FUNCTION void halo_tell(const notice one, const u32 value) {
    const u32 increments = (u32)one.increments;
    halo_post((GLOBAL word *)one.at, increments ? 1u : value, increments);
}

// Moves and, once all groups have moved their words, tells others: `done` counts the groups, where there are several. Each
// group's stores come before its fence and that before its count; who counts last has seen all counts, and tells behind
// a fence of its own. Kernels that follow on the queue find the count at zero again.
//
// What was to be told before any of that, if something was, a thread tells that has least to move.
KERNEL(halo_send)(GLOBAL const u32 *failed, GLOBAL const piece *pieces, GLOBAL const chunk *chunks, const u32 count,
                  const u32 length, GLOBAL word *done, GLOBAL const notice *notices, const u64 told,
                  GLOBAL const u32 *base, const u32 given, GLOBAL const notice *before, const u64 told_before,
                  GLOBAL const u32 *base_before, const u32 given_before) {
    const int stopped = *failed;
    FIRST;
    const notice first_notice = halo_notice(notices);
    const u32 value = halo_number(base, given);
    if (GROUP == 0 && ITEM_OF_GROUP == THREADS_OF_GROUP - 1 && told_before > 0 && !stopped) {
        const notice first_before = halo_notice(before);
        const u32 value_before = halo_number(base_before, given_before);
        FENCE_RELEASE;
        halo_tell(first_before, value_before);
        for (u64 n = 1; n < told_before; ++n) halo_tell(halo_notice(before + n), value_before);
    }
    if (!stopped) halo_move_all(first, first_piece, pieces, chunks, count, length);
    GROUP_BARRIER;
    if (ITEM_OF_GROUP != 0 || stopped) return;
    FENCE_RELEASE;
    if (GROUPS > 1) {
        if (ADD(done, 1u) != (u32)GROUPS - 1) return;
        FENCE;
        STORE(done, 0u);
    }
    halo_tell(first_notice, value);
    for (u64 n = 1; n < told; ++n) halo_tell(halo_notice(notices + n), value);
}

// How often a word is looked at before the word of the host is that stops it: either may be a read across a bus.
#define LOOKS 64

// Until a word has come to a value, across the wrap, or the host says that it will not: whether it has.
FUNCTION int halo_reached(GLOBAL word *at, const u32 value, GLOBAL word *stop) {
    if (!at) return 1;
    for (u32 looks = 1;; ++looks) {
        if ((i32)(LOAD_ACQUIRE(at) - value) >= 0) return 1;
        if (looks % LOOKS == 0 && LOAD(stop)) return 0;
    }
}

// Waits for words, each of them by a thread of the one group that there is: what is on its way to one does not hold up the
// others. `current` becomes the number of the wait first, and stays so: no kernel ends before its last store to the host has
// arrived there.
#define WAIT(all, of_number)                                                                                \
    int stopped = 0;                                                                                        \
    {                                                                                                       \
        const u32 value = halo_number(base, given);                                                         \
        if (ITEM_OF_GROUP == 0) STORE(current, number);                                                     \
        for (u32 n = ITEM_OF_GROUP; n < (all); n += THREADS_OF_GROUP)                                       \
            if (!halo_reached(of_number, value, stop)) stopped = 1;                                         \
        if (stopped) *failed = 1;                                                                           \
    }

// A few of them; those that are not needed are null.
KERNEL(halo_wait)(GLOBAL word *a, GLOBAL word *b, GLOBAL word *c, GLOBAL word *d, GLOBAL word *stop,
                  GLOBAL u32 *failed, GLOBAL const u32 *base, const u32 given, GLOBAL word *current,
                  const u32 number) {
    WAIT(4, n == 0 ? a : n == 1 ? b : n == 2 ? c : d)
}

// Any number of them, by their addresses.
KERNEL(halo_wait_all)(GLOBAL const u64 *words, const u64 count, GLOBAL word *stop, GLOBAL u32 *failed,
                      GLOBAL const u32 *base, const u32 given, GLOBAL word *current, const u32 number) {
    WAIT(count, (GLOBAL word *)words[n])
}

// Whether a wait was stopped before is read while this one waits: a read from the device's memory takes as long as a short
// move does.
#define WAIT_FOR_ALL                              \
    const int stopped_before = *failed != 0;      \
    WAIT(awaited, (GLOBAL word *)words[n])
#define STOPPED GROUP_BARRIER_ANY(stopped || stopped_before, failed)

// The same, and then moves of what has arrived.
GROUP_KERNEL(halo_arrive)(GLOBAL const u64 *words, const u64 awaited, GLOBAL word *stop, GLOBAL u32 *failed,
                    GLOBAL const u32 *base, const u32 given, GLOBAL word *current, const u32 number,
                    GLOBAL const piece *pieces, GLOBAL const chunk *chunks, const u32 count, const u32 length) {
    FIRST;
    WAIT_FOR_ALL
    if (!STOPPED) halo_move_all(first, first_piece, pieces, chunks, count, length);
}

// Until a word has come to a value, or another one to its own, or the host says that it will not: whether the first has.
FUNCTION int halo_reached_before(GLOBAL word *at, const u32 value, GLOBAL word *other, const u32 value_of_other,
                                 GLOBAL word *stop) {
    for (u32 looks = 1;; ++looks) {
        const int is_last = (i32)(LOAD_ACQUIRE(other) - value_of_other) >= 0;
        if ((i32)(LOAD_ACQUIRE(at) - value) >= 0) return 1;
        if (is_last || (looks % LOOKS == 0 && LOAD(stop))) return 0;
    }
}

// The same, and then what `halo_send` does, by the one group of threads: what has arrived is where it belongs before others
// are told anything, and before it is read to be sent. Behind what is told before it the send waits for its receivers. Mostly
// they are ready before the last of what is awaited has arrived: other threads look at their words meanwhile.
GROUP_KERNEL(halo_relay)(GLOBAL const u64 *words, const u64 awaited, GLOBAL word *stop, GLOBAL u32 *failed,
                   GLOBAL const u32 *base, const u32 given, GLOBAL word *current, const u32 number,
                   GLOBAL const piece *pieces, GLOBAL const chunk *chunks, const u32 count, const u32 length,
                   GLOBAL const u64 *receivers, const u64 receiver_count, GLOBAL const u32 *base_of_receivers,
                   const u32 given_to_receivers, const u32 number_of_receivers,
                   GLOBAL const piece *sent_pieces, GLOBAL const chunk *sent_chunks, const u32 sent_count,
                   GLOBAL const notice *notices, const u64 told, GLOBAL const u32 *base_of_send,
                   const u32 given_to_send, GLOBAL const notice *before, const u64 told_before,
                   GLOBAL const u32 *base_before, const u32 given_before) {
    FIRST;
    FIRST_OF(sent, sent_pieces, sent_chunks);
    const u32 epoch = halo_number(base_of_send, given_to_send);
    const u32 value_before = halo_number(base_before, given_before);
    const u32 needed = halo_number(base_of_receivers, given_to_receivers);
    const u32 from_last = THREADS_OF_GROUP - 1 - ITEM_OF_GROUP;
    const int tells_before = from_last == 0 && told_before > 0;
    const notice first_told = halo_notice(tells_before ? before : notices);
    chunk own = first;
    piece own_piece = first_piece;
    WAIT_FOR_ALL
    int is_late = 0;
    for (u32 n = from_last; n < receiver_count; n += THREADS_OF_GROUP)
        if (!halo_reached_before((GLOBAL word *)receivers[n], needed, (GLOBAL word *)words[0],
                                 halo_number(base, given), stop))
            is_late = 1;
    if (STOPPED) return;
    // One text for both moves: of a kernel that runs once most instructions come from far.
#pragma unroll 1
    for (int sends = 0; sends < 2; ++sends) {
        halo_move_all(own, own_piece, sends ? sent_pieces : pieces, sends ? sent_chunks : chunks,
                      sends ? sent_count : count, length);
        GROUP_BARRIER;
        if (!sends && tells_before) {
            FENCE_RELEASE;
            halo_tell(first_told, value_before);
            for (u64 n = 1; n < told_before; ++n) halo_tell(halo_notice(before + n), value_before);
        }
        if (!sends && receiver_count > 0) {
            // They may be ready only once they have been told: by one thread, before any waits for them.
            if (receiver_count > 1) GROUP_BARRIER;
            if (is_late) {
                STORE(current, number_of_receivers);
                for (u32 n = from_last; n < receiver_count; n += THREADS_OF_GROUP)
                    if (!halo_reached((GLOBAL word *)receivers[n], needed, stop)) *failed = stopped = 1;
            }
            if (STOPPED) return;
        }
        own = sent;
        own_piece = sent_piece;
    }
    if (ITEM_OF_GROUP != 0) return;
    FENCE_RELEASE;
    // A group of one thread has told others before.
    halo_tell(tells_before ? halo_notice(notices) : first_told, epoch);
    for (u64 n = 1; n < told; ++n) halo_tell(halo_notice(notices + n), epoch);
}
#endif

// What streams need of a device themselves: moves, reductions, signals and waits.
//
// `failed` is set once a wait of the stream has been stopped: what is behind it must not touch other ranks' memory.
// Addresses of other ranks' memory stand in tables; the host has told the runtime which memory is meant.

// A box of runs of words. `first` counts the words of the pieces before it.
typedef struct {
    ulong source, destination;
    ulong source_strides[2], destination_strides[2];
    ulong first, inner, words, word_bytes;
} piece;

#define MOVE(type) *(__global type *)to = *(__global const type *)from

// One thread a word: all boxes of all fields and neighbours together.
__kernel void halo_move(__global const uint *failed, __global const piece *pieces, const ulong count,
                        const ulong total) {
    const ulong item = get_global_id(0);
    if (item >= total || *failed) return;
    ulong low = 0, high = count;
    while (high - low > 1) {
        const ulong middle = (low + high) / 2;
        if (pieces[middle].first <= item) low = middle;
        else high = middle;
    }
    __global const piece *own = pieces + low;
    const ulong rest = item - own->first;
    const ulong word = rest % own->words, run = rest / own->words;
    const ulong outer = run / own->inner, inner = run % own->inner;
    const ulong start = word * own->word_bytes;
    const uintptr_t from =
        own->source + outer * own->source_strides[0] + inner * own->source_strides[1] + start;
    const uintptr_t to =
        own->destination + outer * own->destination_strides[0] + inner * own->destination_strides[1] + start;
    switch (own->word_bytes) {
        case 16: MOVE(ulong2); break;
        case 8: MOVE(ulong); break;
        case 4: MOVE(uint); break;
        case 2: MOVE(ushort); break;
        default: MOVE(uchar); break;
    }
}

// The smaller and the larger, of which a NaN is ignored, as the host has them.
#define SMALLER(a, b) ((b) < (a) ? (b) : (a))
#define LARGER(a, b) ((b) > (a) ? (b) : (a))
#define SMALLER_NUMBER(a, b) ((a) != (a) ? (b) : (b) != (b) ? (a) : SMALLER(a, b))
#define LARGER_NUMBER(a, b) ((a) != (a) ? (b) : (b) != (b) ? (a) : LARGER(a, b))

// One thread an element of the destination, which takes its contributions in their order: `firsts[n]` is where
// those of element n begin in `sources`.
#define REDUCE(type, sum, smaller, larger)                                                          \
    __kernel void halo_reduce_##type(__global const uint *failed, const uint op,                    \
                                     __global const ulong *destinations,                            \
                                     __global const ulong *firsts, __global const ulong *sources,   \
                                     const ulong total) {                                           \
        const ulong item = get_global_id(0);                                                        \
        if (item >= total || *failed) return;                                                       \
        __global type *own = (__global type *)(uintptr_t)destinations[item];                        \
        type a = *own;                                                                              \
        for (ulong n = firsts[item]; n < firsts[item + 1]; ++n) {                                   \
            const type b = *(__global const type *)(uintptr_t)sources[n];                           \
            switch (op) {                                                                           \
                case 1: a = sum; break;                                                             \
                case 2: a = smaller(a, b); break;                                                   \
                default: a = larger(a, b); break;                                                   \
            }                                                                                       \
        }                                                                                           \
        *own = a;                                                                                   \
    }

REDUCE(u8, (u8)(a + b), SMALLER, LARGER)
REDUCE(i32, as_int(as_uint(a) + as_uint(b)), SMALLER, LARGER)
REDUCE(i64, as_long(as_ulong(a) + as_ulong(b)), SMALLER, LARGER)
REDUCE(f32, a + b, SMALLER_NUMBER, LARGER_NUMBER)
#ifdef HAS_F64
REDUCE(f64, a + b, SMALLER_NUMBER, LARGER_NUMBER)
#endif

#ifdef HAS_ATOMICS
// The scope by its number where the compiler has one: some that have the scope do not announce its name.
#ifdef __OPENCL_MEMORY_SCOPE_ALL_SVM_DEVICES
#define ALL_DEVICES ((memory_scope)__OPENCL_MEMORY_SCOPE_ALL_SVM_DEVICES)
#else
#define ALL_DEVICES memory_scope_all_svm_devices
#endif

// Tells other ranks of what the kernels before it have stored. Words that are not needed are null.
void halo_post(__global atomic_uint *word, const uint value, const uint increments) {
    if (!word) return;
    if (increments) {
        atomic_fetch_add_explicit(word, value, memory_order_release, ALL_DEVICES);
    } else {
        atomic_store_explicit(word, value, memory_order_release, ALL_DEVICES);
    }
}

__kernel void halo_signal(__global atomic_uint *a, __global atomic_uint *b, __global atomic_uint *c,
                          __global atomic_uint *d, __global const uint *failed, const uint value,
                          const uint increments) {
    if (get_global_id(0) != 0 || *failed) return;
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_release, ALL_DEVICES);
    halo_post(a, value, increments);
    halo_post(b, value, increments);
    halo_post(c, value, increments);
    halo_post(d, value, increments);
}

// Until a word has come to a value, across the wrap, or the host says that it will not: whether it has.
int halo_reached(__global atomic_uint *word, const uint value, __global atomic_uint *stop) {
    if (!word) return 1;
    for (;;) {
        const uint found = atomic_load_explicit(word, memory_order_acquire, ALL_DEVICES);
        if ((int)(found - value) >= 0) return 1;
        if (atomic_load_explicit(stop, memory_order_relaxed, ALL_DEVICES)) return 0;
    }
}

// Waits for words; those that are not needed are null. The last kernel of a wait gives its place among the
// device's waiters back.
__kernel void halo_wait(__global atomic_uint *a, __global atomic_uint *b, __global atomic_uint *c,
                        __global atomic_uint *d, __global atomic_uint *stop, __global uint *failed,
                        __global atomic_uint *waiters, const uint value) {
    if (get_global_id(0) != 0) return;
    const int all = halo_reached(a, value, stop) && halo_reached(b, value, stop) &&
                    halo_reached(c, value, stop) && halo_reached(d, value, stop);
    if (!all) *failed = 1;
    if (waiters) atomic_fetch_sub_explicit(waiters, 1u, memory_order_release, ALL_DEVICES);
}
#endif

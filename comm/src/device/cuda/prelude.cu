// What only CUDA has of what the texts of kernels are written with, behind `gpu/prelude.h`.
//
// Contraction of products and sums is switched off by the compiler's option `--fmad=false`.

typedef ulonglong2 u128;
#define GLOBAL

// Words by which ranks tell each other of stored data: PTX of its memory model (from compute capability 7.0 on) at
// the scope of the system, since the compiler at run time has no headers with `cuda::atomic_ref`. Additions are at the scope
// of the device, all of whose kernels see each as one operation: nobody else adds, and most hosts' memory takes no
// additions at the scope of the system (compute-sanitizer calls them invalid there).
typedef u32 word;

FUNCTION u32 halo_load(const word *at) {
    u32 value;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

FUNCTION u32 halo_load_acquire(const word *at) {
    u32 value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

FUNCTION void halo_store(word *at, const u32 value) {
    asm volatile("st.relaxed.sys.u32 [%0], %1;" : : "l"(at), "r"(value) : "memory");
}

FUNCTION u32 halo_add(word *at, const u32 value) {
    u32 before;
    asm volatile("atom.relaxed.gpu.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(at), "r"(value) : "memory");
    return before;
}

#define LOAD(at) halo_load(at)
#define LOAD_ACQUIRE(at) halo_load_acquire(at)
#define STORE(at, value) halo_store(at, value)
#define ADD(at, value) halo_add(at, value)
// `__threadfence_system` also puts them in one order with those of all others, which nobody needs and which takes longer.
#define FENCE asm volatile("fence.acq_rel.sys;" : : : "memory")
#define FENCE_RELEASE FENCE

// What only HIP has of what the texts of kernels are written with, behind `gpu/prelude.h`.
//
// Contraction of products and sums is switched off by the compiler's option `-ffp-contract=off`.

typedef u64 u128 __attribute__((ext_vector_type(2)));
// Of addresses in tables the compiler cannot know that they are not of the memory of a group.
#define GLOBAL __attribute__((address_space(1)))

typedef u32 word;
#define LOAD(at) __hip_atomic_load(at, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM)
#define LOAD_ACQUIRE(at) __hip_atomic_load(at, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM)
#define STORE(at, value) __hip_atomic_store(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM)
#define ADD(at, value) __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM)
// Without a name the scope is the system.
#define FENCE __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "")
#define FENCE_RELEASE __builtin_amdgcn_fence(__ATOMIC_RELEASE, "")

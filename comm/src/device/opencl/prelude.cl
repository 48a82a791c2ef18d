// What the texts of kernels are written with, in OpenCL C. The meaning for applications' kernels is in
// `device/text.rs`, and for streams' own in `device/queue/kernels.h`.

// The bits of the host: no product and sum become one operation.
#pragma OPENCL FP_CONTRACT OFF

typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
typedef ulong2 u128;
typedef int i32;
typedef long i64;
typedef float f32;
#ifdef HAS_F64
typedef double f64;
#endif

typedef struct {
    u64 start[3], end[3];
} halo_tile;

typedef struct {
    u64 first, strides[3], elements;
} halo_rows;

#define KERNEL(name) __kernel void name
#define GROUP_KERNEL(name) KERNEL(name)
#define TILE const halo_tile tile
#define READS(type, array) __global const type *restrict array, const halo_rows array##_rows
#define ARRAY __global
#define TABLE(type, array) READS(type, array)
#define PART(type, array) READS(type, array)
#define WRITES(type, array) __global type *restrict array, const halo_rows array##_rows
#define SCALAR(type, name) const type name
#define POINT(i, j, k)                                  \
    const u64 i = tile.start[0] + get_global_id(2);     \
    const u64 j = tile.start[1] + get_global_id(1);     \
    const u64 k = tile.start[2] + get_global_id(0);     \
    if (k >= tile.end[2]) return
#define BLOCK(i, j, k, rows, columns)                              \
    const u64 i = tile.start[0] + get_global_id(2);                \
    const u64 j = tile.start[1] + (rows) * get_global_id(1);       \
    const u64 k = tile.start[2] + (columns) * get_global_id(0);    \
    if (k >= tile.end[2] + (columns)) return
#define AT(array, i, j, k)                                              \
    array[array##_rows.first + (i) * array##_rows.strides[0] +          \
          (j) * array##_rows.strides[1] + (k) * array##_rows.strides[2]]

#define FUNCTION
#define GLOBAL __global
#define ITEM get_global_id(0)
#define GROUP (u32)get_group_id(0)
#define GROUPS (u32)get_num_groups(0)
#define ITEM_OF_GROUP (u32)get_local_id(0)
#define THREADS_OF_GROUP (u32)get_local_size(0)
#define GROUP_BARRIER barrier(CLK_GLOBAL_MEM_FENCE)
#define GROUP_BARRIER_ANY(of_own, noted) (GROUP_BARRIER, *(noted))

#ifdef HAS_ATOMICS
typedef atomic_uint word;
// The scope by its number where the compiler has one: some that have the scope do not announce its name.
#ifdef __OPENCL_MEMORY_SCOPE_ALL_SVM_DEVICES
#define ALL_DEVICES ((memory_scope)__OPENCL_MEMORY_SCOPE_ALL_SVM_DEVICES)
#else
#define ALL_DEVICES memory_scope_all_svm_devices
#endif
#define LOAD(at) atomic_load_explicit(at, memory_order_relaxed, ALL_DEVICES)
#define LOAD_ACQUIRE(at) atomic_load_explicit(at, memory_order_acquire, ALL_DEVICES)
#define STORE(at, value) atomic_store_explicit(at, value, memory_order_relaxed, ALL_DEVICES)
#define ADD(at, value) atomic_fetch_add_explicit(at, value, memory_order_relaxed, ALL_DEVICES)
#define FENCE atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acq_rel, ALL_DEVICES)
#define FENCE_RELEASE atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_release, ALL_DEVICES)
#endif

// What the texts of kernels are written with, in the C++ that CUDA and HIP have in common. The meaning for applications'
// kernels is in `device/text.rs`, and for streams' own in `device/queue/kernels.h`. A vendor's own prelude comes behind it.
//
// Contraction of products and sums is switched off by an option of the compiler.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;
#define HAS_F64
#define HAS_ATOMICS

typedef struct {
    u64 start[3], end[3];
} halo_tile;

typedef struct {
    u64 first, strides[3], elements;
} halo_rows;

#define KERNEL(name) extern "C" __global__ void name
// One whose one group has up to 512 threads: the compiler gives each no more registers than so many can have.
#define GROUP_KERNEL(name) extern "C" __global__ void __launch_bounds__(512) name
#define TILE const halo_tile tile
#define READS(type, array) const type *__restrict__ array, const halo_rows array##_rows
#define ARRAY
#define TABLE(type, array) READS(type, array)
#define PART(type, array) READS(type, array)
#define WRITES(type, array) type *__restrict__ array, const halo_rows array##_rows
#define SCALAR(type, name) const type name

// Threads along the fastest axis are along x. The rows of all planes follow each other along y and then z, of whose
// blocks the hardware has 65,535 only: see `Grid` in `launch.rs`.
#define ITEM ((u64)blockIdx.x * blockDim.x + threadIdx.x)
#define ROW (((u64)blockIdx.z * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y)
#define PLANE_OF(rows)                                      \
    const u64 halo_row = ROW, halo_rows = (rows);           \
    const u64 halo_plane = halo_rows == 1 ? halo_row        \
        : halo_row < halo_rows ? 0 : halo_row / halo_rows
#define POINT(i, j, k)                                                      \
    PLANE_OF(tile.end[1] - tile.start[1]);                                  \
    const u64 i = tile.start[0] + halo_plane;                               \
    const u64 j = tile.start[1] + (halo_row - halo_plane * halo_rows);      \
    const u64 k = tile.start[2] + ITEM;                                     \
    if (k >= tile.end[2] || i >= tile.end[0]) return
#define BLOCK(i, j, k, rows, columns)                                               \
    PLANE_OF((tile.end[1] - tile.start[1] + (rows) - 1) / (rows));                  \
    const u64 i = tile.start[0] + halo_plane;                                       \
    const u64 j = tile.start[1] + (rows) * (halo_row - halo_plane * halo_rows);     \
    const u64 k = tile.start[2] + (columns) * ITEM;                                 \
    if (k >= tile.end[2] + (columns) || i >= tile.end[0]) return
#define AT(array, i, j, k)                                              \
    array[array##_rows.first + (i) * array##_rows.strides[0] +          \
          (j) * array##_rows.strides[1] + (k) * array##_rows.strides[2]]

#define GROUP blockIdx.x
#define GROUPS gridDim.x
#define ITEM_OF_GROUP threadIdx.x
#define THREADS_OF_GROUP blockDim.x
#define GROUP_BARRIER __syncthreads()
#define GROUP_BARRIER_ANY(of_own, noted) __syncthreads_or(of_own)
#define FUNCTION static __attribute__((unused)) __device__

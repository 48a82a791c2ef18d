// What the texts of kernels are written with, in OpenCL C. Their meaning is in `device/text.rs`.

// The bits of the host: no product and sum become one operation.
#pragma OPENCL FP_CONTRACT OFF

typedef uchar u8;
typedef int i32;
typedef long i64;
typedef float f32;
#ifdef HAS_F64
typedef double f64;
#endif

typedef struct {
    ulong start[3], end[3];
} halo_tile;

typedef struct {
    ulong points[3], components;
} halo_extents;

#define KERNEL(name) __kernel void name
#define TILE const halo_tile tile
#define READS(type, array) __global const type *restrict array, const halo_extents array##_extents
#define WRITES(type, array) __global type *restrict array, const halo_extents array##_extents
#define POINT(i, j, k)                                  \
    const ulong i = tile.start[0] + get_global_id(2);   \
    const ulong j = tile.start[1] + get_global_id(1);   \
    const ulong k = tile.start[2] + get_global_id(0);   \
    if (k >= tile.end[2]) return
#define AT(array, i, j, k)                                                                  \
    array[(((i) * array##_extents.points[1] + (j)) * array##_extents.points[2] + (k)) *     \
          array##_extents.components]

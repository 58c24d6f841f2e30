/* What all CUDA kernels share: launches, shared memory, elements (bfloat16), loads of 16 bytes, sums over warps and
 * blocks. Compiles with nvcc, and with g++ against the emulator's headers (CUDA_EMULATED). */
#ifndef KERNELS_CUDA_CUDA_COMMON_CUH
#define KERNELS_CUDA_CUDA_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

/* LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...): kernel<<<...>>>(arguments...); a kernel with several
 * template arguments in parentheses. SHARED(float, partial, [8][32]): a shared array. DYNAMIC_SHARED(float, tile): the
 * launch's shared memory, as a pointer (aligned to 1024 bytes). */
#ifdef CUDA_EMULATED
#define LAUNCH(kernel, ...) emulator_launch(#kernel, kernel, __VA_ARGS__)
#define SHARED(type, name, dimensions)                                                                                 \
    typedef type name##_shared_type dimensions;                                                                        \
    static const char name##_shared_key = 0;                                                                           \
    name##_shared_type &name =                                                                                         \
        *static_cast<name##_shared_type *>(emulator::shared_array(&name##_shared_key, sizeof(name##_shared_type)))
#define DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(emulator::dynamic_shared())
#else
template <class... P, class... A>
static inline void launch_kernel(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                                 A... arguments)
{
    kernel<<<grid, block, shared_bytes, stream>>>(static_cast<P>(arguments)...);
}
#define LAUNCH(kernel, ...)            launch_kernel(kernel, __VA_ARGS__)
#define SHARED(type, name, dimensions) __shared__ __align__(16) type name dimensions
#define DYNAMIC_SHARED(type, name)                                                                                     \
    extern __shared__ __align__(1024) unsigned char dynamic_shared_bytes[];                                            \
    type *name = reinterpret_cast<type *>(dynamic_shared_bytes)
#endif

typedef __nv_bfloat16 element_t;

enum { WARP = 32, VECTOR = 8 /* elements in 16 bytes */, THREADS = 256 /* of a block, where nothing else decides */ };
static const uint32_t ALL_LANES = 0xffffffffu;

template <class T> static inline T divide_up(T n, T by)
{
    return (n + by - 1) / by;
}

static inline cudaStream_t stream_of(void *queue)
{
    return static_cast<cudaStream_t>(queue);
}

/* May rows of `stride` elements be read as vectors? NULL may. */
static inline bool is_aligned(const void *x, int64_t stride)
{
    return (uintptr_t)x % 16 == 0 && stride % VECTOR == 0;
}

/* Two elements in 32 bits: the first in the low half. */
static __device__ __forceinline__ float low_element(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}
static __device__ __forceinline__ float high_element(uint32_t pair)
{
    return __uint_as_float(pair & 0xffff0000u);
}
static __device__ __forceinline__ uint32_t pack_elements(float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

/* Eight elements as they are in memory. Elements from n on are not read (they become 0) and not written; ALIGNED: n is a
 * multiple of 8 and x of 16 bytes. */
template <bool ALIGNED> static __device__ __forceinline__ uint4 load_vector(const element_t *x, int n)
{
    if constexpr (ALIGNED) {
        return n > 0 ? *reinterpret_cast<const uint4 *>(x) : make_uint4(0, 0, 0, 0);
    } else {
        const unsigned short *bits = reinterpret_cast<const unsigned short *>(x);
        uint32_t word[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            word[i] = (2 * i < n ? bits[2 * i] : 0u) | (2 * i + 1 < n ? (uint32_t)bits[2 * i + 1] << 16 : 0u);
        return make_uint4(word[0], word[1], word[2], word[3]);
    }
}
template <bool ALIGNED> static __device__ __forceinline__ void store_vector(element_t *x, int n, uint4 v)
{
    if constexpr (ALIGNED) {
        if (n > 0)
            *reinterpret_cast<uint4 *>(x) = v;
    } else {
        unsigned short *bits = reinterpret_cast<unsigned short *>(x);
        const uint32_t word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            if (i < n)
                bits[i] = (unsigned short)(word[i / 2] >> 16 * (i % 2));
    }
}
static __device__ __forceinline__ void unpack(uint4 v, float (&x)[VECTOR])
{
    const uint32_t word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[2 * i] = low_element(word[i]);
        x[2 * i + 1] = high_element(word[i]);
    }
}
static __device__ __forceinline__ uint4 pack(const float (&x)[VECTOR])
{
    return make_uint4(pack_elements(x[0], x[1]), pack_elements(x[2], x[3]), pack_elements(x[4], x[5]),
                      pack_elements(x[6], x[7]));
}

/* Eight floats, the same way. */
template <bool ALIGNED> static __device__ __forceinline__ void load_floats(const float *x, int n, float (&to)[VECTOR])
{
    if constexpr (ALIGNED) {
        const float4 *from = reinterpret_cast<const float4 *>(x);
        float4 low = n > 0 ? from[0] : make_float4(0, 0, 0, 0), high = n > 0 ? from[1] : make_float4(0, 0, 0, 0);
        to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
        to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
    } else {
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            to[i] = i < n ? x[i] : 0;
    }
}
template <bool ALIGNED>
static __device__ __forceinline__ void store_floats(float *x, int n, const float (&from)[VECTOR])
{
    if constexpr (ALIGNED) {
        if (n > 0) {
            reinterpret_cast<float4 *>(x)[0] = make_float4(from[0], from[1], from[2], from[3]);
            reinterpret_cast<float4 *>(x)[1] = make_float4(from[4], from[5], from[6], from[7]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            if (i < n)
                x[i] = from[i];
    }
}

static __device__ __forceinline__ float warp_sum(float x)
{
    for (int step = WARP / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, step);
    return x;
}
static __device__ __forceinline__ float warp_max(float x)
{
    for (int step = WARP / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, step));
    return x;
}

/* Over the threads that share a row: those of a block with the same threadIdx.y. They are whole warps (then the only row
 * of the block, if more than one), or, NARROW, perhaps 8 or 16 lanes of one. Every thread gets the result. The two `partial` arrays
 * take turns: `phase` is another one in the next call. */
struct row_partials {
    float value[2][2][WARP];
};
template <bool NARROW> static __device__ __forceinline__ float row_lanes_sum(float x)
{
    if constexpr (NARROW) {
        unsigned width = blockDim.x, lane = (threadIdx.y * width + threadIdx.x) % WARP;
        uint32_t lanes = width >= WARP ? ALL_LANES : ((1u << width) - 1) << (lane - lane % width);
#pragma unroll
        for (int step = WARP / 2; step > 0; step /= 2)
            if (step < (int)width)
                x += __shfl_xor_sync(lanes, x, step);
        return x;
    } else {
        return warp_sum(x);
    }
}
template <bool NARROW> static __device__ __forceinline__ float2 block_sum2(float2 x, row_partials &partial, int phase)
{
    x.x = row_lanes_sum<NARROW>(x.x);
    x.y = row_lanes_sum<NARROW>(x.y);
    int warps = (int)blockDim.x / WARP, lane = (int)threadIdx.x % WARP;
    if (warps <= 1)
        return x;
    if (lane == 0) {
        partial.value[phase][0][threadIdx.x / WARP] = x.x;
        partial.value[phase][1][threadIdx.x / WARP] = x.y;
    }
    __syncthreads();
    x.x = warp_sum(lane < warps ? partial.value[phase][0][lane] : 0);
    x.y = warp_sum(lane < warps ? partial.value[phase][1][lane] : 0);
    return x;
}
template <bool NARROW> static __device__ __forceinline__ float block_sum(float x, row_partials &partial, int phase)
{
    x = row_lanes_sum<NARROW>(x);
    int warps = (int)blockDim.x / WARP, lane = (int)threadIdx.x % WARP;
    if (warps <= 1)
        return x;
    if (lane == 0)
        partial.value[phase][0][threadIdx.x / WARP] = x;
    __syncthreads();
    return warp_sum(lane < warps ? partial.value[phase][0][lane] : 0);
}
/* Whole warps only. */
static __device__ __forceinline__ float block_max(float x, row_partials &partial, int phase)
{
    x = warp_max(x);
    int warps = (int)blockDim.x / WARP, lane = (int)threadIdx.x % WARP;
    if (warps == 1)
        return x;
    if (lane == 0)
        partial.value[phase][0][threadIdx.x / WARP] = x;
    __syncthreads();
    return warp_max(lane < warps ? partial.value[phase][0][lane] : -INFINITY);
}

/* Rows of vectors over a grid: threads x is along the row, y over rows, both go on by the grid's size. */
struct tiling {
    dim3 grid, block;
};
static inline tiling tile_rows(int64_t rows, int64_t vectors)
{
    unsigned width = 1;
    while (width < THREADS && width < vectors)
        width *= 2;
    unsigned height = THREADS / width;
    int64_t down = divide_up<int64_t>(rows, height), across = divide_up<int64_t>(vectors, width);
    return tiling{dim3((unsigned)across, (unsigned)(down < 65535 ? down : 65535)), dim3(width, height)};
}
static __device__ __forceinline__ int tile_row()
{
    return (int)(blockIdx.y * blockDim.y + threadIdx.y);
}
static __device__ __forceinline__ int tile_step()
{
    return (int)(gridDim.y * blockDim.y);
}
static __device__ __forceinline__ int tile_vector()
{
    return (int)(blockIdx.x * blockDim.x + threadIdx.x);
}

/* LAUNCH of kernel<true> or kernel<false>. */
#define LAUNCH_ALIGNED(aligned, kernel, ...)                                                                           \
    do {                                                                                                               \
        if (aligned)                                                                                                   \
            LAUNCH((kernel<true>), __VA_ARGS__);                                                                       \
        else                                                                                                           \
            LAUNCH((kernel<false>), __VA_ARGS__);                                                                      \
    } while (0)

/* Ends through cuda_kernels_on_failure when the last launch was refused. */
void check_launch(const char *kernel);

/* out[c] += the sum of partial[0 .. rows)[c] in a fixed order (reduce.cu). */
void add_partial_rows(cudaStream_t stream, int rows, int columns, const float *partial, float *out);

#endif

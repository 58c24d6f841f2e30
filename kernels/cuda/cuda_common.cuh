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
    extern __shared__ __align__(1024) unsigned char dynamic_shared_bytes[];                                             \
    type *name = reinterpret_cast<type *>(dynamic_shared_bytes)
#endif

typedef __nv_bfloat16 element_t;

enum { WARP = 32, VECTOR = 8 /* elements in 16 bytes */ };
static const uint32_t ALL_LANES = 0xffffffffu;

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

#endif

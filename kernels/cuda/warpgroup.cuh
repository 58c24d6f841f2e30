/* Products of warpgroups (4 warps together; sm_90a) as functions (PTX ISA, "wgmma.mma_async"), and what goes with them.
 *
 * d[64 x N] += a[64 x 16] b[16 x N], bf16 inputs, fp32 sums. Warp w of the four holds rows 16 w .. of d and of a in
 * registers, laid out as in primitives.cuh. Operands in shared memory are panels of 64 columns, rows of 128 bytes whose
 * 16-byte chunks are permuted by the row (the 128-byte swizzle; tile<> of attention.cuh), that start at multiples of
 * 1024 bytes. warpgroup_rows: 16 columns of all rows from an address on, as a, or as b transposed. warpgroup_columns:
 * 16 rows from an address on of all panels, as b.
 *
 * A product runs on its own: its registers and its shared memory are in use until warpgroup_wait<n> has seen its group
 * done, all but the last n. warpgroup_begin comes before products that use registers written since; warpgroup_hold
 * keeps the compiler from moving uses of sums over a wait, and the making of sums or of a's registers over
 * warpgroup_begin. warpgroup_wait_after(x, word): the next wait stays behind the making of x (ptxas moves waits up over
 * arithmetic, not over a store; word: the address of 4 bytes of shared memory of this thread's own). Shared memory
 * written by other means (cp.async too) needs shared_for_warpgroups in the writing threads before the barrier. */
#ifndef KERNELS_CUDA_WARPGROUP_CUH
#define KERNELS_CUDA_WARPGROUP_CUH

#include "kernels/cuda/primitives.cuh"

#if defined(CUDA_EMULATED) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAVE_WARPGROUPS 1
#else
#define HAVE_WARPGROUPS 0
#endif

static constexpr int WARPGROUP = 4 * WARP;

/* Of this thread. By a shuffle the compiler knows that it is one number for all lanes: the operands that are made from
 * it then live in uniform registers, where the products read them. */
static __device__ __forceinline__ uint32_t warpgroup_index()
{
    return __shfl_sync(ALL_LANES, threadIdx.x / WARPGROUP, 0);
}

/* Bytes, in units of 16, of an address, of the step over panels and of the step over 8 rows; 1 = 128-byte swizzle. */
static __device__ __forceinline__ uint64_t warpgroup_operand(uint32_t address, uint32_t over_panels)
{
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(over_panels >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

static __device__ __forceinline__ uint64_t warpgroup_rows(uint32_t address)
{
    return warpgroup_operand(address, 16); /* one panel: the step is not used */
}

static __device__ __forceinline__ uint64_t warpgroup_columns(uint32_t address, uint32_t panel_bytes)
{
    return warpgroup_operand(address, panel_bytes);
}

#ifdef CUDA_EMULATED
#include <emulated_warpgroup.h>
#elif HAVE_WARPGROUPS

#define SUMS_4(d, n)  "+f"((d)[0][n][0]), "+f"((d)[0][n][1]), "+f"((d)[0][n][2]), "+f"((d)[0][n][3])
#define SUMS_16(d, n) SUMS_4(d, n), SUMS_4(d, n + 1), SUMS_4(d, n + 2), SUMS_4(d, n + 3)
#define SUMS_64(d)    SUMS_16(d, 0), SUMS_16(d, 4)
#define SUMS_128(d)   SUMS_64(d), SUMS_16(d, 8), SUMS_16(d, 12)

/* d = or += a b^T, both rows of shared memory. */
template <int N>
static __device__ __forceinline__ void warpgroup_product(float (&d)[1][N / 8][4], uint64_t a, uint64_t b,
                                                         bool accumulate)
{
    static_assert(N == 64 || N == 128, "shapes that are used");
    if constexpr (N == 64)
        asm volatile("{ .reg .pred add; setp.ne.b32 add, %34, 0; "
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
                     "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                     "}, %32, %33, add, 1, 1, 0, 0; }"
                     : SUMS_64(d)
                     : "l"(a), "l"(b), "r"((int)accumulate));
    if constexpr (N == 128)
        asm volatile("{ .reg .pred add; setp.ne.b32 add, %66, 0; "
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
                     "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
                     "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
                     "%56, %57, %58, %59, %60, %61, %62, %63"
                     "}, %64, %65, add, 1, 1, 0, 0; }"
                     : SUMS_128(d)
                     : "l"(a), "l"(b), "r"((int)accumulate));
}

/* d += a b, a from registers, b columns of shared memory. */
template <int N>
static __device__ __forceinline__ void warpgroup_product(float (&d)[1][N / 8][4], const uint32_t (&a)[4], uint64_t b)
{
    static_assert(N == 64 || N == 128, "shapes that are used");
    if constexpr (N == 64)
        asm volatile("{ .reg .pred add; setp.eq.b32 add, 0, 0; "
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
                     "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                     "}, {%32, %33, %34, %35}, %36, add, 1, 1, 1; }"
                     : SUMS_64(d)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    if constexpr (N == 128)
        asm volatile("{ .reg .pred add; setp.eq.b32 add, 0, 0; "
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
                     "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
                     "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
                     "%56, %57, %58, %59, %60, %61, %62, %63"
                     "}, {%64, %65, %66, %67}, %68, add, 1, 1, 1; }"
                     : SUMS_128(d)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

static __device__ __forceinline__ void warpgroup_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void warpgroup_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int groups_left> static __device__ __forceinline__ void warpgroup_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups_left) : "memory");
}
template <int N> static __device__ __forceinline__ void warpgroup_hold(float (&d)[1][N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
        asm volatile("" : "+f"(d[0][n][0]), "+f"(d[0][n][1]), "+f"(d[0][n][2]), "+f"(d[0][n][3])::"memory");
}
template <int K> static __device__ __forceinline__ void warpgroup_hold(uint32_t (&a)[1][K][4])
{
#pragma unroll
    for (int k = 0; k < K; k++)
        asm volatile("" : "+r"(a[0][k][0]), "+r"(a[0][k][1]), "+r"(a[0][k][2]), "+r"(a[0][k][3])::"memory");
}
static __device__ __forceinline__ void warpgroup_wait_after(float x, uint32_t word)
{
    asm volatile("st.volatile.shared.f32 [%0], %1;" ::"r"(word), "f"(x) : "memory");
}
static __device__ __forceinline__ void shared_for_warpgroups()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif

#if HAVE_WARPGROUPS
/* The last copies of this thread are there, and those of all others. */
static __device__ __forceinline__ void tiles_arrive()
{
    cp_async_wait<0>();
    shared_for_warpgroups();
    __syncthreads();
}
#endif

#endif

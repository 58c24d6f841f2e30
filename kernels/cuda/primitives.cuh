/* Instructions of the tensor cores and of the copy engine as functions (PTX ISA; sm_80 and later). All lanes of a warp
 * call them together.
 *
 * mma_16816: d[16 x 8] += a[16 x 16] b[16 x 8], bf16 inputs, fp32 sums. With lane = 4 group + place:
 *   a[0] row group, columns 2 place, + 1    a[1] row group + 8    a[2], a[3] the same, columns + 8
 *   b[0] rows (k) 2 place, + 1, column group    b[1] rows + 8
 *   d[0], d[1] row group, columns 2 place, + 1    d[2], d[3] row group + 8
 * ldmatrix: lanes 8 m .. 8 m + 7 give the addresses of the rows of matrix m (8 x 8 elements, 16-byte rows in shared
 * memory); r[m] of a lane is row group, columns 2 place, + 1 of it; _trans: the same of the transposed matrix. */
#ifndef KERNELS_CUDA_PRIMITIVES_CUH
#define KERNELS_CUDA_PRIMITIVES_CUH

#include "kernels/cuda/cuda_common.cuh"

#ifdef CUDA_EMULATED
#include <emulated_primitives.h>
#else

static __device__ __forceinline__ void mma_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ uint32_t shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

static __device__ __forceinline__ void ldmatrix_x1(uint32_t (&r)[1], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(shared_address(row))
                 : "memory");
}
static __device__ __forceinline__ void ldmatrix_x2(uint32_t (&r)[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row))
                 : "memory");
}
static __device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
static __device__ __forceinline__ void ldmatrix_x1_trans(uint32_t (&r)[1], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(shared_address(row))
                 : "memory");
}
static __device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&r)[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row))
                 : "memory");
}
static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* 16 bytes from global to shared memory; zeros where not valid (`global` is then not read). Both aligned to 16. */
static __device__ __forceinline__ void cp_async_16(void *shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}
static __device__ __forceinline__ void cp_async_16(void *shared, const void *global, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(valid ? 16 : 0)
                 : "memory");
}
static __device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Until all but the last `groups_left` committed groups of this thread are there. */
template <int groups_left> static __device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(groups_left) : "memory");
}

static __device__ __forceinline__ float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
#endif

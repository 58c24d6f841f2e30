/* bfloat16 on the CPU: what the kernels use of CUDA's type, rounding to nearest even. */
#ifndef EMULATOR_CUDA_BF16_H
#define EMULATOR_CUDA_BF16_H

#include "cuda_runtime.h"

struct __nv_bfloat16 {
    uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline float __bfloat162float(__nv_bfloat16 x)
{
    return __uint_as_float((unsigned)x.bits << 16);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    unsigned bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return __nv_bfloat16{0x7fff};
    return __nv_bfloat16{(uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}
static inline __nv_bfloat16 __float2bfloat16(float x)
{
    return __float2bfloat16_rn(x);
}
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x)
{
    return __nv_bfloat16{x};
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x)
{
    return x.bits;
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return __nv_bfloat162{__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
static inline __nv_bfloat162 __float22bfloat162_rn(float2 x)
{
    return __floats2bfloat162_rn(x.x, x.y);
}
static inline float2 __bfloat1622float2(__nv_bfloat162 x)
{
    return float2{__bfloat162float(x.x), __bfloat162float(x.y)};
}
static inline float __low2float(__nv_bfloat162 x)
{
    return __bfloat162float(x.x);
}
static inline float __high2float(__nv_bfloat162 x)
{
    return __bfloat162float(x.y);
}

#endif

/* 8-bit floating point on the CPU: what the kernels use of CUDA's conversions, by search among all numbers that the
 * format has. */
#ifndef EMULATOR_CUDA_FP8_H
#define EMULATOR_CUDA_FP8_H

#include "cuda_runtime.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };

namespace emulator
{

/* Of the numbers 0 .. `last` without sign: exponent and mantissa as the format has them. */
inline double fp8_number(int bits, int mantissa_bits, int bias)
{
    int exponent = bits >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
    return exponent == 0 ? ldexp(mantissa, 1 - bias - mantissa_bits)
                         : ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

inline unsigned char fp8_nearest(float x, __nv_fp8_interpretation_t format)
{
    int mantissa_bits = format == __NV_E4M3 ? 3 : 2, bias = format == __NV_E4M3 ? 7 : 15;
    int low = 0, last = format == __NV_E4M3 ? 0x7e : 0x7b;
    unsigned char sign = signbit(x) ? 0x80 : 0;
    double size = fabs((double)x);
    if (isnan(x))
        return 0x7f;
    if (size >= fp8_number(last, mantissa_bits, bias))
        return (unsigned char)(sign | last);
    for (int high = last; high - low > 1;) {
        int middle = (low + high) / 2;
        (fp8_number(middle, mantissa_bits, bias) <= size ? low : high) = middle;
    }
    double below = size - fp8_number(low, mantissa_bits, bias), above = fp8_number(low + 1, mantissa_bits, bias) - size;
    bool up = above < below || (above == below && low % 2 == 1);
    return (unsigned char)(sign | (low + up));
}

} // namespace emulator

static inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t saturation,
                                                            __nv_fp8_interpretation_t format)
{
    if (saturation != __NV_SATFINITE)
        emulator::fail("conversions to 8 bits saturate here");
    return (__nv_fp8x2_storage_t)(emulator::fp8_nearest(x.x, format) | emulator::fp8_nearest(x.y, format) << 8);
}

#endif

/* Loops for the compiler to vectorise: several versions of a function by instruction set, exp and sums in single
 * precision. */
#ifndef KERNELS_CPU_VECTOR_H
#define KERNELS_CPU_VECTOR_H

#include <stdint.h>
#include <string.h>

/* The best version for the machine is chosen when the program is loaded. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define VECTOR_VERSIONS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTOR_VERSIONS
#endif
#define VECTOR_INLINE static inline __attribute__((always_inline))

enum { VECTOR_LANES = 16 }; /* partial sums of a reduction: the same in every version, so that results are */

/* exp(x) within 2 ulp for |x| < 87; 0 below, the largest value above. x = n ln 2 + r, |r| <= ln 2 / 2. */
VECTOR_INLINE float vector_exp(float x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    float bounded = x < -87.3f ? -87.3f : x > 88.3f ? 88.3f : x;
    float n = (bounded * 1.44269504f + shift) - shift;
    float r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return x < -87.3f ? 0.0f : p * power;
}

VECTOR_INLINE float vector_total(const float *lanes)
{
    float sum = 0;
    for (int l = 0; l < VECTOR_LANES; l++)
        sum += lanes[l];
    return sum;
}

#endif

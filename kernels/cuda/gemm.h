/* Products by cuBLASLt (gemm.c), or by plain loops on the emulator (tests/cuda/gemm_emulated.c). */
#ifndef KERNELS_CUDA_GEMM_H
#define KERNELS_CUDA_GEMM_H

#include <stddef.h>

/* Loads the library, which need not be there when the program starts. 0, or -1 with a sentence. Products of one call
 * that differ in shape run beside one another on queues of their own, between what comes before and after in `queue`
 * (the only one that cuda_gemm then takes). */
int cuda_gemm_start(void *queue, const char **ret_why);
void cuda_gemm_stop(void);
size_t cuda_gemm_bytes(void); /* device memory that it holds */

#endif

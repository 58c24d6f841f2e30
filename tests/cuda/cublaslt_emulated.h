/* In place of cuBLASLt (cublaslt_emulated.c). A caller's mistake ends the process with a sentence and status 1. */
#ifndef TESTS_CUDA_CUBLASLT_EMULATED_H
#define TESTS_CUDA_CUBLASLT_EMULATED_H

void *cublaslt_emulated_open(const char *file, int mode);                         /* for dlopen */
void *cublaslt_emulated_symbol(void *restrict handle, const char *restrict name); /* for dlsym */
/* From now on an algorithm is taken for the very shape that it was asked for only (else for smaller ones too). */
void cublaslt_emulated_be_strict(int strict);
int cublaslt_emulated_choices(void);                                              /* algorithms asked for until now */

#endif

/* The cases of check_kernels, by kind of function; each goes through its sizes, shifts and extremes. */
#ifndef TESTS_KERNELS_CASES_H
#define TESTS_KERNELS_CASES_H

void check_flat(void); /* add, floats, conversions */
void check_rows(void); /* copies, rows by index, column sums, embedding */
void check_rotary(void);
void check_activations(void);
void check_norms(void);
void check_losses(void);
void check_routers(void);
void check_optimizers(void); /* AdamW, sum of squares */
void check_products(void);
void check_attentions(void);
void check_fp8(void); /* casts to 8 bits, transposes, factors, products */

#endif

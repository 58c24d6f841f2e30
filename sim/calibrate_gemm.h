/* Measured GEMMs -> the GEMM form of an accelerator.
 *
 * t = t0 + 2 (m+a)(n+b)(k+c) / (peak e): e, t0 and the pads by a robust fit of log t, the pads held near 64, 64, 100
 * (which serve all accelerators measured so far), so that some forty shapes are enough. Where there are hundreds of different ones, whole
 * tiles and the tail of the last wave are fitted too (struct gemm_form), and kept where they lower the median error by a
 * tenth, as on A100: cuBLAS of Hopper and later dodges tails. Shapes timed in a loop of seconds instead of a burst (column
 * mode: sustained) give the derate under the power cap. */
#ifndef SIM_CALIBRATE_GEMM_H
#define SIM_CALIBRATE_GEMM_H

#include <stddef.h>

#include "cost/precision.h"
#include "cost/profile.h"
#include "sim/calibrate_kernels.h"

struct arena;
struct err;

/* Why a row is not fitted. */
enum gemm_fault { GEMM_SMALL, GEMM_FRACTION, GEMM_NO_SIZE, GEMM_NO_TIME, GEMM_FAULTS };

struct gemm_fit {
    struct gemm_form form;
    int n, left_out;          /* shapes fitted; rows that are not */
    int fault[GEMM_FAULTS];   /* those by why */
    double median, p90;       /* |predicted / measured - 1| */
    double sustained;         /* burst / looped time of long GEMMs; 0 = no such rows */
    int n_sustained;
};

/* "2 with a dimension under 256, 1 whose time_us is no positive number"; "" of none. Returns ret. */
const char *gemm_faults(const struct gemm_fit *fit, char *ret, size_t size);

/* CSV with m, n, k and time_us (time_med_us where there is one); rows of another dtype, gpu or mode are left out. */
int calibrate_gemm(const char *path, const struct accelerator *accelerator, enum rate rate, const struct kernel_choice *choice, struct arena *arena,
                   struct gemm_fit *ret, struct err *err);

#endif

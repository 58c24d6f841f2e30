/* Measured GEMMs -> the GEMM form of an accelerator.
 *
 * t = t0 + 2 (m+a)(n+b)(k+c) / (peak e): e, t0 and the pads by a robust fit of log t, the pads held near 64, 64, 100
 * (which serve all accelerators measured so far), so that some forty shapes are enough. Where there are hundreds of different ones, whole
 * tiles and the tail of the last wave are fitted too (struct gemm_form), and kept where they lower the median error by a
 * tenth, as on A100: cuBLAS of Hopper and later dodges tails. Shapes timed in a loop of seconds instead of a burst (column
 * mode: sustained) give the derate under the power cap. */
#ifndef SIM_CALIBRATE_GEMM_H
#define SIM_CALIBRATE_GEMM_H

#include "cost/precision.h"
#include "cost/profile.h"
#include "sim/calibrate_kernels.h"

struct arena;
struct err;

struct gemm_fit {
    struct gemm_form form;
    int n, left_out;          /* shapes fitted; rows with a dimension under 256, or no measurement */
    double median, p90;       /* |predicted / measured - 1| */
    double sustained;         /* burst / looped time of long GEMMs; 0 = no such rows */
    int n_sustained;
};

/* CSV with m, n, k and time_us (time_med_us where there is one); rows of another dtype, gpu or mode are left out. */
int calibrate_gemm(const char *path, const struct accelerator *accelerator, enum rate rate, const struct kernel_choice *choice, struct arena *arena,
                   struct gemm_fit *ret, struct err *err);

#endif

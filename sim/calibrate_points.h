/* plansim calibrate --gemm, --attention, --experts and --nccl-tests: measured kernels and collectives into a profile. */
#ifndef SIM_CALIBRATE_POINTS_H
#define SIM_CALIBRATE_POINTS_H

struct err;
struct profile;

struct points_arguments {
    const char *gemm, *attention, *experts, *nccl; /* files; NULL = not asked for */
    const char *accelerator, *dtype, *gpu, *op, *link; /* NULL = not stated */
    const char *out;                           /* profile to write; NULL = print alone */
    const char *source;
    int format;                                /* 0 table, 1 json, 2 csv */
};

/* Prints the answer; returns an enum exit_code. */
int calibrate_points(const struct points_arguments *arguments, const struct profile *profile, struct err *err);

#endif

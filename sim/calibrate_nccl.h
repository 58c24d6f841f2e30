/* Logs of nccl-tests (and rccl-tests) -> alpha-beta lines.
 *
 * Reads the printed tables of all versions (with or without root, redop and header, behind mpirun's prefixes), and three
 * JSON dialects: schema 3 (-J), RCCL's lines, the one keyed by size. A row is used when its own numbers agree
 * (algbw = size / time) and it moved something; others are counted by what is wrong with them. */
#ifndef SIM_CALIBRATE_NCCL_H
#define SIM_CALIBRATE_NCCL_H

#include "cost/profile.h"

struct arena;
struct err;

struct nccl_row {
    enum collective_op op;
    int ranks, nodes;  /* 0 = the log does not say */
    char redop[16];
    double size_bytes, time_s, bus_bytes_per_s; /* out of place */
};

struct nccl_log {
    int n, broken, empty; /* rows used; incomplete or contradictory; of size 0 or single rank */
    struct nccl_row *row; /* in the arena */
    int gpus_shared;      /* ranks that share a device: no link was measured */
};

/* op: when the log does not name it (a bare table), -1 = that is an error then. */
int nccl_log_load(const char *path, int op, struct arena *arena, struct nccl_log *ret, struct err *err);

/* t = min over lines of alpha + V / B, V = bus bytes; one series: rows of one op, redop and rank count. median, p90 of
 * |predicted / measured - 1|. Returns the number of lines, 0 when there are fewer than two sizes or the times hardly rise. */
struct nccl_fit {
    struct alpha_beta curve;
    int n;
    double median, p90;
};
enum { NCCL_SERIES_MAX = 2000 }; /* rows; none of more */
int nccl_fit_series(const struct nccl_row *rows, int n, struct arena *arena, struct nccl_fit *ret);

#endif

/* Collectives, and the lines of cost/profile.h through their times.
 *
 * Beyond the caches the rate falls with size, which the least of several lines cannot say: every line gets the size
 * from which on it holds. The cut with the least squared relative error is taken. */
#include <math.h>
#include <stdlib.h>

#include "cost/base/clock.h"
#include "exec/bench.h"
#include "exec/bench_internal.h"
#include "exec/comm.h"
#include "exec/device.h"
#include "exec/world.h"
#include "kernels/kernels.h"

/* floats: 1 KiB to 16 MiB; at least 8 MiB of buffers in turn */
enum { SIZES = 8, SMALLEST = 256, LARGEST = 4 << 20, TURNING = 2 << 20, SAMPLES_LEAST = 5, SAMPLES_MOST = 100 };

struct comm_call {
    const struct bench *bench;
    struct comm *comm;
    enum collective_op op;
    int64_t n; /* floats of the whole array */
    int64_t *counts;
    float *from, *to;
    void *square;
};

enum { COMPUTED = 256 }; /* a product of this size, 0.1 to 1 ms, between any two */

static void compute(const struct comm_call *c)
{
    struct device *device = c->bench->device;
    struct gemm gemm = {.transpose_b = true,
                        .m = 4 * COMPUTED,
                        .n = COMPUTED,
                        .k = COMPUTED,
                        .a = c->square,
                        .b = c->square,
                        .c = element_at(device->kernels->type, c->square, 4 * COMPUTED * COMPUTED),
                        .stride_a = COMPUTED,
                        .stride_b = COMPUTED,
                        .stride_c = COMPUTED,
                        .c_type = device->kernels->type};
    device->kernels->gemm(device->queue, 1, &gemm);
    device->wait(device);
}

/* There and back: two messages. */
static void ping_pong(const struct comm_call *c, const float *from, float *to)
{
    int rank = comm_rank(c->comm), other = rank ^ 1;
    if (other >= comm_size(c->comm))
        return;
    for (int way = 0; way < 2; way++) {
        struct comm_request r = rank % 2 == way ? comm_send(c->comm, other, ELEMENT_F32, c->n, from)
                                                : comm_receive(c->comm, other, ELEMENT_F32, c->n, to);
        comm_wait(&r);
    }
}

static void communicate(const struct comm_call *c, int turn)
{
    int64_t each = c->n / comm_size(c->comm), turns = TURNING / c->n, at = turns > 1 ? turn % turns * c->n : 0;
    float *from = c->from + at, *to = c->to + at;
    switch (c->op) {
    case COLLECTIVE_ALL_REDUCE:
        comm_all_reduce(c->comm, COMM_SUM, ELEMENT_F32, c->n, to);
        break;
    case COLLECTIVE_ALL_GATHER:
        comm_all_gather(c->comm, ELEMENT_F32, each, from, to);
        break;
    case COLLECTIVE_REDUCE_SCATTER:
        comm_reduce_scatter(c->comm, ELEMENT_F32, each, from, to);
        break;
    case COLLECTIVE_ALL_TO_ALL:
        comm_all_to_all(c->comm, ELEMENT_F32, c->counts, from, c->counts, to);
        break;
    default:
        ping_pong(c, from, to);
        break;
    }
    c->bench->device->wait(c->bench->device);
}

static double one(const struct comm_call *c, int turn)
{
    compute(c);
    double start_s = clock_s();
    communicate(c, turn);
    return clock_s() - start_s;
}

/* As many calls on all ranks; their mean over ranks: who comes first waits for the others. The longest calls are those
 * in which one of them had lost its core. */
static double seconds_of(struct comm_call *c)
{
    double samples[SAMPLES_MOST], first = one(c, 0);
    first = bench_slowest(c->bench, fmin(first, one(c, 1)));
    int n = (int)(c->bench->budget_s / fmax(first, 1e-6));
    n = n < SAMPLES_LEAST ? SAMPLES_LEAST : n > SAMPLES_MOST ? SAMPLES_MOST : n;
    for (int i = 0; i < n; i++)
        samples[i] = one(c, i);
    double mean = bench_trimmed_mean(samples, n, 0.1, 0.7);
    comm_all_reduce_doubles(c->bench->world->comm[WORLD_ALL], COMM_SUM, 1, &mean);
    mean /= c->bench->world->size;
    return c->op == COLLECTIVE_P2P ? 0.5 * mean : mean;
}

static double bus_bytes(enum collective_op op, int ranks, double bytes)
{
    double n = ranks, share = op == COLLECTIVE_P2P ? 1 : op == COLLECTIVE_ALL_REDUCE ? 2 * (n - 1) / n : (n - 1) / n;
    return bytes * share;
}

/* Least squares of relative errors over points first .. end - 1; adds to *error. */
static struct alpha_beta_line line_through(const double *v, const double *t, int first, int end, double *error)
{
    double w = 0, x = 0, xx = 0, y = 0, xy = 0;
    for (int i = first; i < end; i++) {
        double weight = 1 / (t[i] * t[i]);
        w += weight;
        x += weight * v[i];
        xx += weight * v[i] * v[i];
        y += weight * t[i];
        xy += weight * v[i] * t[i];
    }
    double det = w * xx - x * x, slope = det > 0 ? (w * xy - x * y) / det : 0, alpha = (y - slope * x) / w;
    if (alpha < 0) {
        alpha = 0;
        slope = xy / xx;
    }
    slope = fmax(slope, 1e-14);
    for (int i = first; i < end; i++) {
        double off = (alpha + slope * v[i]) / t[i] - 1;
        *error += off * off;
    }
    return (struct alpha_beta_line){.alpha_s = alpha, .bytes_per_s = 1 / slope};
}

/* Three lines of at least two points each; a line begins half-way, on a log scale, after the one before. */
static double fit_lines(const double *v, const double *t, struct alpha_beta *ret)
{
    double best = (double)INFINITY;
    for (int a = 2; a + 4 <= SIZES; a++)
        for (int b = a + 2; b + 2 <= SIZES; b++) {
            double error = 0;
            struct alpha_beta_line line[3] = {line_through(v, t, 0, a, &error), line_through(v, t, a, b, &error),
                                              line_through(v, t, b, SIZES, &error)};
            if (error >= best)
                continue;
            best = error;
            line[1].from_bytes = sqrt(v[a - 1] * v[a]);
            line[2].from_bytes = sqrt(v[b - 1] * v[b]);
            for (int i = 0; i < 3; i++)
                ret->line[i] = line[i];
        }
    ret->n_lines = 3;
    return sqrt(best / SIZES);
}

void bench_fit_collective(struct bench *bench, struct comm *comm, enum collective_op op, struct alpha_beta *ret,
                          double *ret_error)
{
    int ranks = comm_size(comm);
    int64_t square = 8 * COMPUTED * COMPUTED;
    struct comm_call c = {bench, comm, op, 0, NULL, bench_floats(bench->device, LARGEST),
                          bench_floats(bench->device, LARGEST), bench_elements(bench->device, square)};
    c.counts = calloc((size_t)ranks, sizeof *c.counts);
    if (!c.counts)
        abort();
    double t[SIZES], v[SIZES];
    int64_t size = SMALLEST;
    for (int i = 0; i < SIZES; i++, size *= 4) {
        c.n = size / ranks * ranks;
        for (int r = 0; r < ranks; r++)
            c.counts[r] = c.n / ranks;
        t[i] = seconds_of(&c);
        v[i] = bus_bytes(op, ranks, 4.0 * (double)c.n);
    }
    *ret = (struct alpha_beta){.ranks = op == COLLECTIVE_P2P ? 2 : ranks};
    *ret_error = fit_lines(v, t, ret);
    free(c.counts);
    device_free(bench->device, c.from, LARGEST);
    device_free(bench->device, c.to, LARGEST);
    device_free_elements(bench->device, c.square, square);
}

#include "exec/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cost/base/clock.h"
#include "cost/base/sample.h"
#include "exec/comm.h"
#include "exec/device.h"
#include "exec/trainer.h"

const char *const measure_kind_names[] = {"F", "B", "W", "BW", "F&BW", "wait", "optimizer", NULL};

enum { RECENT = 20 };

double measure_cpu_s(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static void clear_counters(const struct trainer *trainer)
{
    for (int g = 0; g < WORLD_GROUPS; g++)
        *comm_counters(trainer->executor.world->comm[g]) = (struct comm_counters){0};
}

void measure_begin(struct measurement *m, const struct trainer *trainer, int64_t steps)
{
    *m = (struct measurement){.ranks = trainer->executor.world->size, .max_steps = steps};
    m->step_time_s = arena_array(&m->arena, (size_t)steps, sizeof *m->step_time_s);
    timeline_init(&m->timeline, &trainer->program, &m->arena);
    clear_counters(trainer);
    m->cpu_start_s = measure_cpu_s();
    m->wall_start_s = clock_s();
}

static bool is_spike(const struct measurement *m, double loss)
{
    double mean = 0, squares = 0;
    if (m->losses < RECENT)
        return false;
    for (int i = 0; i < RECENT; i++)
        mean += m->recent[i] / RECENT;
    for (int i = 0; i < RECENT; i++)
        squares += (m->recent[i] - mean) * (m->recent[i] - mean) / RECENT;
    return loss > mean + 6 * sqrt(squares) && loss > 1.1 * mean;
}

static enum measure_kind kind_of(enum op_kind kind)
{
    switch (kind) {
    case OP_F:
        return MEASURE_F;
    case OP_B:
        return MEASURE_B;
    case OP_W:
        return MEASURE_W;
    case OP_BW:
        return MEASURE_BW;
    default:
        return MEASURE_F_BW;
    }
}

/* The first step opens connections, chooses algorithms, takes memory. */
static void forget_first(struct measurement *m, const struct trainer *t)
{
    memset(m->kind_s, 0, sizeof m->kind_s);
    memset(m->part_s, 0, sizeof m->part_s);
    clear_counters(t);
}

void measure_step(struct measurement *m, const struct trainer *t, const struct step_result *result)
{
    int rank = t->executor.world->pp;
    double busy_s = 0;
    for (int i = 0; i < t->program.n_ops[rank]; i++) {
        const struct op *op = &t->program.ops[rank][i];
        if (!op_is_compute(op))
            continue;
        m->kind_s[kind_of(op->kind)] += t->end_s[i] - t->start_s[i];
        busy_s += t->end_s[i] - t->start_s[i];
    }
    m->kind_s[MEASURE_WAIT] += result->backward_s - busy_s;
    m->kind_s[MEASURE_OPTIMIZER] += result->optimizer_s;
    for (int part = 0; part < STOPWATCH_PARTS; part++)
        m->part_s[part] += result->part_s[part];
    if (isfinite(result->loss)) {
        m->loss_spikes += is_spike(m, result->loss);
        m->recent[m->losses++ % RECENT] = result->loss;
    }
    m->step_time_s[m->steps++] = result->step_time_s;
    if (m->steps == 1 && m->max_steps > 1)
        forget_first(m, t);
}

/* Every rank's ops of the last step, put together over the pipeline. */
static void gather_timeline(struct measurement *m, const struct trainer *t)
{
    const struct program *program = &t->program;
    int own = t->executor.world->pp;
    for (int r = 0; r < program->pp; r++) {
        int n = program->n_ops[r];
        double *times = calloc((size_t)(2 * n + 1), sizeof *times);
        if (!times)
            abort();
        for (int i = 0; i < n && r == own; i++) {
            times[i] = t->start_s[i];
            times[n + i] = t->end_s[i];
        }
        comm_all_reduce_doubles(t->executor.world->comm[WORLD_PP], COMM_SUM, 2 * n, times);
        for (int i = 0; i < n; i++) {
            m->timeline.start_ps[r][i] = (int64_t)(times[i] * 1e12);
            m->timeline.end_ps[r][i] = (int64_t)(times[n + i] * 1e12);
        }
        free(times);
    }
    timeline_summarize(&m->timeline, program, NULL);
}

static void mean_over_ranks(struct measurement *m, const struct trainer *t)
{
    struct comm *all = t->executor.world->comm[WORLD_ALL];
    double steps = m->steps > 1 ? (double)m->steps - 1 : 1, scale = 1 / (m->ranks * steps), sums[4 * WORLD_GROUPS];
    for (int g = 0; g < WORLD_GROUPS; g++) {
        const struct comm_counters *c = comm_counters(t->executor.world->comm[g]);
        double values[4] = {c->seconds, c->waited_s, (double)c->sent_bytes, (double)c->received_bytes};
        memcpy(sums + 4 * g, values, sizeof values);
    }
    comm_all_reduce_doubles(all, COMM_SUM, MEASURE_KINDS, m->kind_s);
    comm_all_reduce_doubles(all, COMM_SUM, STOPWATCH_PARTS, m->part_s);
    comm_all_reduce_doubles(all, COMM_SUM, 4 * WORLD_GROUPS, sums);
    for (int k = 0; k < MEASURE_KINDS; k++)
        m->kind_s[k] *= scale;
    for (int part = 0; part < STOPWATCH_PARTS; part++)
        m->part_s[part] *= scale;
    for (int g = 0; g < WORLD_GROUPS; g++) {
        const double *sum = sums + 4 * g;
        m->unmatched_bytes += fabs(sum[2] - sum[3]);
        m->group[g] = (struct measure_group){sum[0] * scale, sum[1] * scale, sum[2] * scale, sum[3] * scale};
    }
}

void measure_end(struct measurement *m, const struct trainer *t)
{
    const struct world *world = t->executor.world;
    struct comm *all = world->comm[WORLD_ALL];
    double idle = 1 - (measure_cpu_s() - m->cpu_start_s) / (clock_s() - m->wall_start_s);
    comm_all_reduce_doubles(all, COMM_MAX, 1, &idle);
    m->cpu_share = idle > 0 ? 1 - idle : 1;
    mean_over_ranks(m, t);
    double peak = (double)t->device.bytes_peak, highest = peak, rank = -1;
    comm_all_reduce_doubles(all, COMM_MAX, 1, &highest);
    if (peak >= highest)
        rank = world->rank;
    comm_all_reduce_doubles(all, COMM_MAX, 1, &rank);
    m->peak_bytes = (int64_t)highest;
    m->peak_rank = (int)rank;
    int64_t skip = m->steps > 1;
    m->median_step_time_s = sample_median(m->step_time_s + skip, (int)(m->steps - skip));
    gather_timeline(m, t);
    m->bubble_fraction = timeline_bubble_fraction(&m->timeline);
}

void measure_release(struct measurement *m)
{
    arena_release(&m->arena);
}

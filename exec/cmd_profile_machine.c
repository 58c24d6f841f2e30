/* planexec profile: measures this machine into a profile that plansim prices plans with. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cost/base/clock.h"
#include "cost/base/err.h"
#include "cost/base/file.h"
#include "cost/base/opt.h"
#include "cost/profile_store.h"
#include "exec/bench.h"
#include "exec/bench_internal.h"
#include "exec/comm.h"
#include "exec/commands_exec.h"
#include "exec/device_cuda.h"
#include "exec/fp8.h"
#include "exec/measure.h"
#include "exec/shapes.h"
#include "kernels/kernels.h"

static const char *const devices[] = {"cpu", "cuda", NULL};

struct arguments {
    const char *out, *cluster, *name, *model;
    struct opt_list plans;
    int64_t threads;
    double budget_ms, sustained_s;
    bool share_gpu, small, help;
    int device;
};

static int parse(struct arguments *a, int argc, char **argv, const struct world *world, struct err *err)
{
    const struct opt table[] = {
        {"out", OPT_STRING, &a->out, 0, 0, NULL, "FILE", "SQLite profile to make or to add to"},
        {"cluster", OPT_STRING, &a->cluster, 0, 0, NULL, "FILE",
         "also write an hw.json of these ranks on this machine"},
        {"name", OPT_STRING, &a->name, 0, 0, NULL, "NAME",
         "of the accelerator; its link is NAME-mpi (default planexec-cpu, planexec-cuda)"},
        {"model", OPT_STRING, &a->model, 0, 0, NULL, "FILE", "config.json: with --plan, its shapes are measured too"},
        {"plan", OPT_LIST, &a->plans, 0, 0, NULL, "FILE",
         "plan.json for that model, of any number of ranks; may be repeated"},
        {"device", OPT_CHOICE, &a->device, 0, 0, devices, "D", "cpu (default), cuda"},
        {"share-gpu", OPT_FLAG, &a->share_gpu, 0, 0, NULL, NULL,
         "cuda: ranks may share a GPU, and talk by way of the host"},
        {"threads", OPT_INT, &a->threads, 1, 1024, NULL, "N", "per rank (default 1)"},
        {"budget-ms", OPT_DOUBLE, &a->budget_ms, 1, 1e5, NULL, "X", "time spent on one kernel shape (default 20)"},
        {"sustained-s", OPT_DOUBLE, &a->sustained_s, 0, 600, NULL, "X",
         "how long a product runs without a pause for the sustained rate; 0 = not measured, as fast as in bursts "
         "(default 3 on cuda, 0 on cpu, where all kernels are measured under lasting load)"},
        {"small", OPT_FLAG, &a->small, 0, 0, NULL, NULL, "shapes that take no time: to try this out"},
        {NULL, OPT_FLAG, NULL, 0, 0, NULL, NULL, NULL},
    };
    int n = 0, result = opt_parse(table, argc, argv, NULL, 0, &n, &a->help, err);
    if (a->help && world->rank == 0)
        opt_print_help(
            stdout, "mpirun -np N planexec profile --out FILE [OPTION]...",
            "Measures kernels with N ranks computing at once, and the collectives among them, and writes\n"
            "the fitted forms as accelerator, link and the stack 'planexec'. Plans with \"stack\": \"planexec\"\n"
            "and \"precision\": \"fp32\" are then priced for this machine: best, when as many ranks measure as\n"
            "will run, and when the plans are known (--model, --plan).",
            table, "mpirun -np 2 planexec profile --out my.db --cluster my-hw.json --model tiny.json --plan tp2.json");
    if (result == 0 && !a->help && !a->out)
        return err_add(err, "--out is needed");
    if (result == 0 && !a->help && (a->plans.n > 0) != (a->model != NULL))
        return err_add(err, "--model and --plan belong together");
    return result;
}

/* --- rows ------------------------------------------------------------------------- */

struct sink {
    struct profile_rows rows;
    char date[16], source[PROFILE_SOURCE_MAX];
    const char *const *rates; /* that products are written for */
    int failed;
    bool tells; /* one rank does */
    struct err *err;
};

/* Of plans whose kernels are tiny beside what a GPU can do a share may be less than any that the cost model takes. The
 * nearest that it does is better than no profile at all after minutes. */
static double allowed(const struct sink *sink, enum profile_section section, const char *key, const char *field, double value)
{
    const struct profile_field *known = profile_field_find(section, field);
    double nearest = known ? fmax(known->min, fmin(known->max, value)) : value;
    if (!isfinite(value) || nearest == value)
        return value;
    if (sink->tells)
        fprintf(stderr, "planexec profile: warning: %s%s%s %s is %g; %g is written, the nearest that the cost model takes\n",
                profile_section_names[section], key[0] ? " " : "", key, field, value, nearest);
    return nearest;
}

static void put_from(struct sink *sink, const char *source, enum profile_section section, const char *name,
                     const char *key, const char *field, double value, const char *text, const char *unit)
{
    struct profile_row row = {.section = section,
                              .name = name,
                              .key = key,
                              .field = field,
                              .value = text ? value : allowed(sink, section, key, field, value),
                              .text = text,
                              .unit = unit,
                              .low = (double)__builtin_nan(""),
                              .high = (double)__builtin_nan(""),
                              .provenance = PROVENANCE_MEASURED,
                              .date = sink->date,
                              .source = source};
    sink->failed |= profile_row_check(&row, "planexec profile", sink->err) < 0 ||
                    profile_rows_add(&sink->rows, &row, sink->err) < 0;
}

static void put(struct sink *sink, enum profile_section section, const char *name, const char *key, const char *field,
                double value, const char *text, const char *unit)
{
    put_from(sink, sink->source, section, name, key, field, value, text, unit);
}

/* What is known without measuring. */
struct facts {
    double memory_bytes, latency_s;
    int processors;
};

static const double cpu_latency_s = 1e-6; /* of a call of a kernel */

static struct facts facts_of(struct bench *bench)
{
    int ranks = bench->world->size;
    struct device_cuda_facts gpu;
    if (!bench->gpu)
        return (struct facts){(double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / ranks, cpu_latency_s, 1};
    device_cuda_facts(bench->device, &gpu);
    return (struct facts){(double)gpu.memory_bytes, bench_latency_s(bench), gpu.processors};
}

static void put_accelerator(struct sink *sink, const char *name, const char *link, double peak, double bytes_per_s,
                            int ranks, const struct facts *facts)
{
    enum profile_section s = SECTION_ACCELERATOR;
    put(sink, s, name, "", "peak_fp32_flop_per_s", peak, NULL, "FLOP/s");
    put(sink, s, name, "", "peak_16bit_flop_per_s", peak, NULL, "FLOP/s");
    put(sink, s, name, "", "hbm_bytes_per_s", bytes_per_s, NULL, "B/s");
    put(sink, s, name, "", "memory_bytes", facts->memory_bytes, NULL, "B");
    put(sink, s, name, "", "sm_count", facts->processors, NULL, "1");
    put(sink, s, name, "", "default_per_node", ranks, NULL, "1");
    put(sink, s, name, "", "mem_eff", 1, NULL, "1");
    put(sink, s, name, "", "kernel_latency_s", facts->latency_s, NULL, "s");
    put(sink, s, name, "", "context_bytes", 0, NULL, "B");
    put(sink, s, name, "", "gemm_workspace_bytes", 0, NULL, "B");
    put(sink, s, name, "", "default_link", (double)__builtin_nan(""), link, "name");
}

/* Where nothing was measured apart, the forms hold whatever the load made of the kernels. */
static void put_sustained(struct sink *sink, const char *name, const struct bench_sustained *s)
{
    char source[PROFILE_SOURCE_MAX];
    snprintf(source, sizeof source, "%.250s; ", sink->source);
    size_t used = strlen(source);
    if (s->ran_s > 0)
        snprintf(source + used, sizeof source - used,
                 "product of %d^3: %.4g GFLOP/s in bursts, %.4g in the last third of %.1f s without a pause", s->size,
                 s->flop / s->burst_s * 1e-9, s->flop / s->sustained_s * 1e-9, s->ran_s);
    else
        snprintf(source + used, sizeof source - used, "not measured apart: one rate");
    put_from(sink, source, SECTION_ACCELERATOR, name, "", "sustained", s->ratio, NULL, "1");
}

static const char *const rate_keys[] = {"fp32", "16bit", NULL}; /* there is one arithmetic, */
static const char *const eight_keys[] = {"fp8", NULL};          /* but for linears in 8 bits */

static void put_gemm(struct sink *sink, const char *name, const struct gemm_form *g)
{
    for (int i = 0; sink->rates[i]; i++) {
        put(sink, SECTION_GEMM, name, sink->rates[i], "eff", g->eff, NULL, "1");
        put(sink, SECTION_GEMM, name, sink->rates[i], "t0_s", g->t0_s, NULL, "s");
        put(sink, SECTION_GEMM, name, sink->rates[i], "pad_m", g->pad_m, NULL, "1");
        put(sink, SECTION_GEMM, name, sink->rates[i], "pad_n", g->pad_n, NULL, "1");
        put(sink, SECTION_GEMM, name, sink->rates[i], "pad_k", g->pad_k, NULL, "1");
        put(sink, SECTION_GEMM, name, sink->rates[i], "wgrad", g->wgrad, NULL, "1");
    }
}

static void put_experts(struct sink *sink, const char *name, const struct expert_form *e)
{
    for (int i = 0; sink->rates[i]; i++) {
        put(sink, SECTION_EXPERT, name, sink->rates[i], "eff", e->eff, NULL, "1");
        put(sink, SECTION_EXPERT, name, sink->rates[i], "pad_m", e->pad_m, NULL, "1");
        put(sink, SECTION_EXPERT, name, sink->rates[i], "t0_s", e->t0_s, NULL, "s");
        put(sink, SECTION_EXPERT, name, sink->rates[i], "act_mem_eff", 1, NULL, "1");
        put(sink, SECTION_EXPERT, name, sink->rates[i], "wgrad", e->wgrad, NULL, "1");
    }
}

/* The same shape may come twice: as one layer's forward and as another's input gradient. */
static void put_point(struct sink *sink, const char *name, const char *kernel, int m, int n, int k, double seconds)
{
    char key[PROFILE_KEY_MAX];
    for (int i = 0; sink->rates[i]; i++) {
        snprintf(key, sizeof key, "%s/%s/%dx%dx%d", kernel, sink->rates[i], m, n, k);
        for (size_t r = 0; r < sink->rows.n; r++)
            if (sink->rows.row[r].section == SECTION_KERNEL_POINT && strcmp(sink->rows.row[r].key, key) == 0)
                return;
        put(sink, SECTION_KERNEL_POINT, name, key, "time_s", seconds, NULL, "s");
    }
}

static void put_attention(struct sink *sink, const char *name, const struct attention_form *t)
{
    char key[16];
    snprintf(key, sizeof key, "%d", t->head_dim);
    put(sink, SECTION_ATTENTION, name, key, "eff", t->eff, NULL, "1");
    put(sink, SECTION_ATTENTION, name, key, "s0", t->s0, NULL, "1");
    put(sink, SECTION_ATTENTION, name, key, "mem_eff", t->mem_eff, NULL, "1");
    put(sink, SECTION_ATTENTION, name, key, "backward", t->backward, NULL, "1");
}

static void put_link(struct sink *sink, const char *link)
{
    put(sink, SECTION_LINK, link, "", "link_class", (double)__builtin_nan(""), "pcie", "name");
    put(sink, SECTION_LINK, link, "", "bytes_per_s", 10e9, NULL, "B/s");
    put(sink, SECTION_LINK, link, "", "efficiency", 0.5, NULL, "1");
}

static void put_curve(struct sink *sink, const char *link, const char *name, enum collective_op op,
                      const struct alpha_beta *curve)
{
    char key[PROFILE_KEY_MAX];
    for (int i = 0; i < curve->n_lines; i++) {
        snprintf(key, sizeof key, "%s/%s/%d/node/%d", name, collective_names[op], curve->ranks, i + 1);
        put(sink, SECTION_ALPHA_BETA, link, key, "alpha_s", curve->line[i].alpha_s, NULL, "s");
        put(sink, SECTION_ALPHA_BETA, link, key, "bytes_per_s", curve->line[i].bytes_per_s, NULL, "B/s");
        put(sink, SECTION_ALPHA_BETA, link, key, "from_bytes", curve->line[i].from_bytes, NULL, "B");
    }
}

/* The executor overlaps nothing: overlap_slowdown 1 adds what is hidden elsewhere. */
static void put_stack(struct sink *sink, double pointwise, double permute)
{
    static const struct {
        const char *field, *unit;
        double value;
    } rows[] = {
        {"host_launch_s", "s", 0},        {"attention_speed", "1", 1},    {"gemm_speed", "1", 1},
        {"collective_speed", "1", 1},     {"overlap_slowdown", "1", 1},   {"main_grad_bytes", "1", 4},
        {"fragmentation", "1", 0},        {"communicator_bytes", "B", 0}, {"fused_cross_entropy", "1", 1},
        {"cross_entropy_copies", "1", 1}, {"norm_passes", "1", 1},        {"workspace_bytes", "B", 0},
        {"counted_buffers", "1", 1},
    };
    put(sink, SECTION_STACK, "planexec", "", "pointwise", pointwise, NULL, "1");
    put(sink, SECTION_STACK, "planexec", "", "permute", permute, NULL, "1");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        put(sink, SECTION_STACK, "planexec", "", rows[i].field, rows[i].value, NULL, rows[i].unit);
}

/* --- measuring ------------------------------------------------------------------------ */

enum { ROUNDS = 3 }; /* of all shapes: a machine's slow moments meet none of them alone */

static void say(const struct bench *bench, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(const struct bench *bench, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (bench->world->rank == 0)
        vfprintf(stderr, format, list);
    va_end(list);
}

static double median_of_three(const double *x)
{
    double low = fmin(x[0], x[1]), high = fmax(x[0], x[1]);
    return fmax(low, fmin(high, x[2]));
}

/* Of experts, whose rows are padded, in 8 bits. */
static int rows_of(const struct bench *bench, const struct shape_linear *s)
{
    return bench->eight && s->expert ? (s->m + FP8_MULTIPLE - 1) / FP8_MULTIPLE * FP8_MULTIPLE : s->m;
}

/* What is not of whole pieces has no products in 8 bits. */
static bool is_measured(const struct bench *bench, const struct shape_linear *s)
{
    return !bench->eight || (rows_of(bench, s) | s->n | s->k) % FP8_MULTIPLE == 0;
}

/* The plans' own products: exact points, and the form of their experts. */
static void measure_products(struct bench *bench, struct sink *sink, const char *name, const struct shapes *shapes,
                             double peak, const struct gemm_form *gemm, struct expert_form *experts)
{
    static double seconds[SHAPES_LINEAR_MAX][PHASES][ROUNDS];
    double flop = 0, forward = 0, wgrad = 0;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < shapes->n_linears; i++)
            for (int phase = 0; phase < PHASES && is_measured(bench, &shapes->linear[i]); phase++)
                seconds[i][phase][round] = bench_product_s(bench, (enum phase)phase, rows_of(bench, &shapes->linear[i]),
                                                           shapes->linear[i].n, shapes->linear[i].k);
    for (int i = 0; i < shapes->n_linears; i++) {
        const struct shape_linear *s = &shapes->linear[i];
        double t[PHASES];
        if (!is_measured(bench, s))
            continue;
        for (int phase = 0; phase < PHASES; phase++)
            t[phase] = median_of_three(seconds[i][phase]);
        if (s->expert) {
            flop += 2 * (s->m + experts->pad_m) * (s->n + gemm->pad_n) * (s->k + gemm->pad_k) * s->products;
            forward += 0.5 * (t[PHASE_F] + t[PHASE_B]) * s->products;
            wgrad += t[PHASE_W] * s->products;
            continue;
        }
        bool square = s->n == s->k;
        put_point(sink, name, "gemm", s->m, s->n, s->k, square ? 0.5 * (t[PHASE_F] + t[PHASE_B]) : t[PHASE_F]);
        put_point(sink, name, "gemm", s->m, s->k, s->n, t[PHASE_B]);
        put_point(sink, name, "wgrad", s->n, s->k, s->m, t[PHASE_W]);
    }
    if (forward > 0)
        *experts = (struct expert_form){.eff = flop / forward / peak, .pad_m = experts->pad_m, .wgrad = wgrad / forward};
    say(bench, "products of the plans: %d shapes\n", shapes->n_linears);
}

/* Of one head width: the plans' shapes, else a grid of lengths. */
static void measure_attention(struct bench *bench, struct sink *sink, const char *name, const struct shapes *shapes,
                              int head_dim, double peak)
{
    static const int all_lengths[BENCH_SIZES][5] = {
        {16, 24, 32, 48, 64}, {64, 128, 256, 512, 1024}, {512, 1024, 2048, 4096, 8192}};
    static const int all_heads[BENCH_SIZES] = {2, 4, 32};
    const int *lengths = all_lengths[bench->size], heads = all_heads[bench->size];
    struct bench_attention shape[SHAPES_ATTENTION_MAX];
    struct attention_form form;
    double error;
    int n = 0;
    for (int i = 0; i < shapes->n_attentions; i++)
        if (shapes->attention[i].head_dim == head_dim)
            shape[n++] = shapes->attention[i];
    for (int i = 0, grid = n == 0; grid && i < 5; i++)
        shape[n++] = (struct bench_attention){1, heads, heads, head_dim, lengths[i]};
    bench_fit_attention(bench, n, shape, peak, &form, &error);
    put_attention(sink, name, &form);
    say(bench, "attention, head width %d: %.2f of that, form within %.1f %%\n", head_dim, form.eff, 100 * error);
}

static void measure_attentions(struct bench *bench, struct sink *sink, const char *name, const struct shapes *shapes,
                               double peak)
{
    int widths[SHAPES_ATTENTION_MAX + 3] = {128, 64, 32}, n = bench->gpu ? 2 : 3;
    for (int i = 0; i < shapes->n_attentions; i++) {
        int at = 0;
        while (at < n && widths[at] != shapes->attention[i].head_dim)
            at++;
        if (at == n)
            widths[n++] = shapes->attention[i].head_dim;
    }
    for (int i = 0; i < n; i++)
        measure_attention(bench, sink, name, shapes, widths[i], peak);
}

enum { PARAMETERS_MOST = 1 << 24, GPU_PARAMETERS_MOST = 1 << 26 }; /* more than caches hold is enough */

/* Means over the plans. */
/* permute: beyond what pointwise kernels take per byte. */
static void measure_memory(struct bench *bench, const struct shapes *shapes, double latency_s, double *ret_bytes_per_s,
                           double *ret_pointwise, double *ret_permute)
{
    static const struct bench_pointwise small = {.hidden = 128,
                                                 .ffn = 352,
                                                 .heads = 4,
                                                 .kv_heads = 4,
                                                 .head_dim = 32,
                                                 .tokens = 64,
                                                 .vocab = 256,
                                                 .layers = 4,
                                                 .parameters = 1 << 18,
                                                 .activations = 64,
                                                 .routed = 64,
                                                 .choices = 2};
    static const struct bench_pointwise usual = {.hidden = 256,
                                                 .ffn = 704,
                                                 .heads = 8,
                                                 .kv_heads = 4,
                                                 .head_dim = 32,
                                                 .tokens = 1024,
                                                 .vocab = 2048,
                                                 .layers = 8,
                                                 .parameters = 1 << 23,
                                                 .activations = 1024,
                                                 .routed = 1024,
                                                 .choices = 2};
    static const struct bench_pointwise usual_gpu = {.hidden = 4096,
                                                     .ffn = 14336,
                                                     .heads = 32,
                                                     .kv_heads = 8,
                                                     .head_dim = 128,
                                                     .tokens = 4096,
                                                     .vocab = 32768,
                                                     .layers = 32,
                                                     .parameters = 1 << 26,
                                                     .activations = 4096,
                                                     .routed = 4096,
                                                     .choices = 2};
    const struct bench_pointwise *const all_usual[BENCH_SIZES] = {&small, &usual, &usual_gpu};
    static const int64_t most_parameters[BENCH_SIZES] = {1 << 18, PARAMETERS_MOST, GPU_PARAMETERS_MOST};
    const struct bench_pointwise *plan = shapes->n_plans > 0 ? shapes->plan : all_usual[bench->size];
    int64_t most = most_parameters[bench->size];
    int n = shapes->n_plans > 0 ? shapes->n_plans : 1, routed = 0;
    double seconds_per_byte = 0, permute = 0;
    *ret_pointwise = 0;
    for (int i = 0; i < n; i++)
        seconds_per_byte += 1 / bench_optimizer_bytes_per_s(bench, plan[i].parameters < most ? plan[i].parameters : most) / n;
    *ret_bytes_per_s = 1 / seconds_per_byte;
    for (int i = 0; i < n; i++)
        *ret_pointwise += bench_pointwise(bench, &plan[i], *ret_bytes_per_s, latency_s) / n;
    for (int i = 0; i < n; i++)
        if (plan[i].routed > 0) {
            permute += bench_permute(bench, &plan[i], *ret_bytes_per_s);
            routed++;
        }
    *ret_permute = routed > 0 ? permute / routed / *ret_pointwise : 1;
    say(bench, "memory-bound kernels: %.2f GB/s (optimizer), layers take %.2f of that time per byte\n",
        *ret_bytes_per_s * 1e-9, *ret_pointwise);
}

struct progress {
    const struct bench *bench;
    double flop, limit_s;
};

static void tell(void *context, double ran_s, double call_s)
{
    const struct progress *p = context;
    say(p->bench, "sustained: %.1f of %.1f s, %.1f GFLOP/s\n", ran_s, p->limit_s, p->flop / call_s * 1e-9);
}

/* After all kernels: it heats the device. */
static void measure_sustained(struct bench *bench, struct sink *sink, const char *name, double limit_s)
{
    struct bench_sustained s = {.ratio = 1};
    struct progress progress = {bench, bench_sustained_flop(bench), limit_s};
    if (limit_s > 0)
        bench_measure_sustained(bench, limit_s, &(struct bench_progress){tell, &progress}, &s);
    if (limit_s > 0)
        say(bench, "sustained: %.3f of the rate of bursts, %.1f GFLOP/s\n", s.ratio, s.flop / s.burst_s * 1e-9);
    put_sustained(sink, name, &s);
}

/* What the cost model makes of one number: half of it for every element of a linear's input, and it for every one of its
 * output's gradient, bytes at the rate of memory. Here both are cast once, both ways. 100 is the most that it takes. */
static double cast_bytes(struct bench *bench, double bytes_per_s)
{
    int columns = 1024, rows = (int)(bench->pool / 8 / columns);
    return fmin(bench_cast_s(bench, rows, columns) * bytes_per_s / ((double)rows * columns) * 2 / 1.5, 100);
}

static bool has_8_bits(const struct bench *bench)
{
    struct device_cuda_facts gpu = {.major = 0};
    if (bench->gpu)
        device_cuda_facts(bench->device, &gpu);
    return 10 * gpu.major + gpu.minor >= FP8_CAPABILITY;
}

static void measure_8_bits(struct bench *bench, struct sink *sink, const char *name, const struct shapes *shapes,
                           double bytes_per_s)
{
    struct gemm_form gemm;
    double peak, error;
    if (!has_8_bits(bench))
        return;
    bench_begin_8_bits(bench);
    bench->eight = true;
    sink->rates = eight_keys;
    bench_fit_gemm(bench, &gemm, &peak, &error);
    double cast = cast_bytes(bench, bytes_per_s);
    say(bench, "products of 8 bits: %.1f GFLOP/s at best, form within %.1f %%; casts %.2f bytes an element\n",
        peak * 1e-9, 100 * error, cast);
    struct expert_form experts = {.eff = gemm.eff, .pad_m = gemm.pad_m, .t0_s = gemm.t0_s, .wgrad = gemm.wgrad};
    put_gemm(sink, name, &gemm);
    if (shapes->n_linears > 0)
        measure_products(bench, sink, name, shapes, peak, &gemm, &experts);
    put_experts(sink, name, &experts);
    put(sink, SECTION_ACCELERATOR, name, "", "peak_fp8_flop_per_s", peak, NULL, "FLOP/s");
    put(sink, SECTION_ACCELERATOR, name, "", "fp8_cast", cast, NULL, "1");
    sink->rates = rate_keys;
    bench->eight = false;
    bench_end_8_bits(bench);
}

static void measure_kernels(struct bench *bench, struct sink *sink, const char *name, const char *link,
                            const struct shapes *shapes, double sustained_s)
{
    struct gemm_form gemm;
    double peak, error, bytes_per_s, pointwise, permute;
    bench_fit_gemm(bench, &gemm, &peak, &error);
    say(bench, "products: %.1f GFLOP/s at best, form within %.1f %% (median)\n", peak * 1e-9, 100 * error);
    struct expert_form experts = {.eff = gemm.eff, .pad_m = gemm.pad_m, .t0_s = gemm.t0_s, .wgrad = gemm.wgrad};
    put_gemm(sink, name, &gemm);
    if (shapes->n_linears > 0)
        measure_products(bench, sink, name, shapes, peak, &gemm, &experts);
    put_experts(sink, name, &experts);
    measure_attentions(bench, sink, name, shapes, peak);
    struct facts facts = facts_of(bench);
    measure_memory(bench, shapes, facts.latency_s, &bytes_per_s, &pointwise, &permute);
    put_accelerator(sink, name, link, peak, bytes_per_s, bench->world->size, &facts);
    put_stack(sink, pointwise, permute);
    measure_8_bits(bench, sink, name, shapes, bytes_per_s);
    measure_sustained(bench, sink, name, sustained_s);
}

/* Groups of `ranks` neighbours, all at once. */
static void measure_group(struct bench *bench, struct sink *sink, const char *name, const char *link, int ranks,
                          bool share)
{
    struct plan plan;
    struct model model = {.kv_heads = ranks};
    plan_defaults(&plan);
    plan.tp = ranks;
    plan.dp = bench->world->size / ranks;
    world_release(bench->world);
    world_build(bench->world, &plan, &model);
    if (bench->gpu)
        job_attach_cuda(bench->world, bench->device, share, true);
    for (int op = 0; op < COLLECTIVE_OPS; op++) {
        struct alpha_beta curve;
        double error;
        if (op == COLLECTIVE_P2P && ranks > 2)
            continue;
        bench_fit_collective(bench, bench->world->comm[WORLD_TP], (enum collective_op)op, &curve, &error);
        put_curve(sink, link, name, (enum collective_op)op, &curve);
        say(bench, "%s of %d: %.1f us, %.2f GB/s, lines within %.1f %%\n", collective_names[op], curve.ranks,
            curve.line[0].alpha_s * 1e6, curve.line[curve.n_lines - 1].bytes_per_s * 1e-9, 100 * error);
    }
}

static void measure_collectives(struct bench *bench, struct sink *sink, const char *name, const char *link, bool share)
{
    int measured = 0, size = bench->world->size;
    put_link(sink, link);
    for (int ranks = 2; ranks <= size; ranks++)
        if (size % ranks == 0 && (ranks == size || measured < ALPHA_BETA_RANKS_MAX - 1)) {
            measure_group(bench, sink, name, link, ranks, share);
            measured++;
        }
}

static int write_cluster(const struct arguments *a, const char *link, int ranks, struct err *err)
{
    char text[1024];
    if (!a->cluster)
        return 0;
    snprintf(
        text, sizeof text,
        "{\"name\": \"%s\", \"accelerator\": \"%s\", \"nodes\": 1, \"accelerators_per_node\": %d,\n"
        " \"intra_node\": {\"link\": \"%s\"}, \"inter_node\": {\"nics_per_node\": 1, \"nic_gbps\": 10, \"rdma\": false}}\n",
        a->name, a->name, ranks, link);
    return file_write_atomic(a->cluster, text, strlen(text), err);
}

/* Is there a place for a new file of that name, or a file that may be written? */
static bool is_writable(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[4096] = ".";
    if (access(path, F_OK) == 0)
        return access(path, W_OK) == 0;
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    return access(folder, W_OK) == 0;
}

/* Rank 0's word for all, before minutes are spent on what cannot be kept. */
static int check_outputs(const struct arguments *a, const struct world *world, struct err *err)
{
    struct profile_rows there = {0};
    double bad = 0;
    if (world->rank == 0) {
        bad = access(a->out, F_OK) == 0 && profile_store_load(a->out, &there, err) < 0;
        if (!bad && !is_writable(a->out))
            bad = err_add(err, "profile '%s' cannot be written: %s", a->out, strerror(errno)) < 0;
        if (a->cluster && !is_writable(a->cluster))
            bad = err_add(err, "file '%s' cannot be written: %s", a->cluster, strerror(errno)) < 0;
        profile_rows_release(&there);
    }
    comm_all_reduce_doubles(world->comm[WORLD_ALL], COMM_MAX, 1, &bad);
    return bad > 0 ? -1 : 0;
}

static int load_shapes(const struct arguments *a, struct shapes *ret, struct err *err)
{
    struct model model;
    struct err warn = {0};
    if (!a->model)
        return 0;
    if (model_load(a->model, &model, &warn, err) < 0)
        return -1;
    for (int i = 0; i < a->plans.n; i++) {
        struct plan plan;
        if (plan_load(a->plans.value[i], &plan, &warn, err) < 0 || plan_check(&plan, &model, NULL, &warn, err) < 0 ||
            arch_check(&model, &plan, err) < 0 || shapes_add(ret, &model, &plan, err) < 0)
            return -1;
    }
    return 0;
}

/* Source of all rows. */
static void describe(const struct bench *bench, int64_t threads, const char *host, char ret[PROFILE_SOURCE_MAX])
{
    struct device_cuda_facts gpu;
    if (bench->gpu) {
        device_cuda_facts(bench->device, &gpu);
        snprintf(ret, PROFILE_SOURCE_MAX, "planexec profile on %.200s: %s, %d ranks at once", host, gpu.name,
                 bench->world->size);
        return;
    }
    snprintf(ret, PROFILE_SOURCE_MAX, "planexec profile on %.200s: OpenBLAS, %lld threads a rank, %d MPI ranks at once",
             host, (long long)threads, bench->world->size);
}

static int measure_all(const struct arguments *a, struct world *world, const struct shapes *shapes, struct err *err)
{
    char link[128], host[256] = "?";
    time_t now = time(NULL);
    struct device device;
    struct bench bench = {.world = world,
                          .device = &device,
                          .budget_s = a->budget_ms * 1e-3,
                          .gpu = a->device == JOB_CUDA,
                          .size = a->small ? BENCH_SMALL : a->device == JOB_CUDA ? BENCH_LARGE : BENCH_USUAL,
                          .own_time = a->device != JOB_CUDA && a->threads == 1};
    struct sink sink = {.rates = rate_keys, .tells = world->rank == 0, .err = err};
    struct plan plan;
    struct model model = {.kv_heads = 1};
    gethostname(host, sizeof host - 1);
    strftime(sink.date, sizeof sink.date, "%Y-%m-%d", gmtime(&now));
    snprintf(link, sizeof link, "%.40s-mpi", a->name);
    kernels_cpu_threads((int)a->threads);
    plan_defaults(&plan);
    plan.dp = world->size;
    world_build(world, &plan, &model);
    if (check_outputs(a, world, err) < 0)
        return EXIT_MACHINE;
    device_cpu_init(&device, &kernels_cpu);
    if (bench.gpu && job_open_cuda(&device, world, "profile", a->share_gpu) != EXIT_ANSWERED)
        return EXIT_MACHINE;
    describe(&bench, a->threads, host, sink.source);
    double cpu_s = measure_cpu_s(), start_s = clock_s();
    bench_begin(&bench, shapes_largest(shapes));
    measure_kernels(&bench, &sink, a->name, link, shapes, a->sustained_s);
    bench_end(&bench);
    measure_collectives(&bench, &sink, a->name, link, a->share_gpu);
    double idle = bench_slowest(&bench, 1 - (measure_cpu_s() - cpu_s) / (clock_s() - start_s));
    if (idle > 0.03 && !bench.gpu)
        say(&bench, "a rank had its core for %.0f %% of the time only: better measure again\n", 100 * (1 - idle));
    int code = sink.failed ? EXIT_MACHINE : EXIT_ANSWERED;
    if (code == EXIT_ANSWERED && world->rank == 0 &&
        (profile_rows_sort(&sink.rows, NULL, NULL) < 0 || profile_store_write(a->out, &sink.rows, sink.date, err) < 0 ||
         write_cluster(a, link, world->size, err) < 0))
        code = EXIT_MACHINE;
    profile_rows_release(&sink.rows);
    if (bench.gpu) {
        world_release(world);
        device_cuda_close(&device);
    }
    return code;
}

int cmd_profile(struct world *world, int argc, char **argv)
{
    struct arguments a = {.threads = 1, .budget_ms = 20, .sustained_s = -1};
    static struct shapes shapes;
    struct err err = {0};
    int code = EXIT_ANSWERED;
    int parsed = parse(&a, argc, argv, world, &err);
    if (a.sustained_s < 0)
        a.sustained_s = a.device == JOB_CUDA ? 3 : 0;
    a.name = a.name ? a.name : a.device == JOB_CUDA ? "planexec-cuda" : "planexec-cpu";
    if (parsed < 0)
        code = EXIT_USAGE;
    else if (!a.help && load_shapes(&a, &shapes, &err) < 0)
        code = EXIT_INPUT;
    else if (!a.help)
        code = measure_all(&a, world, &shapes, &err);
    exec_print(world, "profile", "", &err);
    return code;
}

/* planexec profile: measures this machine into a profile that plansim prices plans with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cost/base/err.h"
#include "cost/base/file.h"
#include "cost/base/opt.h"
#include "cost/profile_store.h"
#include "exec/bench.h"
#include "exec/commands_exec.h"
#include "kernels/kernels.h"

static const char *const devices[] = {"cpu", "cuda", NULL};

struct arguments {
    const char *out, *cluster, *name;
    int64_t threads;
    double budget_ms;
    bool help;
    int device;
};

static int parse(struct arguments *a, int argc, char **argv, const struct world *world, struct err *err)
{
    const struct opt table[] = {
        {"out", OPT_STRING, &a->out, 0, 0, NULL, "FILE", "SQLite profile to make or to add to"},
        {"cluster", OPT_STRING, &a->cluster, 0, 0, NULL, "FILE",
         "also write an hw.json of these ranks on this machine"},
        {"name", OPT_STRING, &a->name, 0, 0, NULL, "NAME",
         "of the accelerator; its link is NAME-mpi (default planexec-cpu)"},
        {"device", OPT_CHOICE, &a->device, 0, 0, devices, "D", "cpu (default)"},
        {"threads", OPT_INT, &a->threads, 1, 1024, NULL, "N", "per rank (default 1)"},
        {"budget-ms", OPT_DOUBLE, &a->budget_ms, 1, 1e5, NULL, "X", "time spent on one kernel shape (default 20)"},
        {NULL, OPT_FLAG, NULL, 0, 0, NULL, NULL, NULL},
    };
    int n = 0, result = opt_parse(table, argc, argv, NULL, 0, &n, &a->help, err);
    if (a->help && world->rank == 0)
        opt_print_help(
            stdout, "mpirun -np N planexec profile --out FILE [OPTION]...",
            "Measures kernels with N ranks computing at once, and the collectives among them, and writes\n"
            "the fitted forms as accelerator, link and the stack 'planexec'. Plans with \"stack\": \"planexec\"\n"
            "and \"precision\": \"fp32\" are then priced for this machine.",
            table, "mpirun -np 2 planexec profile --out my.db --cluster my-hw.json");
    if (result == 0 && !a->help && !a->out)
        return err_add(err, "--out is needed");
    return result;
}

/* --- rows ------------------------------------------------------------------------- */

struct sink {
    struct profile_rows rows;
    char date[16], source[PROFILE_SOURCE_MAX];
    int failed;
    struct err *err;
};

static void put(struct sink *sink, enum profile_section section, const char *name, const char *key, const char *field,
                double value, const char *text, const char *unit)
{
    struct profile_row row = {.section = section,
                              .name = name,
                              .key = key,
                              .field = field,
                              .value = value,
                              .text = text,
                              .unit = unit,
                              .low = (double)__builtin_nan(""),
                              .high = (double)__builtin_nan(""),
                              .provenance = PROVENANCE_MEASURED,
                              .date = sink->date,
                              .source = sink->source};
    sink->failed |= profile_row_check(&row, "planexec profile", sink->err) < 0 ||
                    profile_rows_add(&sink->rows, &row, sink->err) < 0;
}

static void put_accelerator(struct sink *sink, const char *name, const char *link, double peak, double bytes_per_s,
                            int ranks)
{
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / ranks;
    enum profile_section s = SECTION_ACCELERATOR;
    put(sink, s, name, "", "peak_fp32_flop_per_s", peak, NULL, "FLOP/s");
    put(sink, s, name, "", "peak_16bit_flop_per_s", peak, NULL, "FLOP/s");
    put(sink, s, name, "", "hbm_bytes_per_s", bytes_per_s, NULL, "B/s");
    put(sink, s, name, "", "memory_bytes", memory, NULL, "B");
    put(sink, s, name, "", "sm_count", 1, NULL, "1");
    put(sink, s, name, "", "default_per_node", ranks, NULL, "1");
    put(sink, s, name, "", "sustained", 1, NULL, "1");
    put(sink, s, name, "", "mem_eff", 1, NULL, "1");
    put(sink, s, name, "", "kernel_latency_s", 1e-6, NULL, "s");
    put(sink, s, name, "", "context_bytes", 0, NULL, "B");
    put(sink, s, name, "", "gemm_workspace_bytes", 0, NULL, "B");
    put(sink, s, name, "", "default_link", (double)__builtin_nan(""), link, "name");
}

static void put_gemm(struct sink *sink, const char *name, const struct gemm_form *g)
{
    static const char *const rates[] = {"fp32", "16bit"};
    for (int i = 0; i < 2; i++) {
        put(sink, SECTION_GEMM, name, rates[i], "eff", g->eff, NULL, "1");
        put(sink, SECTION_GEMM, name, rates[i], "t0_s", g->t0_s, NULL, "s");
        put(sink, SECTION_GEMM, name, rates[i], "pad_m", g->pad_m, NULL, "1");
        put(sink, SECTION_GEMM, name, rates[i], "pad_n", g->pad_n, NULL, "1");
        put(sink, SECTION_GEMM, name, rates[i], "pad_k", g->pad_k, NULL, "1");
        put(sink, SECTION_GEMM, name, rates[i], "wgrad", g->wgrad, NULL, "1");
        put(sink, SECTION_EXPERT, name, rates[i], "eff", g->eff, NULL, "1");
        put(sink, SECTION_EXPERT, name, rates[i], "pad_m", g->pad_m, NULL, "1");
        put(sink, SECTION_EXPERT, name, rates[i], "t0_s", g->t0_s, NULL, "s");
        put(sink, SECTION_EXPERT, name, rates[i], "act_mem_eff", 1, NULL, "1");
        put(sink, SECTION_EXPERT, name, rates[i], "wgrad", g->wgrad, NULL, "1");
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
    }
}

/* The executor overlaps nothing: overlap_slowdown 1 adds what is hidden elsewhere. */
static void put_stack(struct sink *sink, double pointwise)
{
    static const struct {
        const char *field, *unit;
        double value;
    } rows[] = {
        {"host_launch_s", "s", 0},        {"attention_speed", "1", 1},    {"gemm_speed", "1", 1},
        {"collective_speed", "1", 1},     {"overlap_slowdown", "1", 1},   {"main_grad_bytes", "1", 4},
        {"fragmentation", "1", 0},        {"communicator_bytes", "B", 0}, {"fused_cross_entropy", "1", 1},
        {"cross_entropy_copies", "1", 1}, {"norm_passes", "1", 1},        {"permute", "1", 1},
        {"workspace_bytes", "B", 0},      {"counted_buffers", "1", 1},
    };
    put(sink, SECTION_STACK, "planexec", "", "pointwise", pointwise, NULL, "1");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        put(sink, SECTION_STACK, "planexec", "", rows[i].field, rows[i].value, NULL, rows[i].unit);
}

/* --- measuring ------------------------------------------------------------------------ */

static void measure_kernels(struct bench *bench, struct sink *sink, const char *name, const char *link, bool speak)
{
    static const int head_dims[] = {32, 64, 128};
    static const struct bench_shape shape = {.hidden = 256,
                                             .ffn = 704,
                                             .heads = 8,
                                             .kv_heads = 4,
                                             .head_dim = 32,
                                             .tokens = 1024,
                                             .batch = 4,
                                             .vocab = 2048};
    struct gemm_form gemm;
    double peak, error;
    bench_fit_gemm(bench, &gemm, &peak, &error);
    if (speak)
        fprintf(stderr, "products: %.1f GFLOP/s at best, form within %.1f %% (median)\n", peak * 1e-9, 100 * error);
    put_gemm(sink, name, &gemm);
    for (int i = 0; i < 3; i++) {
        struct attention_form attention;
        bench_fit_attention(bench, head_dims[i], peak, &attention, &error);
        if (speak)
            fprintf(stderr, "attention, head width %d: %.2f of that, form within %.1f %%\n", head_dims[i],
                    attention.eff, 100 * error);
        put_attention(sink, name, &attention);
    }
    double rate = bench_adamw_bytes_per_s(bench), pointwise = bench_pointwise(bench, &shape, rate);
    if (speak)
        fprintf(stderr, "memory-bound kernels: %.2f GB/s (optimizer), layers take %.2f of that time per byte\n",
                rate * 1e-9, pointwise);
    put_accelerator(sink, name, link, peak, rate, bench->world->size);
    put_stack(sink, pointwise);
}

static void measure_collectives(struct bench *bench, struct sink *sink, const char *name, const char *link, bool speak)
{
    put_link(sink, link);
    for (int op = 0; op < COLLECTIVE_OPS && bench->world->size > 1; op++) {
        struct alpha_beta curve;
        bench_fit_collective(bench, (enum collective_op)op, &curve);
        put_curve(sink, link, name, (enum collective_op)op, &curve);
        if (speak)
            fprintf(stderr, "%s of %d: %.1f us, %.2f GB/s\n", collective_names[op], curve.ranks,
                    curve.line[0].alpha_s * 1e6, curve.line[2].bytes_per_s * 1e-9);
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

static int profile(const struct arguments *a, struct world *world, struct err *err)
{
    char link[128], host[256] = "?";
    time_t now = time(NULL);
    struct device device;
    struct bench bench = {world, &device, a->budget_ms * 1e-3};
    struct sink sink = {.err = err};
    struct plan plan;
    struct model model = {.kv_heads = 1};
    bool first = world->rank == 0;
    gethostname(host, sizeof host - 1);
    strftime(sink.date, sizeof sink.date, "%Y-%m-%d", gmtime(&now));
    snprintf(sink.source, sizeof sink.source,
             "planexec profile on %.200s: OpenBLAS, %lld threads a rank, %d MPI ranks at once", host,
             (long long)a->threads, world->size);
    snprintf(link, sizeof link, "%.40s-mpi", a->name);
    kernels_cpu_threads((int)a->threads);
    device_cpu_init(&device, &kernels_cpu);
    plan_defaults(&plan);
    plan.dp = world->size;
    world_build(world, &plan, &model);
    measure_kernels(&bench, &sink, a->name, link, first);
    measure_collectives(&bench, &sink, a->name, link, first);
    int code = sink.failed ? EXIT_MACHINE : EXIT_ANSWERED;
    if (code == EXIT_ANSWERED && first &&
        (profile_rows_sort(&sink.rows, NULL, NULL) < 0 || profile_store_write(a->out, &sink.rows, sink.date, err) < 0 ||
         write_cluster(a, link, world->size, err) < 0))
        code = EXIT_MACHINE;
    profile_rows_release(&sink.rows);
    return code;
}

int cmd_profile(struct world *world, int argc, char **argv)
{
    struct arguments a = {.name = "planexec-cpu", .threads = 1, .budget_ms = 20};
    struct err err = {0};
    int code = EXIT_ANSWERED;
    if (parse(&a, argc, argv, world, &err) < 0)
        code = EXIT_USAGE;
    else if (!a.help && a.device != 0)
        code = err_add(&err, "this planexec was built without device '%s'", devices[a.device]) < 0 ? EXIT_MACHINE : 0;
    else if (!a.help)
        code = profile(&a, world, &err);
    exec_print(world, "profile", "", &err);
    return code;
}

/* The report of tests/gpu/run: what its parts printed, as one JSON document with a verdict.
 * Usage: gpu_report FOLDER REPORT   makes the report of a folder of run's and prints the verdict
 *        gpu_report REPORT          prints the verdict of a report
 * Exit 0 when everything holds, 1 when something does not or was not measured, 3 when a file is broken.
 *
 * The folder: facts (KEY=VALUE: gpu, driver, commit), parts (NAME|EXIT CODE|SECONDS|LIMIT), gemm (bench_gemm), attention
 * (check_attention --bench), bench (bench_kernels), names (of models), NAME.run (planexec run --format json); comparer,
 * attention_check, plans, profile (text, kept as lines). What is missing was not measured. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/file.h"
#include "cost/base/json.h"
#include "sim/writers/table.h"

enum { LINE_MAX_BYTES = 2048, TARGETS_MAX = 128, EXIT_FILE = 3 };

/* What the issue asks for. */
static const double gemm_share = 0.95, forward_share = 0.55, backward_share = 0.45, memory_share = 0.80,
                    step_mfu = 0.45, step_error = 0.07, memory_error = 0.02;

/* Dense bf16: datasheet, and what products reach on one that was measured (cuBLAS, 8192^3); memory: of a copy. */
static const struct gpu {
    const char *name;
    double peak_flop_per_s, reached_flop_per_s, bytes_per_s;
} gpus[] = {{"H200", 989e12, 790e12, 4.3e12}, {"H100", 989e12, 0, 0}, {"B200", 2250e12, 0, 0}, {"A100", 312e12, 0, 0}};

struct target {
    char name[128];
    const char *unit;
    bool most;               /* at most, else at least */
    double measured, target; /* measured NaN = was not */
};

struct report {
    const char *folder;
    struct json *root;
    struct gpu gpu;
    struct target target[TARGETS_MAX];
    int n;
    double dense_flop_per_s; /* the fastest product, ours or cuBLAS's */
    int failed_parts;
};

/* --- reading ------------------------------------------------------------------------------- */

static FILE *opened(const struct report *r, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", r->folder, name);
    return fopen(path, "r");
}

/* Without its end, and with tabs as blanks. */
static bool next_line(FILE *file, char line[LINE_MAX_BYTES])
{
    if (!file || !fgets(line, LINE_MAX_BYTES, file))
        return false;
    line[strcspn(line, "\r\n")] = '\0';
    return true;
}

static void close_file(FILE *file)
{
    if (file)
        fclose(file);
}

static void put_lines(struct report *r, const char *key, const char *name)
{
    char line[LINE_MAX_BYTES];
    struct json *list = json_put_array(r->root, key);
    FILE *file = opened(r, name);
    while (next_line(file, line))
        json_push_string(list, line);
    close_file(file);
}

/* --- targets ----------------------------------------------------------------------------------- */

static bool holds(const struct target *t)
{
    return t->most ? t->measured <= t->target : t->measured >= t->target; /* never for NaN */
}

static void add_target(struct report *r, const char *name, const char *unit, double measured, bool most, double target)
{
    if (r->n == TARGETS_MAX)
        return;
    struct target *t = &r->target[r->n++];
    *t = (struct target){.unit = unit, .most = most, .measured = measured, .target = target};
    snprintf(t->name, sizeof t->name, "%s", name);
}

static void put_number(struct json *object, const char *key, double value)
{
    if (isfinite(value))
        json_put_number(object, key, value);
    else
        json_put_null(object, key);
}

static int put_targets(struct report *r)
{
    struct json *list = json_put_array(r->root, "targets");
    int held = 0;
    for (int i = 0; i < r->n; i++) {
        const struct target *t = &r->target[i];
        struct json *item = json_new_object();
        json_put_string(item, "name", t->name);
        json_put_string(item, "unit", t->unit);
        put_number(item, "measured", t->measured);
        json_put_string(item, "relation", t->most ? "at most" : "at least");
        json_put_number(item, "target", t->target);
        json_put_bool(item, "holds", holds(t));
        json_push(list, item);
        held += holds(t);
    }
    json_put_int(r->root, "targets_held", held);
    json_put_int(r->root, "targets_missed", r->n - held);
    return r->n - held;
}

/* --- parts ---------------------------------------------------------------------------------------- */

static void read_facts(struct report *r)
{
    char line[LINE_MAX_BYTES];
    FILE *file = opened(r, "facts");
    while (next_line(file, line)) {
        char *equals = strchr(line, '=');
        if (!equals)
            continue;
        *equals = '\0';
        json_put_string(r->root, line, equals + 1);
        for (size_t i = 0; strcmp(line, "gpu") == 0 && i < sizeof gpus / sizeof *gpus; i++)
            if (strstr(equals + 1, gpus[i].name))
                r->gpu = gpus[i];
    }
    close_file(file);
}

static void read_parts(struct report *r)
{
    char line[LINE_MAX_BYTES], name[128];
    struct json *list = json_put_array(r->root, "parts");
    FILE *file = opened(r, "parts");
    int code;
    double seconds, limit_s, sum_s = 0;
    while (next_line(file, line)) {
        if (sscanf(line, "%127[^|]|%d|%lf|%lf", name, &code, &seconds, &limit_s) != 4)
            continue;
        struct json *part = json_new_object();
        json_put_string(part, "name", name);
        json_put_bool(part, "ok", code == 0);
        json_put_int(part, "exit_code", code);
        json_put_number(part, "seconds", seconds);
        json_put_number(part, "limit_s", limit_s);
        json_push(list, part);
        sum_s += seconds;
        r->failed_parts += code != 0;
    }
    close_file(file);
    json_put_int(r->root, "failed_parts", r->failed_parts);
    json_put_number(r->root, "seconds", sum_s);
}

static void read_gemm(struct report *r)
{
    char line[LINE_MAX_BYTES], phase[32], name[128];
    struct json *list = json_put_array(r->root, "gemm");
    FILE *file = opened(r, "gemm");
    int m, n, k, rows = 0;
    double seconds, ours, cublas;
    while (next_line(file, line)) {
        if (sscanf(line, "%31s %d %d %d %lf %lf %lf", phase, &m, &n, &k, &seconds, &ours, &cublas) != 7)
            continue;
        struct json *item = json_new_object();
        json_put_string(item, "phase", phase);
        json_put_int(item, "m", m);
        json_put_int(item, "n", n);
        json_put_int(item, "k", k);
        json_put_number(item, "seconds", seconds);
        json_put_number(item, "tflop_per_s", ours);
        put_number(item, "cublas_tflop_per_s", cublas > 0 ? cublas : (double)NAN);
        json_push(list, item);
        r->dense_flop_per_s = fmax(r->dense_flop_per_s, 1e12 * fmax(ours, cublas));
        snprintf(name, sizeof name, "gemm %s %dx%dx%d", phase, m, n, k);
        add_target(r, name, "of cuBLAS", cublas > 0 ? ours / cublas : (double)NAN, false, gemm_share);
        rows++;
    }
    close_file(file);
    if (rows == 0)
        add_target(r, "gemm", "of cuBLAS", (double)NAN, false, gemm_share);
    if (r->gpu.reached_flop_per_s > 0)
        add_target(r, "fastest product", "of this GPU's known rate",
                   r->dense_flop_per_s > 0 ? r->dense_flop_per_s / r->gpu.reached_flop_per_s : (double)NAN, false,
                   gemm_share);
}

static void read_attention(struct report *r)
{
    char line[LINE_MAX_BYTES], kind[32];
    struct json *list = json_put_array(r->root, "attention");
    FILE *file = opened(r, "attention");
    int head_dim, heads, queries, longest = 4096;
    double forward_s, printed, backward_s, best[2] = {0, 0}, dense = r->dense_flop_per_s * 1e-12;
    while (next_line(file, line)) {
        if (sscanf(line, "%31s head_dim %d, %d heads, %d queries: forward %lf s %lf TFLOP/s, backward %lf s %lf", kind,
                   &head_dim, &heads, &queries, &forward_s, &printed, &backward_s, &printed) != 8)
            continue;
        double flop = 2.0 * heads * queries * (queries + 1.0) * head_dim; /* causal; backward 5/2 of it */
        double forward = flop / forward_s * 1e-12, backward = 2.5 * flop / backward_s * 1e-12;
        struct json *item = json_new_object();
        json_put_string(item, "kernels", kind);
        json_put_int(item, "head_dim", head_dim);
        json_put_int(item, "heads", heads);
        json_put_int(item, "queries", queries);
        json_put_number(item, "forward_tflop_per_s", forward);
        json_put_number(item, "backward_tflop_per_s", backward);
        json_push(list, item);
        best[0] = head_dim == 128 ? fmax(best[0], forward) : best[0];
        best[1] = head_dim == 128 ? fmax(best[1], backward) : best[1];
        longest = queries;
    }
    close_file(file);
    for (int way = 0; way < 2; way++) {
        char name[128];
        snprintf(name, sizeof name, "attention %s, %d queries, head width 128", way ? "backward" : "forward", longest);
        add_target(r, name, "of the fastest product", best[way] > 0 && dense > 0 ? best[way] / dense : (double)NAN,
                   false, way ? backward_share : forward_share);
    }
}

/* Those that have a target, and how many of them a whole list has. */
static bool has_target(const char *kernel)
{
    static const char *const kernels[] = {
        "rms_norm", "layer_norm",      "add_rms_norm", "rms_norm_backward", "layer_norm_backward",
        "swiglu",   "swiglu_backward", "adamw"};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (strcmp(kernel, kernels[i]) == 0)
            return true;
    return false;
}

static void read_bench(struct report *r)
{
    char line[LINE_MAX_BYTES], kernel[64];
    struct json *list = json_put_array(r->root, "kernels");
    FILE *file = opened(r, "bench");
    double bytes, seconds, rate, share;
    int rows = 0;
    while (next_line(file, line)) {
        if (sscanf(line, "%63s %lf %lf %lf %lf", kernel, &bytes, &seconds, &rate, &share) != 5)
            continue;
        struct json *item = json_new_object();
        json_put_string(item, "name", kernel);
        json_put_number(item, "gb_per_s", rate);
        json_put_number(item, "share_of_copy", share);
        json_push(list, item);
        if (has_target(kernel)) {
            add_target(r, kernel, "of a copy's bytes/s", share, false, memory_share);
            rows++;
        }
        if (strcmp(kernel, "copy") == 0 && r->gpu.bytes_per_s > 0)
            add_target(r, "copy", "of this GPU's known rate", rate * 1e9 / r->gpu.bytes_per_s, false, gemm_share);
    }
    close_file(file);
    if (rows == 0)
        add_target(r, "memory-bound kernels", "of a copy's bytes/s", (double)NAN, false, memory_share);
}

/* --- runs ---------------------------------------------------------------------------------------------- */

static double number_of(const struct json *object, const char *key)
{
    const struct json *node = object ? json_get(object, key) : NULL;
    return node && json_type(node) == JSON_NUMBER ? json_double(node) : (double)NAN;
}

static void copy_kinds(struct json *to, const struct json *run)
{
    static const char *const keys[] = {"measured_s", "predicted_s", "error"};
    const struct json *kinds = json_get(run, "op_kinds");
    struct json *copies = json_put_object(to, "op_kinds");
    for (const struct json *kind = kinds ? json_first(kinds) : NULL; kind; kind = json_next(kind)) {
        struct json *copy = json_put_object(copies, json_key(kind));
        for (int i = 0; i < 3; i++)
            put_number(copy, keys[i], number_of(kind, keys[i]));
        json_put_bool(copy, "inside", json_get(kind, "inside") && json_true(json_get(kind, "inside")));
    }
}

static void add_run_targets(struct report *r, const char *name, const struct json *run)
{
    char what[128];
    double step = number_of(run, "error"),
           memory = number_of(run, "predicted_peak_memory_bytes") / number_of(run, "peak_memory_bytes") - 1;
    double peak = r->gpu.peak_flop_per_s > 0 ? r->gpu.peak_flop_per_s : r->dense_flop_per_s;
    snprintf(what, sizeof what, "%s: step predicted", name);
    add_target(r, what, "error", fabs(step), true, step_error);
    snprintf(what, sizeof what, "%s: memory predicted", name);
    add_target(r, what, "error", fabs(memory), true, memory_error);
    if (strncmp(name, "llama-1b", 8) == 0)
        add_target(r, "llama-1b: MFU",
                   r->gpu.peak_flop_per_s > 0 ? "of the datasheet's rate" : "of the fastest product",
                   peak > 0 ? number_of(run, "model_tflops_per_gpu") * 1e12 / peak : (double)NAN, false, step_mfu);
}

static void put_run(struct report *r, struct json *list, const char *name, const struct json *run)
{
    static const char *const keys[] = {"median_step_time_s", "predicted_step_time_s", "error",
                                       "peak_memory_bytes",  "reserved_memory_bytes", "predicted_peak_memory_bytes",
                                       "bubble_fraction",    "model_tflops_per_gpu"};
    struct json *item = json_new_object();
    json_put_string(item, "name", name);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        put_number(item, keys[i], number_of(run, keys[i]));
    const struct json *steps = json_get(run, "steps");
    int n = steps ? json_length(steps) : 0;
    put_number(item, "last_loss", n > 0 ? number_of(json_item(steps, n - 1), "loss") : (double)NAN);
    copy_kinds(item, run);
    json_push(list, item);
    add_run_targets(r, name, run);
}

static void read_runs(struct report *r)
{
    char name[LINE_MAX_BYTES], path[4096];
    struct json *list = json_put_array(r->root, "runs"), *run = NULL;
    FILE *file = opened(r, "names");
    while (next_line(file, name)) {
        struct err err = {0};
        if ((size_t)snprintf(path, sizeof path, "%s/%s.run", r->folder, name) >= sizeof path)
            continue;
        if (json_load(path, &run, &err) == 0) {
            put_run(r, list, name, run);
            json_free(run);
        } else {
            add_run_targets(r, name, NULL);
        }
    }
    close_file(file);
}

/* --- verdict ---------------------------------------------------------------------------------------------- */

static const char *text_of(const struct json *object, const char *key)
{
    const struct json *node = json_get(object, key);
    return node && json_type(node) == JSON_STRING ? json_text(node) : "?";
}

static void print_number(struct table *table, double value)
{
    if (isfinite(value))
        table_cell(table, "%.4f", value);
    else
        table_cell(table, "not measured");
}

static int print_verdict(const struct json *root)
{
    struct table *table = table_new("  ");
    const struct json *targets = json_get(root, "targets"), *parts = json_get(root, "parts");
    int missed = 0, failed = 0;
    table_column(table, "target", TABLE_LEFT);
    table_column(table, "measured", TABLE_RIGHT);
    table_column(table, "", TABLE_LEFT);
    table_column(table, "wanted", TABLE_RIGHT);
    table_column(table, "", TABLE_LEFT);
    table_column(table, "", TABLE_LEFT);
    for (const struct json *t = targets ? json_first(targets) : NULL; t; t = json_next(t)) {
        bool held = json_get(t, "holds") && json_true(json_get(t, "holds"));
        table_cell(table, "%s", text_of(t, "name"));
        print_number(table, number_of(t, "measured"));
        table_cell(table, "%s", text_of(t, "relation"));
        print_number(table, number_of(t, "target"));
        table_cell(table, "%s", text_of(t, "unit"));
        table_cell(table, "%s", held ? "holds" : "MISSED");
        missed += !held;
    }
    table_print(table, stdout);
    table_free(table);
    for (const struct json *p = parts ? json_first(parts) : NULL; p; p = json_next(p))
        if (!json_get(p, "ok") || !json_true(json_get(p, "ok"))) {
            printf("failed: %s (exit %.0f after %.0f s of %.0f)\n", text_of(p, "name"), number_of(p, "exit_code"),
                   number_of(p, "seconds"), number_of(p, "limit_s"));
            failed++;
        }
    printf("%d targets missed, %d parts failed, %.0f s\n", missed, failed, number_of(root, "seconds"));
    return missed > 0 || failed > 0 || !targets || !parts;
}

static int make(const char *folder, const char *path)
{
    struct report r = {.folder = folder, .root = json_new_object()};
    struct err err = {0};
    read_facts(&r);
    read_parts(&r);
    read_gemm(&r);
    read_attention(&r);
    read_bench(&r);
    read_runs(&r);
    put_targets(&r);
    put_lines(&r, "comparer", "comparer");
    put_lines(&r, "attention_check", "attention_check");
    put_lines(&r, "plans", "plans");
    put_lines(&r, "profile", "profile");
    char *text = json_print(r.root);
    int result = file_write_atomic(path, text, strlen(text), &err);
    if (result < 0)
        fprintf(stderr, "gpu_report: %s\n", err.text);
    free(text);
    json_free(r.root);
    return result;
}

int main(int argc, char **argv)
{
    struct json *root = NULL;
    struct err err = {0};
    if (argc != 2 && argc != 3) {
        fputs("usage: gpu_report [FOLDER] REPORT\n", stderr);
        return 2;
    }
    if (argc == 3 && make(argv[1], argv[2]) < 0)
        return EXIT_FILE;
    if (json_load(argv[argc - 1], &root, &err) < 0) {
        fprintf(stderr, "gpu_report: %s\n", err.text);
        return EXIT_FILE;
    }
    int code = print_verdict(root);
    json_free(root);
    return code;
}

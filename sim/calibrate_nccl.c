#include "sim/calibrate_nccl.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "cost/base/file.h"
#include "cost/base/json.h"
#include "sim/validate_stats.h"

enum { ROWS_MAX = 100000, DEVICES_MAX = 4096 };

struct reader {
    struct nccl_log *log;
    int op, ranks, nodes, n_devices, jobs; /* jobs: times that rank 0 named its device */
    bool crashed, unparsed;                /* unparsed: text that begins as JSON and is none */
    char failure[120];
    struct { char host[64], bus[32]; } device[DEVICES_MAX];
};

/* ---- names of operations ---- */

static int op_in(const char *text)
{
    static const struct { const char *word; enum collective_op op; } words[] = {
        {"all_reduce", COLLECTIVE_ALL_REDUCE}, {"allreduce", COLLECTIVE_ALL_REDUCE}, {"all_gather", COLLECTIVE_ALL_GATHER},
        {"allgather", COLLECTIVE_ALL_GATHER}, {"reduce_scatter", COLLECTIVE_REDUCE_SCATTER}, {"reducescatter", COLLECTIVE_REDUCE_SCATTER},
        {"alltoall", COLLECTIVE_ALL_TO_ALL}, {"all_to_all", COLLECTIVE_ALL_TO_ALL}, {"sendrecv", COLLECTIVE_P2P}, {"send_recv", COLLECTIVE_P2P}};
    char lower[200];
    size_t n = 0;
    for (; text[n] && n + 1 < sizeof lower; n++)
        lower[n] = (char)tolower((unsigned char)text[n]);
    lower[n] = '\0';
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(lower, words[i].word))
            return (int)words[i].op;
    return -1;
}

/* ---- rows ---- */

/* algbw is printed with two decimals: it must be size / time within that, or 3 %. */
static bool agrees(double size, double time_us, double algbw)
{
    double expected = size / time_us * 1e-3;
    return fabs(expected - algbw) <= fmax(0.0051, 0.03 * expected);
}

static void add_row(struct reader *r, const char *redop, double size, double time_us, double algbw, double busbw)
{
    struct nccl_log *log = r->log;
    if (!(size > 0) || r->ranks == 1) {
        log->empty++;
    } else if (!(time_us > 0) || !agrees(size, time_us, algbw) || r->op < 0 || log->n == ROWS_MAX) {
        log->broken++;
    } else {
        struct nccl_row *row = &log->row[log->n++];
        *row = (struct nccl_row){.op = (enum collective_op)r->op, .ranks = r->ranks, .nodes = r->nodes, .size_bytes = size, .time_s = time_us * 1e-6,
                                 .bus_bytes_per_s = busbw * 1e9};
        if (r->ranks > 1)
            row->bus_bytes_per_s = size * collective_bus_factor(row->op, r->ranks) / row->time_s;
        snprintf(row->redop, sizeof row->redop, "%s", redop);
    }
}

/* "size count type redop [root] time algbw busbw wrong ...": the columns after the words are numbers. */
static void read_table_row(struct reader *r, const char *line)
{
    char type[32], redop[16], cell[10][32];
    double size, count, value[10];
    int at = 0, n;
    if (sscanf(line, "%lf %lf %31s %15s%n", &size, &count, type, redop, &at) != 4 || !isalpha((unsigned char)type[0])) {
        r->log->broken++;
        return;
    }
    n = sscanf(line + at, "%31s %31s %31s %31s %31s %31s %31s %31s %31s %31s", cell[0], cell[1], cell[2], cell[3], cell[4], cell[5], cell[6], cell[7],
               cell[8], cell[9]);
    for (int i = 0; i < n; i++) {
        char *end;
        value[i] = strtod(cell[i], &end);
        if (*end) /* N/A, or the rest of another message */
            value[i] = (double)NAN;
    }
    int root = n == 9 ? 1 : 0; /* root; time algbw busbw wrong twice */
    if (n < 8 || !isfinite(value[root]) || !isfinite(value[root + 1]) || !isfinite(value[root + 2]))
        r->log->broken++;
    else
        add_row(r, redop, size, value[root], value[root + 1], value[root + 2]);
}

/* "Rank 3 Group 0 Pid 6902 on node-a device 3 [0000:0c:00] NVIDIA ..." */
static void read_device(struct reader *r, const char *line)
{
    const char *on = strstr(line, " on "), *bus = strchr(line, '[');
    char host[64], id[32] = "";
    int rank;
    if (sscanf(strstr(line, "Rank"), "Rank %d", &rank) != 1 || !on || sscanf(on, " on %63s", host) != 1 || r->n_devices == DEVICES_MAX)
        return;
    if (bus)
        snprintf(id, sizeof id, "%.*s", (int)strcspn(bus + 1, "]"), bus + 1);
    if (rank == 0) { /* a new job; two of them are two single-rank runs */
        r->n_devices = 0;
        r->jobs++;
    }
    bool new_host = true;
    for (int i = 0; i < r->n_devices; i++) {
        bool here = strcmp(r->device[i].host, host) == 0;
        new_host = new_host && !here;
        r->log->gpus_shared += here && *id && strcmp(id, "0x00") != 0 && strcmp(r->device[i].bus, id) == 0;
    }
    r->nodes = r->n_devices == 0 ? 1 : r->nodes + new_host;
    snprintf(r->device[r->n_devices].host, sizeof r->device[0].host, "%s", host);
    snprintf(r->device[r->n_devices].bus, sizeof r->device[0].bus, "%s", id);
    r->ranks = ++r->n_devices;
}

/* A command line or "Collective test starting": what is measured from here on. */
static void read_header(struct reader *r, const char *line)
{
    int op = strstr(line, "_perf") || strstr(line, "ollective test starting") ? op_in(line) : -1;
    const char *gpus = strstr(line, "_perf") ? strstr(line, " -g ") : NULL;
    if (op >= 0) {
        r->op = op;
        r->ranks = r->nodes = r->n_devices = 0;
    }
    if (op >= 0 && gpus && atoi(gpus + 4) > 1) {
        r->ranks = atoi(gpus + 4);
        r->nodes = 1;
    }
    if (strstr(line, "Using devices"))
        r->n_devices = 0;
}

static const char *without_prefix(const char *line)
{
    const char *tag = strstr(line, "<stdout>:");
    if (tag)
        return tag + 9;
    if (*line == '[' && isdigit((unsigned char)line[1]) && strchr(line, ']'))
        return strchr(line, ']') + 1;
    return line;
}

static void read_line(struct reader *r, const char *raw)
{
    const char *line = without_prefix(raw), *text = line + strspn(line, " \t");
    if (strstr(line, "Test failure") || strstr(line, "Bus error") || strstr(line, "Test NCCL failure") || strstr(line, "Test CUDA failure")) {
        r->crashed = true;
        if (!*r->failure)
            snprintf(r->failure, sizeof r->failure, "%.*s", (int)strcspn(text, "\n"), text);
    }
    if (strstr(line, "Rank ") && strstr(line, " device "))
        read_device(r, line);
    else if (isdigit((unsigned char)*text))
        read_table_row(r, text);
    else
        read_header(r, line);
}

static void read_text(struct reader *r, char *text)
{
    for (char *line = text; line && *line;) {
        char *next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        read_line(r, line);
        line = next;
    }
}

/* ---- JSON dialects ---- */

static double number(const struct json *object, const char *key)
{
    const struct json *node = object ? json_get(object, key) : NULL;
    return node && json_type(node) == JSON_NUMBER ? json_double(node) : (double)NAN;
}

static const char *word(const struct json *object, const char *key)
{
    const struct json *node = object ? json_get(object, key) : NULL;
    return node && json_type(node) == JSON_STRING ? json_text(node) : "";
}

static void read_devices_json(struct reader *r, const struct json *root)
{
    const struct json *config = json_get(root, "config"), *devices = config ? json_get(config, "devices") : NULL;
    for (const struct json *d = devices ? json_first(devices) : NULL; d; d = json_next(d)) {
        char line[200];
        snprintf(line, sizeof line, "Rank %.0f on %.60s device 0 [%.30s]", number(d, "rank"), word(d, "hostname"), word(d, "device_hex"));
        read_device(r, line);
    }
}

/* Schema 3: {"results": [{"size", "redop", "out_of_place": {"time", "alg_bw", "bus_bw"}, "experiment_name"}]} */
static void read_schema(struct reader *r, const struct json *root)
{
    read_devices_json(r, root);
    for (const struct json *item = json_first(json_get(root, "results")); item; item = json_next(item)) {
        const struct json *out = json_get(item, "out_of_place");
        int op = op_in(word(item, "experiment_name"));
        r->op = op >= 0 ? op : r->op;
        add_row(r, word(item, "redop"), number(item, "size"), number(out, "time"), number(out, "alg_bw"), number(out, "bus_bw"));
    }
}

/* {"benchmark": [{"33554432": {"oop_time", "oop_algbw", "oop_busbw", "redop"}}]} */
static void read_by_size(struct reader *r, const struct json *root)
{
    for (const struct json *block = json_first(json_get(root, "benchmark")); block; block = json_next(block))
        for (const struct json *item = json_first(block); item; item = json_next(item))
            add_row(r, word(item, "redop"), strtod(json_key(item), NULL), number(item, "oop_time"), number(item, "oop_algbw"), number(item, "oop_busbw"));
}

/* RCCL: one object a line, {"name", "size", "time", "algBw", "busBw", "gpus", "inPlace"}. */
static bool read_json_line(struct reader *r, const char *line, size_t length, const char *path)
{
    struct json *root = NULL;
    struct err ignored = {0};
    if (json_parse(line, length, path, &root, &ignored) < 0) {
        r->log->broken++;
        r->unparsed = true;
        return false;
    }
    int op = op_in(word(root, "name"));
    if (number(root, "inPlace") < 0.5) {
        r->op = op >= 0 ? op : r->op;
        r->ranks = isfinite(number(root, "gpus")) ? (int)number(root, "gpus") : 0;
        r->nodes = 0;
        add_row(r, word(root, "redop"), number(root, "size"), number(root, "time"), number(root, "algBw"), number(root, "busBw"));
    }
    json_free(root);
    return true;
}

static int read_json(struct reader *r, const char *path, const char *text, size_t length)
{
    struct json *root = NULL;
    struct err ignored = {0};
    if (json_parse(text, length, path, &root, &ignored) == 0 && json_type(root) == JSON_OBJECT && (json_has(root, "results") || json_has(root, "benchmark"))) {
        if (json_has(root, "results"))
            read_schema(r, root);
        else
            read_by_size(r, root);
        json_free(root);
        return 0;
    }
    json_free(root);
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (*line == '{')
            read_json_line(r, line, strcspn(line, "\n"), path);
    return 0;
}

int nccl_log_load(const char *path, int op, struct arena *arena, struct nccl_log *ret, struct err *err)
{
    char *text;
    size_t length;
    memset(ret, 0, sizeof *ret);
    if (file_read(path, FILE_MAX_BYTES, &text, &length, err) < 0)
        return -1;
    struct reader *r = arena_alloc(arena, sizeof *r);
    ret->row = arena_array(arena, ROWS_MAX, sizeof *ret->row);
    *r = (struct reader){.log = ret, .op = op};
    if (text[strspn(text, " \r\n\t")] == '{')
        read_json(r, path, text, length);
    else
        read_text(r, text);
    free(text);
    if (ret->n > 0)
        return 0;
    if (ret->empty > 0 || (r->ranks == 1 && r->jobs > 1 && !r->crashed))
        return err_add(err, "log '%s': only single-rank or empty runs; nccl-tests must be built with MPI=1 to join the ranks", path);
    if (ret->broken == 0 && !r->crashed)
        return err_add(err, "log '%s': no row of measurements in it%s", path, r->ranks > 0 || r->op >= 0 ? "; it ends before its table" : "");
    if (r->unparsed)
        return err_add(err, "log '%s': it is no JSON that nccl-tests or rccl-tests write; was it cut off?", path);
    if (r->op < 0 && ret->broken > 0)
        return err_add(err, "log '%s': it does not say which operation was measured; state --op all_reduce or another", path);
    return err_add(err, "log '%s': no usable measurement in it (%d broken rows)%s%s", path, ret->broken, r->crashed ? "; the run failed: " : "", r->failure);
}

/* ---- lines ---- */

struct point {
    double bytes, time_s; /* bus bytes */
};

/* a + V/B over points first..last-1, of least squared relative error; false when not rising. */
static bool fit_line(const struct point *p, int first, int last, struct alpha_beta_line *ret, double *ret_error)
{
    double w = 0, x = 0, xx = 0, y = 0, xy = 0;
    for (int i = first; i < last; i++) {
        double weight = 1 / (p[i].time_s * p[i].time_s);
        w += weight;
        x += weight * p[i].bytes;
        xx += weight * p[i].bytes * p[i].bytes;
        y += weight * p[i].time_s;
        xy += weight * p[i].bytes * p[i].time_s;
    }
    double det = w * xx - x * x, slope = det > 0 ? (w * xy - x * y) / det : 0, alpha = det > 0 ? (y - slope * x) / w : 0;
    if (alpha < 0) { /* through the origin */
        alpha = 0;
        slope = xy / xx;
    }
    if (!(slope > 0))
        return false;
    *ret = (struct alpha_beta_line){.alpha_s = alpha, .bytes_per_s = 1 / slope};
    *ret_error = 0;
    for (int i = first; i < last; i++) {
        double off = (alpha + slope * p[i].bytes) / p[i].time_s - 1;
        *ret_error += off * off;
    }
    return true;
}

/* The best cut into `lines` runs of at least two points. */
static double cut(const struct point *p, int first, int n, int lines, struct alpha_beta_line *ret)
{
    double best = (double)INFINITY, error;
    if (lines == 1)
        return n - first >= 2 && fit_line(p, first, n, ret, &error) ? error : best;
    for (int at = first + 2; at + 2 * (lines - 1) <= n; at++) {
        struct alpha_beta_line mine, rest[2];
        double after;
        if (!fit_line(p, first, at, &mine, &error))
            continue;
        after = cut(p, at, n, lines - 1, rest);
        if (error + after < best) {
            best = error + after;
            ret[0] = mine;
            memcpy(&ret[1], rest, (size_t)(lines - 1) * sizeof *rest);
        }
    }
    return best;
}

static double curve_time(const struct alpha_beta_line *line, int lines, double bytes)
{
    double time = (double)INFINITY;
    for (int k = 0; k < lines; k++)
        time = fmin(time, line[k].alpha_s + bytes / line[k].bytes_per_s);
    return time;
}

/* Squared relative error of the least of the lines: where the times are not concave, a line undercuts the others. */
static double curve_error(const struct point *p, int n, const struct alpha_beta_line *line, int lines)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double off = curve_time(line, lines, p[i].bytes) / p[i].time_s - 1;
        sum += off * off;
    }
    return sum;
}

static int compare_points(const void *a, const void *b)
{
    double x = ((const struct point *)a)->bytes, y = ((const struct point *)b)->bytes;
    return (x > y) - (x < y);
}

/* Latency alone, sizes cut off before the large ones: any rate would be a guess. */
static bool rises(const struct point *largest, const struct nccl_fit *fit)
{
    static const double least = 0.1; /* of the time of the largest size that its bytes take */
    double time = curve_time(fit->curve.line, fit->curve.n_lines, largest->bytes);
    double latency = curve_time(fit->curve.line, fit->curve.n_lines, 0);
    return fit->curve.n_lines > 0 && time - latency >= least * time;
}

int nccl_fit_series(const struct nccl_row *rows, int n, struct arena *arena, struct nccl_fit *ret)
{
    struct point *points = arena_array(arena, (size_t)n + 1, sizeof *points);
    double *errors = arena_array(arena, (size_t)n + 1, sizeof *errors), best = (double)INFINITY;
    struct spread spread;
    memset(ret, 0, sizeof *ret);
    if (n < 2 || n > NCCL_SERIES_MAX || !(rows[0].bus_bytes_per_s > 0))
        return 0;
    for (int i = 0; i < n; i++)
        points[i] = (struct point){rows[i].bus_bytes_per_s * rows[i].time_s, rows[i].time_s};
    qsort(points, (size_t)n, sizeof *points, compare_points);
    for (int lines = 1; lines <= 3 && (n <= 200 || lines < 3); lines++) {
        struct alpha_beta_line found[3];
        double error = isfinite(cut(points, 0, n, lines, found)) ? curve_error(points, n, found, lines) : (double)INFINITY;
        if (error < 0.7 * best) { /* another line must earn its two numbers */
            best = error;
            ret->curve.n_lines = lines;
            memcpy(ret->curve.line, found, sizeof found);
        }
    }
    if (!rises(&points[n - 1], ret)) {
        memset(ret, 0, sizeof *ret);
        return 0;
    }
    ret->curve.ranks = rows[0].ranks;
    ret->curve.provenance = PROVENANCE_MEASURED;
    ret->n = n;
    for (int i = 0; i < n; i++)
        errors[i] = curve_time(ret->curve.line, ret->curve.n_lines, points[i].bytes) / points[i].time_s - 1;
    spread_of(errors, n, &spread);
    ret->median = spread.median;
    ret->p90 = spread.p90;
    return ret->curve.n_lines;
}

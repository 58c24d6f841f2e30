/* plansim calibrate --nccl-tests: a log -> the curves of a link or a network. */
#include <stdio.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/base/names.h"
#include "cost/cluster.h"
#include "cost/profile.h"
#include "sim/calibrate_answer.h"
#include "sim/calibrate_nccl.h"
#include "sim/inputs.h"
#include "sim/writers/table.h"

static bool same_series(const struct nccl_row *a, const struct nccl_row *b)
{
    return a->op == b->op && a->ranks == b->ranks && a->nodes == b->nodes && strcmp(a->redop, b->redop) == 0;
}

/* Where curves go. */
struct places {
    const char *link, *fabric; /* NULL = none */
    int reach;                 /* ranks that the link is known to join; 0 = no more than a host's */
    bool stated;               /* by --link, which is the one of them that is not NULL, or the fabric */
};

static bool in_domain(const struct places *places, const struct nccl_row *row)
{
    return row->nodes <= 1 || row->ranks <= places->reach;
}

static const char *place_of(const struct places *places, const struct nccl_row *row)
{
    return in_domain(places, row) ? places->link : places->fabric;
}

static void curve_key(const struct answer *a, const struct nccl_row *row, const struct places *places, int line, char *ret, size_t size)
{
    char level[24] = "node";
    if (!in_domain(places, row))
        snprintf(level, sizeof level, "network-%d", row->nodes);
    snprintf(ret, size, "%s/%s/%d/%s/%d", a->arguments->accelerator, collective_names[row->op], row->ranks, level, line);
}

/* Is there one of the same shape, of another reduction? */
static bool has_curve(const struct answer *a, const struct nccl_row *row, const struct places *places)
{
    char key[PROFILE_KEY_MAX];
    curve_key(a, row, places, 1, key, sizeof key);
    for (size_t i = 0; i < a->rows.n; i++)
        if (a->rows.row[i].section == SECTION_ALPHA_BETA && strcmp(a->rows.row[i].key, key) == 0 && strcmp(a->rows.row[i].name, place_of(places, row)) == 0)
            return true;
    return false;
}

static int add_curve(struct answer *a, const struct nccl_row *row, const struct nccl_fit *fit, const struct places *places)
{
    int bad = 0;
    for (int i = 0; i < fit->curve.n_lines; i++) {
        char key[PROFILE_KEY_MAX];
        curve_key(a, row, places, i + 1, key, sizeof key);
        bad |= answer_add(a, SECTION_ALPHA_BETA, place_of(places, row), key, "alpha_s", fit->curve.line[i].alpha_s, "us") |
               answer_add(a, SECTION_ALPHA_BETA, place_of(places, row), key, "bytes_per_s", fit->curve.line[i].bytes_per_s, "GB/s");
    }
    return bad;
}

static int count_sizes(const struct nccl_row *rows, int n)
{
    int different = 0;
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < i && (rows[k].size_bytes < rows[i].size_bytes || rows[k].size_bytes > rows[i].size_bytes))
            k++;
        different += k == i;
    }
    return different;
}

/* Why a series has no lines; "" when it has. */
static void why_no_line(const struct nccl_row *rows, const struct nccl_fit *fit, char *ret, size_t size)
{
    *ret = '\0';
    if (fit->curve.n_lines > 0)
        return;
    int sizes = fit->n <= NCCL_SERIES_MAX ? count_sizes(rows, fit->n) : 0;
    if (fit->n > NCCL_SERIES_MAX)
        snprintf(ret, size, "%d rows, more than the %d that are fitted", fit->n, NCCL_SERIES_MAX);
    else if (rows->ranks <= 0)
        snprintf(ret, size, "the log does not say over how many ranks it ran (no line 'Rank ... on HOST device ...')");
    else if (sizes < 2)
        snprintf(ret, size, "measured at one size alone; a line needs two");
    else
        snprintf(ret, size, "the times of its %d sizes hardly rise with the size; was the log cut off before the large ones?", sizes);
}

/* Why a series cannot be written; "" when it can. */
static void why_no_curve(const struct nccl_row *rows, const struct nccl_fit *fit, char *ret, size_t size)
{
    why_no_line(rows, fit, ret, size);
    if (*ret == '\0' && rows->ranks <= 1)
        snprintf(ret, size, "the log does not say over how many ranks it ran (no line 'Rank ... on HOST device ...')");
    else if (*ret == '\0' && rows->nodes <= 0)
        snprintf(ret, size, "the log does not say on which hosts the ranks were (no line 'Rank ... on HOST device ...')");
}

static void series_row(struct table *table, const struct nccl_row *row, const struct nccl_fit *fit, const char *place)
{
    char lines[160] = "";
    why_no_line(row, fit, lines, sizeof lines);
    for (int i = 0, used = 0; i < fit->curve.n_lines; i++)
        used += snprintf(lines + used, sizeof lines - (size_t)used, "%s%.1f us + V/%.1f GB/s", i ? ", " : "", fit->curve.line[i].alpha_s * 1e6,
                         fit->curve.line[i].bytes_per_s * 1e-9);
    table_cell(table, "%s", collective_names[row->op]);
    table_cell(table, row->ranks > 0 ? "%d" : "?", row->ranks);
    table_cell(table, row->nodes > 0 ? "%d" : "?", row->nodes);
    table_cell(table, "%d", fit->n);
    for (int i = 0; i < 2; i++)
        if (fit->curve.n_lines > 0)
            table_cell(table, "%.1f %%", 100 * (i == 0 ? fit->median : fit->p90));
        else
            table_cell(table, "%s", "");
    table_cell(table, "%s", place ? place : "");
    table_cell(table, "%s%s", fit->curve.n_lines > 0 ? "" : "no line: ", lines);
}

static struct json *series_to_json(const struct nccl_row *rows, const struct nccl_fit *fit)
{
    struct json *item = json_new_object();
    double largest = 0, bus = 0, floor = 1e9;
    json_put_string(item, "operation", collective_names[rows->op]);
    json_put_string(item, "redop", rows->redop);
    json_put_int(item, "ranks", rows->ranks);
    json_put_int(item, "nodes", rows->nodes);
    json_put_int(item, "sizes", fit->n);
    for (int i = 0; i < fit->n; i++) {
        floor = rows[i].time_s < floor ? rows[i].time_s : floor;
        if (rows[i].size_bytes > largest) {
            largest = rows[i].size_bytes;
            bus = rows[i].bus_bytes_per_s;
        }
    }
    json_put_number(item, "shortest_time_s", floor);
    json_put_number(item, "largest_bytes", largest);
    json_put_number(item, "bus_bytes_per_s_at_largest", bus);
    json_put_number(item, "median_error", fit->median);
    json_put_number(item, "p90_error", fit->p90);
    struct json *lines = json_put_array(item, "lines");
    for (int i = 0; i < fit->curve.n_lines; i++) {
        struct json *line = json_new_object();
        json_put_number(line, "alpha_s", fit->curve.line[i].alpha_s);
        json_put_number(line, "bytes_per_s", fit->curve.line[i].bytes_per_s);
        json_push(lines, line);
    }
    return item;
}

/* One series: into the table and the JSON, and its curve into the answer, else why not into `why`. */
static int fit_series(struct answer *a, const struct nccl_row *rows, int n, const struct places *places, struct arena *arena, struct table *table,
                      struct json *series, char *why, size_t size)
{
    struct nccl_fit fit;
    char reason[160];
    nccl_fit_series(rows, n, arena, &fit);
    fit.n = n;
    why_no_curve(rows, &fit, reason, sizeof reason);
    const char *place = *reason == '\0' ? place_of(places, rows) : NULL;
    if (place && has_curve(a, rows, places)) {
        snprintf(reason, sizeof reason, "a curve of this shape comes before it in the log");
        place = NULL;
    }
    series_row(table, rows, &fit, place);
    json_push(series, series_to_json(rows, &fit));
    if (*reason && *why == '\0' && (a->arguments->accelerator || fit.curve.n_lines == 0))
        snprintf(why, size, "%s%s%s: %s", collective_names[rows->op], *rows->redop ? ", " : "", rows->redop, reason);
    return place ? add_curve(a, rows, &fit, places) : 0;
}

/* Gathers the rows of each series, in the order of the log, and fits them. */
static int fit_log(struct answer *a, const struct nccl_log *log, const struct places *places, struct arena *arena, struct table *table, struct json *series,
                   char *why, size_t size)
{
    bool *done = arena_array(arena, (size_t)log->n, sizeof *done);
    struct nccl_row *rows = arena_array(arena, (size_t)log->n, sizeof *rows);
    int bad = 0;
    for (int first = 0; first < log->n; first++) {
        int n = 0;
        if (done[first])
            continue;
        for (int i = first; i < log->n; i++)
            if (!done[i] && same_series(&log->row[first], &log->row[i])) {
                done[i] = true;
                rows[n++] = log->row[i];
            }
        bad |= fit_series(a, rows, n, places, arena, table, series, why, size);
    }
    return bad;
}

static void print_log(const struct nccl_log *log, const struct table *table)
{
    table_print(table, stdout);
    printf("\n%d rows used", log->n);
    if (log->broken > 0)
        printf(", %d broken left out (cut off, split by other messages, or contradicting themselves)", log->broken);
    if (log->empty > 0)
        printf(", %d of size 0 or of one rank left out", log->empty);
    printf(".\n");
}

static bool is_name(const struct profile *profile, enum profile_section section, const char *name)
{
    const char *names[PROFILE_NAMES_MAX];
    profile_names(profile, section, names);
    return names_find(names, name) >= 0;
}

static int unknown_place(const struct profile *profile, const char *name, struct err *err)
{
    const char *names[2 * PROFILE_NAMES_MAX];
    char links[1000], fabrics[1000];
    int n = profile_names(profile, SECTION_LINK, names);
    names_join(names, links, sizeof links);
    profile_names(profile, SECTION_FABRIC, names + n);
    names_join(names + n, fabrics, sizeof fabrics);
    const char *near = names_nearest(names, name);
    return err_add(err, "--link '%s' is neither a link nor a network%s%s%s; links: %s; networks: %s", name, near ? "; nearest: '" : "", near ? near : "",
                   near ? "'" : "", links, fabrics);
}

/* Ranks that curves of the link go to, where those are more than a host has; else 0. */
static int reach_of(const struct link_profile *link, const struct accelerator *accelerator)
{
    int most = 0;
    for (int op = 0; op < COLLECTIVE_OPS; op++)
        for (int i = 0; i < link->n_curves[op]; i++)
            most = link->curve[op][i].ranks > most ? link->curve[op][i].ranks : most;
    return most > accelerator->default_per_node ? most : 0;
}

/* accelerator: whose names ret points to. */
static int find_places(struct answer *a, const struct profile *profile, struct accelerator *accelerator, struct places *ret)
{
    const struct points_arguments *p = a->arguments;
    struct link_profile link;
    memset(ret, 0, sizeof *ret);
    ret->stated = p->link != NULL;
    bool is_link = ret->stated && is_name(profile, SECTION_LINK, p->link), is_fabric = ret->stated && is_name(profile, SECTION_FABRIC, p->link);
    a->bad_option = true;
    if (ret->stated && !is_link && !is_fabric)
        return unknown_place(profile, p->link, a->err);
    if (p->accelerator && profile_accelerator(profile, p->accelerator, accelerator, a->err) < 0)
        return -1;
    a->bad_option = false;
    if (!p->accelerator)
        return 0;
    ret->link = is_link ? p->link : accelerator->default_link;
    if (profile_link(profile, ret->link, p->accelerator, &link, a->err) < 0)
        return -1;
    ret->fabric = is_fabric ? p->link : is_link ? NULL : cluster_usual_fabric(link.link_class, accelerator->nic_bytes_per_s, true);
    ret->reach = is_fabric ? 0 : reach_of(&link, accelerator);
    return 0;
}

/* What the log says of itself and the options say of it. */
static int check_log(struct answer *a, const struct profile *profile, const struct nccl_log *log, int op, const struct places *places)
{
    const struct points_arguments *p = a->arguments;
    const char *names[PROFILE_NAMES_MAX];
    char known[1000];
    for (int i = 0; i < log->n; i++) {
        if (op >= 0 && (int)log->row[i].op != op)
            return err_add(a->err, "log '%s': it is of %s, not of %s as --op says; leave --op out", p->nccl, collective_names[log->row[i].op], p->op);
        if (p->accelerator && !place_of(places, &log->row[i])) {
            profile_names(profile, SECTION_FABRIC, names);
            return err_add(a->err, "log '%s': its ranks are on %d nodes, and --link '%s' is inside a node; networks: %s", p->nccl, log->row[i].nodes, p->link,
                           names_join(names, known, sizeof known));
        }
    }
    return 0;
}

static struct table *new_table(void)
{
    static const char *const titles[] = {"ranks", "nodes", "sizes", "median", "p90", "of", "fitted lines (V in bus bytes)"};
    struct table *table = table_new("  ");
    table_column(table, "operation", TABLE_LEFT);
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
        table_column(table, titles[i], i < 5 ? TABLE_RIGHT : TABLE_LEFT);
    return table;
}

static int load_log(struct answer *a, const struct profile *profile, struct arena *arena, struct accelerator *accelerator, struct places *places,
                    struct nccl_log *log)
{
    const struct points_arguments *p = a->arguments;
    int op = p->op ? names_find(collective_names, p->op) : -1;
    char known[100];
    if (p->op && op < 0) {
        a->bad_option = true;
        return err_add(a->err, "--op '%s' is none of %s", p->op, names_join(collective_names, known, sizeof known));
    }
    if (find_places(a, profile, accelerator, places) < 0 || nccl_log_load(p->nccl, op, arena, log, a->err) < 0 || check_log(a, profile, log, op, places) < 0)
        return -1;
    if (p->out && !p->accelerator)
        return err_add(a->err, "--accelerator NAME is needed to write curves into a profile");
    return 0;
}

int calibrate_log(struct answer *a, const struct profile *profile, struct arena *arena, struct json *root)
{
    struct nccl_log log;
    struct accelerator accelerator;
    struct places places;
    char why[240] = "";
    if (load_log(a, profile, arena, &accelerator, &places, &log) < 0)
        return -1;
    struct err warning = {0};
    if (log.gpus_shared > 0) {
        err_add(&warning, "%d ranks share a host and device with another: this is no link's speed, nothing is written", log.gpus_shared);
        places.link = places.fabric = NULL;
    }
    json_put_int(root, "rows", log.n);
    json_put_int(root, "broken_rows", log.broken);
    json_put_int(root, "empty_rows", log.empty);
    struct table *table = new_table();
    size_t before = a->rows.n;
    int bad = fit_log(a, &log, &places, arena, table, json_put_array(root, "series"), why, sizeof why);
    if (bad == 0 && *why && a->rows.n == before && (places.link || !a->arguments->accelerator))
        bad = err_add(a->err, "log '%s': nothing can be fitted: %s", a->arguments->nccl, why);
    else if (bad == 0 && *why)
        err_add(&warning, "left out: %s", why);
    if (bad == 0) {
        inputs_print("calibrate", "warning: ", &warning);
        if (a->arguments->format == FORMAT_TABLE)
            print_log(&log, table);
    }
    table_free(table);
    return bad;
}

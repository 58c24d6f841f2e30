#include "sim/validate_table.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/names.h"
#include "cost/base/unit.h"

static const struct {
    const char *name;
    size_t offset;
} words[] = {
    {"id", offsetof(struct run, id)},
    {"group", offsetof(struct run, group)},
    {"stack", offsetof(struct run, stack)},
    {"accelerator", offsetof(struct run, accelerator)},
    {"hardware", offsetof(struct run, hardware)},
    {"model", offsetof(struct run, model)},
    {"precision", offsetof(struct run, precision)},
    {"recompute", offsetof(struct run, recompute)},
    {"schedule", offsetof(struct run, schedule)},
    {"overlap", offsetof(struct run, overlap)},
    {"kernels", offsetof(struct run, kernels)},
    {"moe_routing", offsetof(struct run, moe_routing)},
    {"offload", offsetof(struct run, offload)},
    {"pp_layout", offsetof(struct run, pp_layout)},
    {"cuda_graph", offsetof(struct run, cuda_graph)},
    {"container", offsetof(struct run, container)},
    {"mem_kind", offsetof(struct run, mem_kind)},
    {"trust", offsetof(struct run, trust)},
    {"task", offsetof(struct run, task)},
    {"date", offsetof(struct run, date)},
    {"notes", offsetof(struct run, notes)},
};

#define RANKS_MOST 0x1p24 /* as in plan.json */
#define TOKENS_MOST 0x1p40

static const struct {
    const char *name;
    size_t offset;
    double most;
} counts[] = {
    {"gpus", offsetof(struct run, gpus), RANKS_MOST}, {"tp", offsetof(struct run, tp), RANKS_MOST},
    {"pp", offsetof(struct run, pp), RANKS_MOST},     {"vp", offsetof(struct run, vp), RANKS_MOST},
    {"cp", offsetof(struct run, cp), RANKS_MOST},     {"ep", offsetof(struct run, ep), RANKS_MOST},
    {"etp", offsetof(struct run, etp), RANKS_MOST},   {"dp", offsetof(struct run, dp), RANKS_MOST},
    {"zero", offsetof(struct run, zero), RANKS_MOST}, {"mbs", offsetof(struct run, mbs), RANKS_MOST},
    {"gbs", offsetof(struct run, gbs), TOKENS_MOST},  {"seq_len", offsetof(struct run, seq_len), TOKENS_MOST},
};

static const struct {
    const char *name;
    size_t offset;
} numbers[] = {
    {"step_time_s", offsetof(struct run, step_time_s)},
    {"tokens_per_s_per_gpu", offsetof(struct run, tokens_per_s_per_gpu)},
    {"mem_gib", offsetof(struct run, mem_gib)},
};

enum { WORDS = sizeof words / sizeof *words, COUNTS = sizeof counts / sizeof *counts, NUMBERS = sizeof numbers / sizeof *numbers };

struct columns {
    int word[WORDS], count[COUNTS], number[NUMBERS], sequence_parallel, result;
};

/* Columns of other tables are nobody's mistake; one that is nearly ours is. */
static void warn_columns(const struct csv *csv, const char *path, struct err *warn)
{
    const char *known[WORDS + COUNTS + NUMBERS + 3] = {"sequence_parallel", "result"};
    int n = 2;
    for (int i = 0; i < WORDS; i++)
        known[n++] = words[i].name;
    for (int i = 0; i < COUNTS; i++)
        known[n++] = counts[i].name;
    for (int i = 0; i < NUMBERS; i++)
        known[n++] = numbers[i].name;
    known[n] = NULL;
    for (int i = 0; i < csv->n_columns; i++) {
        const char *nearest = names_find(known, csv->column[i]) < 0 ? names_nearest(known, csv->column[i]) : NULL;
        if (nearest && csv_column(csv, nearest) < 0)
            err_add(warn, "table '%s': column '%s' is not known and ignored; did you mean '%s'?", path, csv->column[i], nearest);
    }
}

static int find_columns(const struct csv *csv, const char *path, struct columns *ret, struct err *err)
{
    static const char *const needed[] = {"id", "accelerator", "gpus", "model", "tp", "pp", "gbs", "seq_len", NULL};
    int result = 0;
    for (int i = 0; i < WORDS; i++)
        ret->word[i] = csv_column(csv, words[i].name);
    for (int i = 0; i < COUNTS; i++)
        ret->count[i] = csv_column(csv, counts[i].name);
    for (int i = 0; i < NUMBERS; i++)
        ret->number[i] = csv_column(csv, numbers[i].name);
    ret->sequence_parallel = csv_column(csv, "sequence_parallel");
    ret->result = csv_column(csv, "result");
    for (int i = 0; needed[i]; i++)
        if (csv_column(csv, needed[i]) < 0)
            result = err_add(err, "table '%s': no column '%s'", path, needed[i]);
    return result;
}

/* Whole numbers may be written as 8 or 8.0. */
static int read_count(const char *cell, double most, int64_t *ret, struct err *err)
{
    double value;
    if (!*cell)
        return 0;
    if (unit_parse_double(cell, 0, 9e15, &value, NULL) < 0 || floor(value) < value)
        return err_add(err, "'%s' is not a whole number of 0 or more", cell);
    if (value > most)
        return err_add(err, "'%s' is not at most %.0f", cell, most);
    *ret = (int64_t)value;
    return 0;
}

static int read_flag(const char *cell, int *ret, struct err *err)
{
    static const char *const no[] = {"no", "0", "false", "False", "off", NULL}, *const yes[] = {"yes", "1", "true", "True", "on", NULL};
    if (names_find(no, cell) >= 0)
        *ret = 0;
    else if (names_find(yes, cell) >= 0)
        *ret = 1;
    else if (*cell)
        return err_add(err, "'%s' is neither yes nor no", cell);
    return 0;
}

static int read_result(const char *cell, enum run_result *ret, struct err *err)
{
    static const char *const names[] = {"ok", "oom", "error", NULL};
    int at = *cell ? names_find(names, cell) : RUN_OK;
    if (at < 0)
        return err_add(err, "result '%s' is not one of ok, oom, error", cell);
    *ret = (enum run_result)at;
    return 0;
}

/* YYYY, YYYY-MM or YYYY-MM-DD, and what else somebody has to say of it. */
static int check_date(const char *cell, struct err *err)
{
    static const char form[] = "9999-99-99";
    size_t n = 0;
    while (form[n] && (form[n] == '9' ? isdigit((unsigned char)cell[n]) != 0 : cell[n] == form[n]))
        n++;
    if (*cell && ((n != 4 && n != 7 && n != 10) || isalnum((unsigned char)cell[n]) || cell[n] == '-'))
        return err_add(err, "column 'date': '%s' does not begin with YYYY, YYYY-MM or YYYY-MM-DD", cell);
    return 0;
}

static int read_run(const struct csv *csv, size_t row, const struct columns *at, struct run *run, struct err *err)
{
    int before = err->count;
    *run = (struct run){.line = csv->line[row], .sequence_parallel = -1};
    for (int i = 0; i < WORDS; i++)
        *(const char **)((char *)run + words[i].offset) = csv_cell(csv, row, at->word[i]);
    check_date(run->date, err);
    for (int i = 0; i < COUNTS; i++) {
        int64_t *value = (int64_t *)((char *)run + counts[i].offset);
        *value = -1;
        if (read_count(csv_cell(csv, row, at->count[i]), counts[i].most, value, err) < 0)
            err_prefix(err, err->count - 1, "column '%s': ", counts[i].name);
    }
    for (int i = 0; i < NUMBERS; i++) {
        double *value = (double *)((char *)run + numbers[i].offset);
        const char *cell = csv_cell(csv, row, at->number[i]);
        *value = (double)NAN;
        if (*cell && unit_parse_double(cell, 0, 1e15, value, err) < 0)
            err_prefix(err, err->count - 1, "column '%s': ", numbers[i].name);
    }
    read_flag(csv_cell(csv, row, at->sequence_parallel), &run->sequence_parallel, err);
    read_result(csv_cell(csv, row, at->result), &run->result, err);
    return err->count > before ? -1 : 0;
}

int run_table_load(const char *path, struct run_table *ret, struct err *warn, struct err *err)
{
    struct columns at;
    struct err problems = {0};
    memset(ret, 0, sizeof *ret);
    if (csv_load(path, &ret->csv, err) < 0 || find_columns(&ret->csv, path, &at, err) < 0)
        return -1;
    warn_columns(&ret->csv, path, warn);
    ret->run = arena_array(&ret->csv.arena, ret->csv.n_rows + 1, sizeof *ret->run);
    for (size_t row = 0; row < ret->csv.n_rows; row++) {
        int before = problems.count;
        if (read_run(&ret->csv, row, &at, &ret->run[ret->n], &problems) < 0)
            err_prefix(&problems, before, "table '%s': line %d: ", path, ret->csv.line[row]);
        ret->n++;
    }
    if (ret->n == 0)
        err_add(&problems, "table '%s': no runs in it", path);
    return problems.count > 0 ? err_append(err, &problems) : 0;
}

void run_table_release(struct run_table *table)
{
    csv_release(&table->csv);
    memset(table, 0, sizeof *table);
}

double run_step_time_s(const struct run *run)
{
    if (run->step_time_s > 0)
        return run->step_time_s;
    if (run->tokens_per_s_per_gpu > 0 && run->gbs > 0 && run->seq_len > 0 && run->gpus > 0)
        return (double)run->gbs * (double)run->seq_len / (double)run->gpus / run->tokens_per_s_per_gpu;
    return (double)NAN;
}

#include "exec/op_kinds.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cost/base/json.h"
#include "exec/measure.h"
#include "exec/predicted.h"
#include "sim/program.h"
#include "sim/writers/table.h"

struct list {
    struct op_kind_row *row;
    int n;
};

static void add(struct list *list, const char *name, bool inside, double measured_s, double predicted_s)
{
    list->row[list->n++] = (struct op_kind_row){name, inside, measured_s, predicted_s};
}

/* Of one op, as one rank of pp has it in the mean. */
static double price(const struct predicted *p, enum op_kind kind, int stage)
{
    const double *s = stage < p->n_chunks ? p->chunk_s[stage] : (const double[3]){0, 0, 0};
    return kind == OP_F ? s[0] : kind == OP_B ? s[1] : kind == OP_W ? s[2] : kind == OP_BW ? s[1] + s[2] : 0;
}

/* How many ops of each kind there are, and what those but F_BW should take. */
static void sum_ops(const struct program *program, const struct predicted *p, int64_t count[OP_F_BW + 1],
                    double predicted_s[OP_F_BW + 1])
{
    for (int r = 0; r < program->pp; r++)
        for (int i = 0; i < program->n_ops[r]; i++) {
            const struct op *op = &program->ops[r][i];
            if (!op_is_compute(op))
                continue;
            count[op->kind]++;
            predicted_s[op->kind] += p ? price(p, op->kind, op->stage) / program->pp : 0;
        }
}

/* Slots take what the other ops leave of a rank's busy time: some of it may be hidden in them. */
static void add_ops(struct list *list, const struct measurement *m, const struct program *program,
                    const struct predicted *p)
{
    static const enum op_kind kinds[] = {OP_F, OP_B, OP_W, OP_BW, OP_F_BW};
    static const enum measure_kind measured[] = {MEASURE_F, MEASURE_B, MEASURE_W, MEASURE_BW, MEASURE_F_BW};
    int64_t count[OP_F_BW + 1] = {0};
    double predicted_s[OP_F_BW + 1] = {0}, busy_s = p ? p->step_time_s - p->wait_s - p->end_s : 0;
    sum_ops(program, p, count, predicted_s);
    for (int k = 0; k < 4; k++)
        busy_s -= predicted_s[kinds[k]];
    if (count[OP_F_BW] > 0)
        predicted_s[OP_F_BW] = fmax(0, busy_s);
    for (int k = 0; k < 5; k++)
        if (count[kinds[k]] > 0)
            add(list, measure_kind_names[measured[k]], false, m->kind_s[measured[k]], predicted_s[kinds[k]]);
}

static double waited(const struct measurement *m, enum world_group a, enum world_group b)
{
    return m->group[a].waited_s + (a != b ? m->group[b].waited_s : 0);
}

/* With ZeRO 2 and 3 the data-parallel collectives are among the ops, but for what the end of the step has. */
static void add_inside(struct list *list, const struct measurement *m, int zero, const struct predicted *p)
{
    double end_s = m->part_s[STOPWATCH_REDUCTION] + m->part_s[STOPWATCH_GATHER];
    double dp_s = zero >= 2 ? fmax(0, waited(m, WORLD_DP_CP, WORLD_EXPERT_DP) - end_s) : 0;
    const struct op_kind_row rows[] = {
        {"recompute", true, m->part_s[STOPWATCH_RECOMPUTE], p ? p->recompute_s : 0},
        {"tp", true, waited(m, WORLD_TP, WORLD_KV), p ? p->tp_s : 0},
        {"cp", true, waited(m, WORLD_CP, WORLD_CP), p ? p->cp_s : 0},
        {"ep", true, waited(m, WORLD_EP, WORLD_EP), p ? p->ep_s : 0},
        {"dp", true, dp_s, p ? p->dp_s : 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].measured_s > 0 || rows[i].predicted_s > 0)
            list->row[list->n++] = rows[i];
}

int op_kinds_fill(const struct measurement *m, const struct program *program, int zero, const struct predicted *p,
                  struct op_kind_row ret[OP_KIND_ROWS_MAX])
{
    struct list list = {ret, 0};
    double clear_s = m->part_s[STOPWATCH_CLEAR], step_s = 0, known_s = 0;
    for (int k = 0; k < MEASURE_KINDS; k++)
        step_s += m->kind_s[k];
    add_ops(&list, m, program, p);
    add_inside(&list, m, zero, p);
    add(&list, "wait", false, fmax(0, m->kind_s[MEASURE_WAIT] - clear_s), p ? p->wait_s : 0);
    add(&list, "reduction", false, m->part_s[STOPWATCH_REDUCTION], p ? p->reduction_s : 0);
    add(&list, "optimizer", false, clear_s + m->part_s[STOPWATCH_OPTIMIZER], p ? p->optimizer_s : 0);
    add(&list, "gather", false, m->part_s[STOPWATCH_GATHER], p ? p->gather_s : 0);
    for (int i = 0; i < list.n; i++)
        known_s += list.row[i].inside ? 0 : list.row[i].measured_s;
    add(&list, "other", false, step_s - known_s, p ? p->overhead_s : 0);
    add(&list, "step", false, step_s, p ? p->step_time_s : 0);
    return list.n;
}

void op_kinds_print(const struct op_kind_row *row, int n, bool predicted)
{
    struct table *table = table_new("  ");
    double least_s = 0.002 * row[n - 1].measured_s;
    table_column(table, "mean of a step", TABLE_LEFT);
    table_column(table, "seconds", TABLE_RIGHT);
    if (predicted) {
        table_column(table, "predicted", TABLE_RIGHT);
        table_column(table, "error", TABLE_RIGHT);
    }
    for (int i = 0; i < n; i++) {
        if (fabs(row[i].measured_s) < least_s && row[i].predicted_s < least_s)
            continue;
        table_cell(table, "%s%s", row[i].inside ? "  of which " : "", row[i].name);
        table_cell(table, "%.6f", row[i].measured_s);
        if (!predicted)
            continue;
        table_cell(table, "%.6f", row[i].predicted_s);
        if (row[i].measured_s >= least_s)
            table_cell(table, "%+.1f %%", 100 * (row[i].predicted_s / row[i].measured_s - 1));
        else
            table_cell(table, "%s", "");
    }
    table_print(table, stdout);
    table_free(table);
}

void op_kinds_put(struct json *root, const char *key, const struct op_kind_row *row, int n, bool predicted)
{
    struct json *kinds = json_put_object(root, key);
    for (int i = 0; i < n; i++) {
        struct json *kind = json_put_object(kinds, row[i].name);
        json_put_number(kind, "measured_s", row[i].measured_s);
        if (predicted)
            json_put_number(kind, "predicted_s", row[i].predicted_s);
        else
            json_put_null(kind, "predicted_s");
        if (predicted && row[i].measured_s > 0)
            json_put_number(kind, "error", row[i].predicted_s / row[i].measured_s - 1);
        else
            json_put_null(kind, "error");
        json_put_bool(kind, "inside", row[i].inside);
    }
}

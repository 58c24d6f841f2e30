#include "sim/writers/schedule_out.h"

#include <inttypes.h>
#include <stdlib.h>

#include "sim/pricing.h"

enum { NUMBER_MAX = 32 };

const char *schedule_out_number(double value, char *buffer, size_t size)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buffer, size, "%.*g", digits, value);
        double back = strtod(buffer, NULL);
        if (!(back < value) && !(back > value))
            break;
    }
    return buffer;
}

static const char *units(const struct priced *priced, int64_t ticks, char *buffer)
{
    return schedule_out_number(priced_units(priced, ticks), buffer, NUMBER_MAX);
}

/* ---- for people ---- */

/* "4 3 2 1", or "4 on every rank". */
static void print_per_rank(FILE *out, const struct priced *priced, double (*value)(const struct priced *, int rank))
{
    int n = priced->timeline.ranks, same = 1;
    double first = value(priced, 0);
    for (int r = 1; r < n; r++)
        same += !(value(priced, r) < first) && !(value(priced, r) > first);
    if (same == n) {
        fprintf(out, "%.6g on every rank\n", first);
        return;
    }
    for (int r = 0; r < n; r++)
        fprintf(out, "%s%.6g", r ? " " : "", value(priced, r));
    fputc('\n', out);
}

static double peak_of(const struct priced *p, int rank)
{
    return p->timeline.rank[rank].peak_in_flight * p->stages_per_chunk;
}

static double idle_of(const struct priced *p, int rank)
{
    return priced_units(p, p->timeline.makespan_ps - p->timeline.rank[rank].busy_ps * p->timeline.iterations);
}

static void print_title(FILE *out, const struct priced *priced, const struct schedule_label *label)
{
    const struct program *p = &priced->program;
    if (priced->schedule)
        fprintf(out, "%s (%s)\n", priced->schedule->title, priced->schedule->cite);
    else
        fprintf(out, "program %s\n", label->source);
    fprintf(out, "pp %d, %d chunk%s per rank, %d micro-batches", p->pp, p->chunks, p->chunks > 1 ? "s" : "",
            p->micro_batches);
    if (label->group > 0)
        fprintf(out, ", groups of %d", label->group);
    if (label->variant)
        fprintf(out, ", variant %s", label->variant);
    fprintf(out, "%s, placement %s\n", p->directions > 1 ? ", half of them in each direction" : "",
            placement_names[p->placement]);
}

static bool has_overlaps(const struct program *p)
{
    for (int r = 0; r < p->pp; r++)
        for (int i = 0; i < p->n_ops[r]; i++)
            if (p->ops[r][i].kind == OP_F_BW)
                return true;
    return false;
}

static void print_costs(FILE *out, const struct priced *priced, const struct pricing *pricing)
{
    char overlap[NUMBER_MAX];
    if (pricing->stage_cost[0])
        fprintf(out, "cost        per stage from %s", pricing->stage_cost_file);
    else
        fprintf(out, "cost        F %.6g, B %.6g, W %.6g per rank and micro-batch", pricing->cost[0], pricing->cost[1],
                pricing->cost[2]);
    fprintf(out, ", one hop %.6g", pricing->comm);
    if (has_overlaps(&priced->program))
        fprintf(out, ", overlapped slots: %s", pricing_overlap(pricing, overlap, sizeof overlap));
    fprintf(out, "%s\n", pricing->blocking_sends ? ", blocking sends" : "");
}

void schedule_out_summary(FILE *out, const struct priced *priced, const struct pricing *pricing,
                          const struct schedule_label *label)
{
    const struct timeline *t = &priced->timeline;
    print_title(out, priced, label);
    print_costs(out, priced, pricing);
    fprintf(out, "makespan    %.9g\n", priced_units(priced, t->makespan_ps));
    fprintf(out, "ideal       %.9g   (mean busy time of a rank)\n", timeline_ideal_ps(t) / priced->ticks_per_unit);
    fprintf(out, "bubble      %.4g %%\n", 100 * timeline_bubble_fraction(t));
    fprintf(out, "span        %.9g   (longest first start to last end of one rank)\n",
            priced_units(priced, t->span_ps));
    if (t->iterations > 1)
        fprintf(out, "period      %.9g   (from one of %d iterations to the next)\n", priced_units(priced, t->period_ps),
                t->iterations);
    fputs("idle        ", out);
    print_per_rank(out, priced, idle_of);
    fputs("activations ", out);
    print_per_rank(out, priced, peak_of);
    if (priced->schedule && priced->schedule->weight_copies > 1)
        fprintf(out, "weights     %d x: every rank holds %d stages\n", priced->schedule->weight_copies,
                priced->schedule->weight_copies);
}

/* ---- JSON ---- */

static void write_text(FILE *out, const char *text)
{
    if (!text) {
        fputs("null", out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        if ((unsigned char)*text >= 0x20)
            fputc(*text, out);
        else
            fprintf(out, "\\u%04x", (unsigned)(unsigned char)*text);
    }
    fputc('"', out);
}

static void write_list(FILE *out, const char *name, const struct priced *priced,
                       double (*value)(const struct priced *, int rank))
{
    char text[NUMBER_MAX];
    fprintf(out, "  \"%s\": [", name);
    for (int r = 0; r < priced->timeline.ranks; r++)
        fprintf(out, "%s%s", r ? ", " : "", schedule_out_number(value(priced, r), text, sizeof text));
    fputs("],\n", out);
}

static void write_half(FILE *out, const struct program *p, const char *suffix, unsigned micro_batch, int stage,
                       int direction)
{
    fprintf(out, ",\"mb%s\":%u,\"chunk%s\":%d,\"stage%s\":%d", suffix, micro_batch, suffix,
            p->stage_chunk[direction * p->stages + stage], suffix, stage);
    if (p->directions > 1)
        fprintf(out, ",\"dir%s\":%d", suffix, direction);
}

static void write_op(FILE *out, const struct priced *priced, int rank, int i)
{
    const struct program *p = &priced->program;
    const struct op *op = &p->ops[rank][i];
    char text[NUMBER_MAX];
    fprintf(out, "{\"op\":\"%s\"", op_kind_names[op->kind]);
    write_half(out, p, "", op->micro_batch, op->stage, op->direction);
    if (op->kind == OP_F_BW)
        write_half(out, p, "2", op->micro_batch2, op->stage2, op->direction2);
    fprintf(out, ",\"start\":%s", units(priced, priced->timeline.start_ps[rank][i], text));
    fprintf(out, ",\"end\":%s}", units(priced, priced->timeline.end_ps[rank][i], text));
}

static void write_program(FILE *out, const struct priced *priced)
{
    const struct program *p = &priced->program;
    fputs(",\n  \"program\": [", out);
    for (int r = 0; r < p->pp; r++) {
        fprintf(out, "%s\n    [", r ? "," : "");
        for (int i = 0, n = 0; i < p->n_ops[r]; i++)
            if (op_is_compute(&p->ops[r][i])) {
                fputs(n++ ? ",\n     " : "", out);
                write_op(out, priced, r, i);
            }
        fputc(']', out);
    }
    fputs("\n  ]", out);
}

static void write_number(FILE *out, const char *name, double value)
{
    char text[NUMBER_MAX];
    fprintf(out, "  \"%s\": %s,\n", name, schedule_out_number(value, text, sizeof text));
}

static void write_cost(FILE *out, const struct pricing *pricing)
{
    char text[4][NUMBER_MAX];
    for (int k = 0; k < 3; k++)
        schedule_out_number(pricing->cost[k], text[k], NUMBER_MAX);
    schedule_out_number(pricing->comm, text[3], NUMBER_MAX);
    fputs("  \"cost\": {", out);
    if (pricing->stage_cost[0]) {
        fputs("\"stage_cost\": ", out);
        write_text(out, pricing->stage_cost_file);
    } else {
        fprintf(out, "\"F\": %s, \"B\": %s, \"W\": %s", text[0], text[1], text[2]);
    }
    fprintf(out, ", \"comm\": %s, \"overlap\": ", text[3]);
    if (pricing->slot_cost > 0)
        fprintf(out, "%s},\n", schedule_out_number(pricing->slot_cost, text[0], NUMBER_MAX));
    else
        fprintf(out, "\"%s\"},\n", engine_slot_names[pricing->slot]);
}

void schedule_out_json(FILE *out, const struct priced *priced, const struct pricing *pricing,
                       const struct schedule_label *label)
{
    const struct timeline *t = &priced->timeline;
    const struct program *p = &priced->program;
    fputs("{\n  \"schedule\": ", out);
    write_text(out, priced->schedule ? priced->schedule->name : NULL);
    fputs(",\n  \"source\": ", out);
    write_text(out, priced->schedule ? priced->schedule->cite : label->source);
    fputs(",\n  \"variant\": ", out);
    write_text(out, label->variant);
    fprintf(out, ",\n  \"pp\": %d,\n  \"vp\": %d,\n  \"microbatches\": %d,\n  \"placement\": \"%s\",\n", p->pp,
            label->vp, p->micro_batches, placement_names[p->placement]);
    write_cost(out, pricing);
    write_number(out, "makespan", priced_units(priced, t->makespan_ps));
    write_number(out, "ideal", timeline_ideal_ps(t) / priced->ticks_per_unit);
    write_number(out, "bubble_fraction", timeline_bubble_fraction(t));
    write_number(out, "span", priced_units(priced, t->span_ps));
    if (t->iterations > 1)
        write_number(out, "period", priced_units(priced, t->period_ps));
    write_list(out, "bubble_per_rank", priced, idle_of);
    write_list(out, "peak_activations_per_rank", priced, peak_of);
    fprintf(out, "  \"weight_copies\": %d", priced->schedule ? priced->schedule->weight_copies : p->directions);
    if (t->start_ps && t->iterations == 1)
        write_program(out, priced);
    fputs("\n}\n", out);
}

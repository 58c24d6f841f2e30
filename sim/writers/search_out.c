#include "sim/writers/search_out.h"

#include <stdlib.h>

#include "cost/base/json.h"
#include "cost/base/unit.h"
#include "sim/search.h"
#include "sim/writers/prediction.h"
#include "sim/writers/table.h"

void search_print_table(FILE *out, const struct prediction *plans, int n)
{
    static const char *const titles[] = {"#", "plan", "step time", "tok/s/GPU", "MFU", "memory", "bubble", "exposed", "bound by"};
    struct table *table = table_new("  ");
    char text[256], limit[32];
    for (int i = 0; i < 9; i++) {
        table_column(table, titles[i], i == 1 || i == 8 ? TABLE_LEFT : TABLE_RIGHT);
        if (i == 1)
            table_shrink(table);
    }
    for (int i = 0; i < n; i++) {
        const struct prediction *p = &plans[i];
        table_cell(table, "%d", i + 1);
        table_cell(table, "%s", plan_format(&p->plan, text, sizeof text));
        table_cell(table, "%s", unit_format_seconds(p->step_time_s, text, sizeof text));
        table_cell(table, "%.0f", p->tokens_per_s_per_gpu);
        table_cell(table, "%.1f %%", 100 * p->mfu);
        table_cell(table, "%.1f of %s", p->peak_bytes / UNIT_GIB, unit_format_bytes(p->limit_bytes, limit, sizeof limit));
        table_cell(table, "%.1f %%", 100 * p->bubble_fraction);
        table_cell(table, "%.1f %%", 100 * prediction_exposed(p));
        table_cell(table, "%s", prediction_bound(p));
    }
    table_print(table, out);
    table_free(table);
}

void search_print_csv(FILE *out, const struct prediction *plans, int n)
{
    fprintf(out, "rank,plan,tp,sp,cp,pp,vp,dp,ep,etp,zero,micro_batch,schedule,recompute,recompute_layers,step_time_s,step_time_low_s,"
                 "step_time_high_s,tokens_per_s_per_gpu,model_tflops_per_gpu,mfu,peak_bytes,limit_bytes,bubble_fraction,exposed_fraction,bound_by");
    for (int i = 0; i < TIME_PARTS; i++)
        fprintf(out, ",%s_s", time_part_names[i]);
    fputc('\n', out);
    for (int i = 0; i < n; i++) {
        const struct prediction *p = &plans[i];
        const struct plan *q = &p->plan;
        char text[256];
        fprintf(out, "%d,\"%s\",%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%s,%s,", i + 1, plan_format(q, text, sizeof text), q->tp, q->sequence_parallel, q->cp, q->pp,
                q->vp, q->dp, q->ep, q->etp, q->zero, q->micro_batch, schedule_names[q->schedule], recompute_names[q->recompute]);
        if (q->recompute == RECOMPUTE_FULL && q->recompute_layers >= 0)
            fprintf(out, "%d", q->recompute_layers);
        fprintf(out, ",%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.0f,%.0f,%.9g,%.9g,%s", p->step_time_s, p->step_time_low_s, p->step_time_high_s,
                p->tokens_per_s_per_gpu, p->model_flop_per_s_per_gpu * 1e-12, p->mfu, p->peak_bytes, p->limit_bytes, p->bubble_fraction,
                prediction_exposed(p), prediction_bound(p));
        for (int part = 0; part < TIME_PARTS; part++)
            fprintf(out, ",%.9g", p->time_s[part]);
        fputc('\n', out);
    }
}

void search_print_json(FILE *out, const struct search_result *r, const struct prediction *plans, int n, const struct profile *profile,
                       const struct err *warnings)
{
    struct json *root = json_new_object();
    json_put_int(root, "candidates", r->candidates);
    json_put_int(root, "feasible", r->feasible);
    struct json *rejected = json_put_object(root, "rejected");
    for (int i = 0; i < REASONS; i++)
        if (r->rejected[i] > 0)
            json_put_int(rejected, search_reason_text(i), r->rejected[i]);
    json_put_int(root, "evaluated", r->evaluated);
    json_put_number(root, "elapsed_s", r->elapsed_s);
    struct json *list = json_put_array(root, "plans");
    for (int i = 0; i < n; i++)
        json_push(list, prediction_to_json(&plans[i], profile, warnings));
    if (r->has_nearest)
        json_put(root, "nearest", prediction_to_json(&r->nearest, profile, warnings));
    char *text = json_print(root);
    fputs(text, out);
    free(text);
    json_free(root);
}

void search_print_why(FILE *out, const struct search_result *r)
{
    struct table *table = table_new("  ");
    char text[256];
    table_column(table, "left out", TABLE_RIGHT);
    table_column(table, "because", TABLE_LEFT);
    table_column(table, "for example", TABLE_LEFT);
    for (int i = 0; i < REASONS; i++) {
        if (r->rejected[i] == 0)
            continue;
        table_cell(table, "%s", unit_format_count(r->rejected[i], text, sizeof text));
        table_cell(table, "%s", search_reason_text(i));
        table_cell(table, "%s", plan_format(&r->example[i], text, sizeof text));
    }
    fprintf(out, "%s plans and layouts looked at, ", unit_format_count(r->candidates, text, sizeof text));
    fprintf(out, "%s priced, ", unit_format_count(r->evaluated, text, sizeof text));
    fprintf(out, "%s fit, ", unit_format_count(r->feasible, text, sizeof text));
    fprintf(out, "%s priced again by the engine\n", unit_format_count(r->repriced, text, sizeof text));
    table_print(table, out);
    table_free(table);
}

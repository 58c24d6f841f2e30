#include "sim/writers/prediction.h"

#include <string.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/base/unit.h"
#include "cost/ops.h"
#include "cost/profile.h"
#include "sim/predict.h"
#include "sim/writers/table.h"

static void put_memory(struct json *root, const struct prediction *p)
{
    struct json *memory = json_put_object(root, "memory_bytes");
    json_put_number(memory, "peak", p->peak_bytes);
    json_put_number(memory, "limit", p->limit_bytes);
    json_put_int(memory, "worst_rank", p->worst_stage);
    struct json *stages = json_put_array(memory, "stages");
    for (int i = 0; i < p->n_stages; i++) {
        struct json *stage = json_new_object();
        for (int part = 0; part < MEMORY_PARTS; part++)
            json_put_number(stage, memory_part_names[part], p->stage[i].bytes[part]);
        json_put_number(stage, "allocated", memory_allocated(p->stage[i].bytes));
        json_put_number(stage, "reserved", memory_reserved(p->stage[i].bytes));
        json_put_number(stage, "total", p->stage[i].total);
        json_push(stages, stage);
    }
}

static void put_warnings(struct json *root, const struct err *warnings)
{
    struct json *list = json_put_array(root, "warnings");
    const char *text = warnings ? warnings->text : "";
    char sentence[1024];
    while (*text) {
        size_t length = strcspn(text, "\n");
        snprintf(sentence, sizeof sentence, "%.*s", (int)length, text);
        json_push_string(list, sentence);
        text += length + (text[length] == '\n');
    }
}

/* What the phases are made of, for who measures them (planexec run). */
static void put_chunks(struct json *root, const struct prediction *p)
{
    static const struct {
        const char *name;
        enum time_part part;
    } parts[] = {{"recompute", TIME_RECOMPUTE}, {"tp", TIME_TP}, {"cp", TIME_CP}, {"ep", TIME_EP}, {"dp", TIME_DP}};
    struct json *inside = json_put_object(root, "inside_s");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        json_put_number(inside, parts[i].name, p->inside_s[parts[i].part]);
    struct json *chunks = json_put_array(root, "chunk_s");
    for (int i = 0; i < p->n_chunks; i++) {
        struct json *chunk = json_new_object();
        for (int phase = 0; phase < PHASES; phase++)
            json_put_number(chunk, phase_names[phase], p->chunk_s[i][phase]);
        json_push(chunks, chunk);
    }
}

struct json *prediction_to_json(const struct prediction *p, const struct profile *profile, const struct err *warnings)
{
    struct json *root = json_new_object();
    json_put(root, "plan", plan_to_json(&p->plan));
    json_put_bool(root, "fits", p->fits);
    json_put_number(root, "step_time_s", p->step_time_s);
    json_put_number(root, "step_time_low_s", p->step_time_low_s);
    json_put_number(root, "step_time_high_s", p->step_time_high_s);
    json_put_number(root, "tokens_per_s_per_gpu", p->tokens_per_s_per_gpu);
    json_put_number(root, "model_tflops_per_gpu", p->model_flop_per_s_per_gpu * 1e-12);
    json_put_number(root, "mfu", p->mfu);
    json_put_number(root, "bubble_fraction", p->bubble_fraction);
    if (p->cost_per_step >= 0)
        json_put_number(root, "cost_per_step", p->cost_per_step);
    else
        json_put_null(root, "cost_per_step");
    struct json *time = json_put_object(root, "time_s");
    for (int i = 0; i < TIME_PARTS; i++)
        json_put_number(time, time_part_names[i], p->time_s[i]);
    struct json *phase = json_put_object(root, "phase_s");
    for (int i = 0; i < PHASES; i++)
        json_put_number(phase, phase_names[i], p->phase_s[i]);
    json_put_number(phase, "wait", p->wait_s);
    json_put_number(phase, "end", p->end_s);
    json_put_number(phase, "reduction", p->reduction_s);
    json_put_number(phase, "gather", p->gather_s);
    json_put_number(phase, "optimizer", p->time_s[TIME_OPTIMIZER]);
    json_put_number(phase, "overhead", p->overhead_s);
    put_chunks(root, p);
    put_memory(root, p);
    struct json *source = json_put_object(root, "profile");
    json_put_string(source, "name", profile_name(profile));
    json_put_string(source, "sha256", profile_sha256(profile));
    json_put_string(source, "provenance", provenance_names[p->provenance]);
    put_warnings(root, warnings);
    return root;
}

double prediction_exposed(const struct prediction *p)
{
    return (p->time_s[TIME_TP] + p->time_s[TIME_CP] + p->time_s[TIME_EP] + p->time_s[TIME_PP] + p->time_s[TIME_DP]) / p->step_time_s;
}

const char *prediction_bound(const struct prediction *p)
{
    static const char *const words[] = {"compute",          "recompute", "tp communication", "cp communication", "expert all-to-all",
                                        "pipeline messages", "dp communication", "pipeline bubble", "optimizer", "overhead"};
    int most = TIME_RECOMPUTE;
    for (int i = TIME_RECOMPUTE; i < TIME_PARTS; i++)
        if (p->time_s[i] > p->time_s[most])
            most = i;
    double share = p->time_s[most] / p->step_time_s;
    if (p->bubble_fraction > 0.1 && p->bubble_fraction > share && p->time_s[TIME_BUBBLE] < 0.5 * p->bubble_fraction * p->step_time_s)
        return "uneven stages"; /* the busiest rank, whose time this is, waits little; the others wait for it */
    return share > 0.1 ? words[most] : words[TIME_COMPUTE];
}

static void print_time(FILE *out, const struct prediction *p)
{
    struct table *table = table_new("  ");
    char text[32];
    table_column(table, p->plan.pp > 1 ? "time of the busiest rank" : "where the time goes", TABLE_LEFT);
    table_column(table, "seconds", TABLE_RIGHT);
    table_column(table, "share", TABLE_RIGHT);
    for (int i = 0; i < TIME_PARTS; i++) {
        if (p->time_s[i] <= 0)
            continue;
        table_cell(table, "%s", time_part_names[i]);
        table_cell(table, "%s", unit_format_seconds(p->time_s[i], text, sizeof text));
        table_cell(table, "%.1f %%", 100 * p->time_s[i] / p->step_time_s);
    }
    table_rule(table);
    table_cell(table, "step");
    table_cell(table, "%s", unit_format_seconds(p->step_time_s, text, sizeof text));
    table_cell(table, "100 %%");
    table_print(table, out);
    table_free(table);
}

static void print_memory(FILE *out, const struct prediction *p)
{
    struct table *table = table_new("  ");
    char title[64], text[32];
    const struct stage_memory *worst = &p->stage[p->worst_stage];
    snprintf(title, sizeof title, "memory of stage %d (the heaviest of %d)", p->worst_stage, p->n_stages);
    table_column(table, title, TABLE_LEFT);
    table_column(table, "bytes", TABLE_RIGHT);
    for (int i = 0; i < MEMORY_PARTS; i++) {
        table_cell(table, "%s", memory_part_names[i]);
        table_cell(table, "%s", unit_format_bytes(worst->bytes[i], text, sizeof text));
    }
    table_rule(table);
    table_cell(table, "peak");
    table_cell(table, "%s", unit_format_bytes(p->peak_bytes, text, sizeof text));
    table_cell(table, "limit");
    table_cell(table, "%s", unit_format_bytes(p->limit_bytes, text, sizeof text));
    table_print(table, out);
    table_free(table);
}

void prediction_print(FILE *out, const struct prediction *p, const struct profile *profile)
{
    char plan[256], step[32], low[32], high[32], peak[32], limit[32];
    fprintf(out, "plan         %s\n", plan_format(&p->plan, plan, sizeof plan));
    fprintf(out, "step time    %s  (%s to %s, 80 %% of published runs)\n", unit_format_seconds(p->step_time_s, step, sizeof step),
            unit_format_seconds(p->step_time_low_s, low, sizeof low), unit_format_seconds(p->step_time_high_s, high, sizeof high));
    fprintf(out, "throughput   %.0f tokens/s/GPU, %.0f TFLOP/s/GPU, MFU %.1f %%\n", p->tokens_per_s_per_gpu, p->model_flop_per_s_per_gpu * 1e-12,
            100 * p->mfu);
    fprintf(out, "memory       %s of %s: %s\n", unit_format_bytes(p->peak_bytes, peak, sizeof peak),
            unit_format_bytes(p->limit_bytes, limit, sizeof limit), p->fits ? "fits" : "does not fit");
    fprintf(out, "bubble       %.1f %% of all ranks' time, exposed communication %.1f %%, bound by %s\n", 100 * p->bubble_fraction,
            100 * prediction_exposed(p), prediction_bound(p));
    if (p->cost_per_step >= 0)
        fprintf(out, "cost         %.2f per step\n", p->cost_per_step);
    fprintf(out, "profile      %s (%s), sha256 %.12s\n\n", profile_name(profile), provenance_names[p->provenance], profile_sha256(profile));
    print_time(out, p);
    fputc('\n', out);
    print_memory(out, p);
}

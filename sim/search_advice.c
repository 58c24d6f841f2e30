/* Advice is tried, not guessed: each way out is searched for, and only what then
 * fits is named. */
#include "sim/search_advice.h"

#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/unit.h"
#include "sim/writers/export.h"
#include "sim/writers/prediction.h"

enum { SCALE_MAX = 64 };

/* The best plan under changed options or cluster; true when one fits. */
static bool fits_with(const struct question *question, const struct search_options *options, struct prediction *ret)
{
    struct search_options o = *options;
    struct search_result r;
    struct err err = {0};
    o.top = 1;
    o.exhaustive = o.pareto = false;
    bool found = search_run(question, &o, &r, &err) == 0 && r.n > 0;
    if (found)
        *ret = r.plans[0];
    search_release(&r);
    return found;
}

static void print_way(FILE *out, const char *what, const struct prediction *p)
{
    char plan[256], step[32], peak[32];
    fprintf(out, "  %s: %s, %s per step, %s\n", what, plan_format(&p->plan, plan, sizeof plan),
            unit_format_seconds(p->step_time_s, step, sizeof step), unit_format_bytes(p->peak_bytes, peak, sizeof peak));
}

/* Each pinned field set free alone. */
static bool try_unfixing(FILE *out, const struct question *question, const struct search_options *options, struct prediction *p)
{
    const struct search_fix *fix = &options->fix;
    bool any = false;
    const struct { const char *name; size_t offset; bool pinned; int free; } fields[] = {
        {"without --fix recompute", offsetof(struct search_fix, recompute), fix->recompute >= 0, -1},
        {"without --fix recompute_layers", offsetof(struct search_fix, recompute_layers), fix->recompute_layers >= 0, -1},
        {"without --fix zero", offsetof(struct search_fix, zero), fix->zero >= 0, -1},
        {"without --fix micro_batch", offsetof(struct search_fix, micro_batch), fix->micro_batch > 0, 0},
        {"without --fix sequence_parallel", offsetof(struct search_fix, sequence_parallel), fix->sequence_parallel >= 0, -1},
        {"without --fix tp", offsetof(struct search_fix, tp), fix->tp > 0, 0},
        {"without --fix pp", offsetof(struct search_fix, pp), fix->pp > 0, 0},
        {"without --fix dp", offsetof(struct search_fix, dp), fix->dp > 0, 0},
        {"without --fix cp", offsetof(struct search_fix, cp), fix->cp > 0, 0},
        {"without --fix ep", offsetof(struct search_fix, ep), fix->ep > 0, 0},
        {"without --fix vp", offsetof(struct search_fix, vp), fix->vp > 0, 0}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!fields[i].pinned)
            continue;
        struct search_options o = *options;
        memcpy((char *)&o.fix + fields[i].offset, &fields[i].free, sizeof(int));
        if (fits_with(question, &o, p)) {
            print_way(out, fields[i].name, p);
            any = true;
        }
    }
    return any;
}

/* The same cluster with more nodes of each group. */
static bool try_more_nodes(FILE *out, const struct question *question, const struct search_options *options, struct prediction *p)
{
    struct cluster *larger = malloc(sizeof *larger);
    struct question q = *question;
    bool found = false;
    for (int scale = 2; larger && scale <= SCALE_MAX && !found; scale *= 2) {
        *larger = *question->cluster;
        larger->accelerators *= scale;
        for (int g = 0; g < larger->n_groups; g++)
            larger->group[g].nodes *= scale;
        q.cluster = larger;
        if (!fits_with(&q, options, p))
            continue;
        char what[96];
        snprintf(what, sizeof what, "on %lld accelerators (%d times as many)", (long long)larger->accelerators, scale);
        print_way(out, what, p);
        found = true;
    }
    free(larger);
    return found;
}

/* Another number format, where the accelerator has none of the one asked for. */
static bool try_precisions(FILE *out, const struct question *question, const struct search_options *options, struct prediction *p)
{
    bool any = false;
    for (int i = PRECISION_FP32; i < PRECISIONS; i++) {
        struct search_options o = *options;
        o.base.precision = (enum precision)i;
        if (!plan_accelerator_has(question->cluster, o.base.precision) || !fits_with(question, &o, p))
            continue;
        char what[64];
        snprintf(what, sizeof what, "with --precision %s", precision_names[i]);
        print_way(out, what, p);
        any = true;
    }
    return any;
}

static void print_nearest(FILE *out, const struct prediction *n)
{
    char plan[256], peak[32], limit[32], excess[32];
    const struct stage_memory *worst = &n->stage[n->worst_stage];
    fprintf(out, "Nothing fits. Nearest: %s\nneeds %s on stage %d, %s more than the limit of %s:", plan_format(&n->plan, plan, sizeof plan),
            unit_format_bytes(n->peak_bytes, peak, sizeof peak), n->worst_stage,
            unit_format_bytes(n->peak_bytes - n->limit_bytes, excess, sizeof excess), unit_format_bytes(n->limit_bytes, limit, sizeof limit));
    for (int i = 0; i < MEMORY_PARTS; i++)
        if (worst->bytes[i] > 0)
            fprintf(out, " %s %.1f", memory_part_names[i], worst->bytes[i] / UNIT_GIB);
    fprintf(out, " GiB\n");
}

/* What the framework says of one of the plans that fit. */
static void print_refusal(FILE *out, const struct question *question, const struct search_options *options, const struct plan *plan)
{
    static const struct model_words plain = {.activation = ""};
    const struct export_request request = {.plan = plan, .model = question->model, .words = options->words ? options->words : &plain};
    struct err problems = {0};
    char name[256], *text = NULL;
    export_plan((enum export_target)options->launch, &request, &text, NULL, &problems);
    free(text);
    fprintf(out, "No plan that fits is a launch of %s. It refuses, for example, %s:\n", export_target_names[options->launch], plan_format(plan, name, sizeof name));
    for (const char *at = problems.text; *at; at += strcspn(at, "\n"), at += *at == '\n')
        fprintf(out, "  %.*s\n", (int)strcspn(at, "\n"), at);
}

void search_print_advice(FILE *out, const struct question *question, const struct search_options *options, const struct search_result *result)
{
    bool has = plan_accelerator_has(question->cluster, options->base.precision);
    if (!result->has_nearest && options->launch >= 0 && result->rejected[REASON_LAUNCH] > 0) { /* more nodes help nothing */
        print_refusal(out, question, options, &result->example[REASON_LAUNCH]);
        return;
    }
    if (has && !result->has_nearest && options->launch >= 0) {
        fprintf(out, "No plan that keeps the launch rules is a launch of %s; --why names what was left out.\n", export_target_names[options->launch]);
        return;
    }
    struct prediction *p = malloc(sizeof *p);
    if (!p)
        return;
    if (result->has_nearest)
        print_nearest(out, &result->nearest);
    else if (!has)
        fprintf(out, "No plan: accelerator '%s' of cluster '%s' does not support precision '%s'.\n", question->cluster->accelerator.name,
                question->cluster->name, precision_names[options->base.precision]);
    else
        fprintf(out, "No plan keeps the launch rules; --why names them.\n");
    fprintf(out, "What would fit:\n");
    bool any = has ? try_unfixing(out, question, options, p) : try_precisions(out, question, options, p);
    any |= has && try_more_nodes(out, question, options, p);
    if (!any)
        fprintf(out, "  nothing up to %d times as many accelerators\n", SCALE_MAX);
    free(p);
}

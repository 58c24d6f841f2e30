#include "sim/validate_layout.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/search.h"
#include "sim/validate_plan.h"

/* ---- Megatron-core's layout texts ---- */

struct layout {
    uint16_t *counts;
    int stages; /* index of the stage under way */
};

static int repeats(const char **at)
{
    char *end;
    if (**at != '*')
        return 1;
    long n = strtol(*at + 1, &end, 10);
    *at = end;
    return n > 0 && n <= PLAN_CHUNKS_MAX ? (int)n : -1;
}

/* One run of signs up to ')' or the end; without nested parentheses. */
static int read_signs(struct layout *l, const char *at, const char *end)
{
    while (at < end) {
        char sign = *at++;
        int n = repeats(&at);
        if (n < 0 || !strchr("Etm|L", sign))
            return -1;
        if (sign == '|')
            l->stages += n;
        if (l->stages >= PLAN_CHUNKS_MAX)
            return -1;
        if (sign == 't')
            l->counts[l->stages] = (uint16_t)(l->counts[l->stages] + n);
    }
    return 0;
}

int layout_parse(const char *text, uint16_t counts[PLAN_CHUNKS_MAX])
{
    struct layout l = {counts, 0};
    memset(counts, 0, PLAN_CHUNKS_MAX * sizeof *counts);
    while (*text) {
        size_t n = strcspn(text, "(");
        if (read_signs(&l, text, text + n) < 0)
            return -1;
        text += n;
        if (*text != '(')
            break;
        const char *close = strchr(text, ')'), *after = close ? close + 1 : NULL;
        int times = close ? repeats(&after) : -1;
        for (int i = 0; i < times; i++)
            if (read_signs(&l, text + 1, close) < 0)
                return -1;
        if (times < 0)
            return -1;
        text = after;
    }
    return l.stages + 1;
}

/* ---- layouts that are not stated ---- */

/* As even as can be, embedding and head counted as a layer: first and last stage give up layers first; the last one all
 * it has where it also holds MTP modules. */
static void even_split(const struct model *model, int chunks, uint16_t *counts)
{
    int layers = (int)model->layers;
    int most = (layers + chunks - 1) / chunks, surplus = most * chunks - layers;
    for (int i = 0; i < chunks; i++)
        counts[i] = (uint16_t)most;
    while (model->mtp_modules > 0 && surplus > 0 && counts[chunks - 1] > 0) {
        counts[chunks - 1]--;
        surplus--;
    }
    for (int k = 0; surplus > 0; k = (k + 1) % chunks) {
        int at = k == 0 ? 0 : k == 1 ? chunks - 1 : k - 1;
        if (counts[at] > 0) {
            counts[at]--;
            surplus--;
        }
    }
}

static int take_stated(const struct run *run, const struct model *model, struct plan *plan, char *reason)
{
    uint16_t counts[PLAN_CHUNKS_MAX];
    int n = layout_parse(run->pp_layout, counts), layers = 0;
    for (int i = 0; i < n; i++)
        layers += counts[i];
    if (n < 1 || n != plan->pp * plan->vp || layers != model->layers) {
        snprintf(reason, RUN_TEXT_MAX, "pipeline layout '%.60s' holds %d layers on %d stages; model and plan have %lld on %d", run->pp_layout, layers, n,
                 (long long)model->layers, plan->pp * plan->vp);
        return -1;
    }
    memcpy(plan->layers_per_stage, counts, sizeof counts);
    plan->n_layers_per_stage = n;
    return 0;
}

/* "interleaved" without a number: one layer per stage, embedding and head on stages of their own where that divides. */
static void guess_chunks(const struct run *run, const struct model *model, struct plan *plan, char *assumed)
{
    int64_t layers = model->layers % plan->pp == 0 ? model->layers : model->layers + 2;
    if (run->vp > 0 || plan->pp == 1 || !strstr(run->schedule, "nterleaved") || layers % plan->pp != 0)
        return;
    plan->vp = (int)(layers / plan->pp);
    plan->schedule = plan->vp > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B;
    size_t used = strlen(assumed);
    snprintf(assumed + used, RUN_TEXT_MAX - used, "%svp %d", used ? "; " : "", plan->vp);
}

/* Layers moved off the last stage by the FLOPs of the head ("Redis" of arXiv:2411.05288). */
static bool redistribute(const struct run *run, const struct model *model, struct plan *plan)
{
    struct model_flops flops;
    int chunks = plan->pp * plan->vp;
    if (!strstr(run->schedule, "Redis"))
        return false;
    model_count_flops(model, plan->seq_len, &flops);
    double layer = (flops.forward - flops.head) / (double)model->layers;
    if (!search_balanced_split((int)model->layers, chunks, 0, flops.head / layer, plan->layers_per_stage))
        return false;
    plan->n_layers_per_stage = chunks;
    return true;
}

int run_layout(const struct run *run, const struct model *model, struct plan *plan, char *assumed, char *reason)
{
    if (*run->pp_layout && plan->pp > 1)
        return take_stated(run, model, plan, reason);
    guess_chunks(run, model, plan, assumed);
    int64_t chunks = (int64_t)plan->pp * plan->vp;
    if (chunks > PLAN_CHUNKS_MAX || model->layers > UINT16_MAX || chunks > model->layers + 2)
        return -1;
    if (redistribute(run, model, plan) || model->layers % chunks == 0)
        return 0;
    even_split(model, (int)chunks, plan->layers_per_stage);
    plan->n_layers_per_stage = (int)chunks;
    size_t used = strlen(assumed);
    snprintf(assumed + used, RUN_TEXT_MAX - used, "%slayers %d,%d,...,%d over %d stages", used ? "; " : "", plan->layers_per_stage[0],
             plan->layers_per_stage[1], plan->layers_per_stage[chunks - 1], (int)chunks);
    return 0;
}

/* Any bytes as plan.json: read, checked with and without a model and a cluster, named, cut into groups, exported, written and
 * read again.
 * What is read must survive the round trip as the same plan; bits and sentences must agree. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/cluster.h"
#include "cost/model.h"
#include "cost/plan.h"
#include "sim/writers/export.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds)
        abort();
}

static const struct model models[] = {
    {.layers = 46,
     .heads = 96,
     .kv_heads = 8,
     .vocab = 151552,
     .experts = 128,
     .max_positions = 131072,
     .n_kinds = 2,
     .kinds = {{.ffn = 10944}, {.moe = true, .ffn = 1408, .shared_ffn = 1408}}},
    {.layers = 30,
     .heads = 52,
     .kv_heads = 52,
     .vocab = 50257,
     .max_positions = 1024,
     .learned_positions = true,
     .n_kinds = 1,
     .kinds = {{.ffn = 4096}}},
};

static void check(const struct plan *plan, const struct model *model, const struct cluster *cluster)
{
    static struct err warn, err;
    err_clear(&warn);
    err_clear(&err);
    int result = plan_check(plan, model, cluster, &warn, &err);
    require((result < 0) == (plan_broken_rules(plan, model, cluster) != 0));
    require((result < 0) == (err.count > 0));
    require(plan_check(plan, model, cluster, NULL, NULL) == result);
    if (result == 0) {
        int64_t layers = 0;
        for (int chunk = 0; chunk < plan->pp * plan->vp; chunk++)
            layers += plan_chunk_layers(plan, model, chunk);
        require(layers == model->layers);
        require(plan_micro_batches(plan) * plan->dp * plan->micro_batch == plan->global_batch);
    }
}

/* Text or sentences, never both; for plans that keep the rules. */
static void export_all(const struct plan *plan, const struct model *model)
{
    static const struct model_words words = {.activation = "silu"};
    for (int target = 0; target < EXPORT_TARGETS; target++) {
        const struct export_request request = {.plan = plan, .model = model, .words = &words, .json = plan->tp > 1};
        struct err err = {0};
        char *text = NULL;
        int result = export_plan((enum export_target)target, &request, &text, NULL, &err);
        require((result < 0) == (err.count > 0));
        require((result < 0) == (text == NULL));
        require(result < 0 || (strlen(text) > 0 && text[strlen(text) - 1] == '\n'));
        free(text);
    }
}

static void round_trip(const struct plan *plan)
{
    struct plan again;
    struct err err = {0};
    struct json *first = plan_to_json(plan);
    char *text = json_print(first);
    struct json *second = NULL;
    require(json_parse(text, strlen(text), "again", &second, &err) == 0);
    require(plan_parse(second, "again", &again, &err, &err) == 0 && err.count == 0);
    require(plan_compare(plan, &again) == 0);
    json_free(first);
    json_free(second);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct err warn, err;
    struct json *root = NULL;
    struct plan plan;
    char name[64];
    struct cluster cluster = {
        .name = "fuzz", .accelerators = 64, .n_groups = 1, .group = {{.accelerators_per_node = 8}}};
    cluster.accelerator.peak_flop_per_s[RATE_16BIT] = 1e14;
    err_clear(&warn);
    err_clear(&err);
    if (json_parse((const char *)data, size, "fuzz", &root, &err) < 0) {
        require(err.count > 0);
        return 0;
    }
    int result = plan_parse(root, "fuzz", &plan, &warn, &err);
    json_free(root);
    require((result < 0) == (err.count > 0));
    if (result < 0)
        return 0;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        check(&plan, &models[i], NULL);
        check(&plan, &models[i], &cluster);
        if (plan_broken_rules(&plan, &models[i], NULL) == 0)
            export_all(&plan, &models[i]);
    }
    if (plan_broken_rules(&plan, NULL, NULL) == 0)
        export_all(&plan, NULL);
    for (int group = 0; group < GROUPS; group++) {
        struct rank_group ranks;
        plan_rank_group(&plan, (enum plan_group)group, &ranks);
        require(ranks.n_dims >= 0 && ranks.n_dims <= GROUP_DIMS_MAX);
    }
    require(strlen(plan_format(&plan, name, sizeof name)) < sizeof name);
    round_trip(&plan);
    return 0;
}

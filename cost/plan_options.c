/* The fields of plan.json beyond sizes and words: what selective recompute
 * repeats, CUDA graphs, where the vocabulary lives, hybrid sharding, the optimizer's
 * states. Names as in Megatron-core and torchtitan. */
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/base/names.h"
#include "cost/plan_internal.h"

static const char *const state_names[] = {"fp32", "bf16", "fp8", NULL};
static const double state_bytes[] = {4, 2, 1};

static int read_modules(struct json_at at, struct plan *plan, struct err *err)
{
    const struct json *list = json_get(at.node, "recompute_modules");
    char known[160];
    if (!list || json_type(list) == JSON_NULL)
        return 0;
    if (json_type(list) != JSON_ARRAY)
        return err_add(err, "file '%s': field 'recompute_modules' is %s; it must be a list of %s", at.file, json_type_name(list),
                       names_join(recompute_module_names, known, sizeof known));
    for (const struct json *item = json_first(list); item; item = json_next(item)) {
        int bit = json_type(item) == JSON_STRING ? names_find(recompute_module_names, json_text(item)) : -1;
        if (bit < 0)
            return err_add(err, "file '%s': field 'recompute_modules' holds %s%.64s, which is none of %s", at.file,
                           json_type(item) == JSON_STRING ? "" : json_type_name(item), json_type(item) == JSON_STRING ? json_text(item) : "",
                           names_join(recompute_module_names, known, sizeof known));
        plan->recompute_modules |= 1U << bit;
    }
    return 0;
}

int plan_read_options(struct json_at at, struct plan *plan, struct err *err)
{
    int graph = (int)plan->cuda_graph, vocab = (int)plan->vocab_parallel, loss = (int)plan->cross_entropy, state = -1, bad = read_modules(at, plan, err) < 0;
    bad |= json_read_enum(at, "cuda_graph", cuda_graph_names, &graph, err) < 0;
    bad |= json_read_enum(at, "vocab_parallel", vocab_parallel_names, &vocab, err) < 0;
    bad |= json_read_enum(at, "cross_entropy", cross_entropy_names, &loss, err) < 0;
    bad |= json_read_bool(at, "dropout", &plan->dropout, err) < 0;
    bad |= json_read_enum(at, "optimizer_state_dtype", state_names, &state, err) < 0;
    bad |= json_read_int32(at, "dp_shard", 0, 1 << 24, &plan->dp_shard, err) < 0;
    bad |= json_read_double(at, "optimizer_offload", 0, 1, &plan->optimizer_offload, err) < 0;
    plan->cuda_graph = (enum cuda_graph)graph;
    plan->vocab_parallel = (enum vocab_parallel)vocab;
    plan->cross_entropy = (enum cross_entropy)loss;
    plan->moment_bytes = state >= 0 ? state_bytes[state] : plan->moment_bytes;
    if (!bad && plan->dp_shard > 0 && (int64_t)plan->dp * plan->cp % plan->dp_shard != 0)
        return err_add(err, "file '%s': field 'dp_shard' is %d, which does not divide dp x cp = %lld", at.file, plan->dp_shard,
                       (long long)plan->dp * plan->cp);
    return bad ? -1 : 0;
}

void plan_put_options(struct json *object, const struct plan *plan)
{
    if (plan->recompute_modules) {
        struct json *list = json_put_array(object, "recompute_modules");
        for (int i = 0; i < RECOMPUTE_MODULES; i++)
            if (plan->recompute_modules >> i & 1)
                json_push_string(list, recompute_module_names[i]);
    } else {
        json_put_null(object, "recompute_modules");
    }
    json_put_string(object, "cuda_graph", cuda_graph_names[plan->cuda_graph]);
    json_put_string(object, "vocab_parallel", vocab_parallel_names[plan->vocab_parallel]);
    json_put_string(object, "cross_entropy", cross_entropy_names[plan->cross_entropy]);
    json_put_bool(object, "dropout", plan->dropout);
    json_put_int(object, "dp_shard", plan->dp_shard);
    json_put_number(object, "optimizer_offload", plan->optimizer_offload);
    const char *state = NULL;
    for (int i = 0; state_names[i] && !state; i++)
        if (!(plan->moment_bytes < state_bytes[i]))
            state = state_names[i];
    json_put_string(object, "optimizer_state_dtype", state);
}

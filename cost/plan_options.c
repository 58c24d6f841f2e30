/* The fields of plan.json beyond sizes and words: what selective recompute
 * repeats, CUDA graphs, where the vocabulary lives, hybrid sharding, the optimizer's
 * states, what waits on the host. Names as in Megatron-core and torchtitan. */
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/base/names.h"
#include "cost/plan_internal.h"

static const char *const state_names[] = {"fp32", "bf16", "fp8", NULL};
static const double state_bytes[] = {4, 2, 1};

/* A list of words into bits. */
static int read_modules(struct json_at at, const char *field, const char *const *names, uint32_t *bits, struct err *err)
{
    const struct json *list = json_get(at.node, field);
    char known[160];
    names_join(names, known, sizeof known);
    if (!list || json_type(list) == JSON_NULL)
        return 0;
    if (json_type(list) != JSON_ARRAY)
        return err_add(err, "file '%s': field '%s' is %s; it must be a list of %s", at.file, field, json_type_name(list), known);
    uint32_t read = 0;
    for (const struct json *item = json_first(list); item; item = json_next(item)) {
        bool is_text = json_type(item) == JSON_STRING;
        int bit = is_text ? names_find(names, json_text(item)) : -1;
        const char *near = is_text && bit < 0 ? names_nearest(names, json_text(item)) : NULL;
        if (near)
            return err_add(err, "file '%s': field '%s' holds '%.64s'; did you mean '%s'? (allowed: %s)", at.file, field, json_text(item), near, known);
        if (bit < 0)
            return err_add(err, "file '%s': field '%s' holds %s%.64s%s, which is none of %s", at.file, field, is_text ? "'" : "",
                           is_text ? json_text(item) : json_type_name(item), is_text ? "'" : "", known);
        read |= 1U << bit;
    }
    *bits = read;
    return 0;
}

static void put_modules(struct json *object, const char *field, const char *const *names, uint32_t bits)
{
    if (!bits) {
        json_put_null(object, field);
        return;
    }
    struct json *list = json_put_array(object, field);
    for (int i = 0; names[i]; i++)
        if (bits >> i & 1)
            json_push_string(list, names[i]);
}

int plan_read_options(struct json_at at, struct plan *plan, struct err *err)
{
    int graph = (int)plan->cuda_graph, vocab = (int)plan->vocab_parallel, loss = (int)plan->cross_entropy, state = -1;
    int bad = read_modules(at, "recompute_modules", recompute_module_names, &plan->recompute_modules, err) < 0;
    bad |= read_modules(at, "offload_modules", offload_module_names, &plan->offload_modules, err) < 0;
    bad |= read_modules(at, "lora_modules", lora_module_names, &plan->lora_modules, err) < 0;
    bad |= json_read_int32(at, "lora_rank", 0, UINT16_MAX, &plan->lora_rank, err) < 0;
    bad |= json_read_int32(at, "activation_offload_layers", 0, UINT16_MAX, &plan->offload_layers, err) < 0;
    bad |= json_read_enum(at, "cuda_graph", cuda_graph_names, &graph, err) < 0;
    bad |= json_read_enum(at, "vocab_parallel", vocab_parallel_names, &vocab, err) < 0;
    bad |= json_read_enum(at, "cross_entropy", cross_entropy_names, &loss, err) < 0;
    bad |= json_read_bool(at, "dropout", &plan->dropout, err) < 0;
    bad |= json_read_bool(at, "fused_grouped_mlp", &plan->fused_grouped_mlp, err) < 0;
    bad |= json_read_bool(at, "fp8_attention", &plan->fp8_attention, err) < 0;
    bad |= json_read_bool(at, "fp8_param_gather", &plan->fp8_param_gather, err) < 0;
    bad |= json_read_enum(at, "optimizer_state_dtype", state_names, &state, err) < 0;
    bad |= json_read_int32(at, "dp_shard", 0, 1 << 24, &plan->dp_shard, err) < 0;
    bad |= json_read_double(at, "optimizer_offload", 0, 1, &plan->optimizer_offload, err) < 0;
    plan->cuda_graph = (enum cuda_graph)graph;
    plan->vocab_parallel = (enum vocab_parallel)vocab;
    plan->cross_entropy = (enum cross_entropy)loss;
    plan->moment_bytes = state >= 0 ? state_bytes[state] : plan->moment_bytes;
    return bad ? -1 : 0;
}

void plan_put_options(struct json *object, const struct plan *plan)
{
    put_modules(object, "recompute_modules", recompute_module_names, plan->recompute_modules);
    json_put_string(object, "cuda_graph", cuda_graph_names[plan->cuda_graph]);
    json_put_string(object, "vocab_parallel", vocab_parallel_names[plan->vocab_parallel]);
    json_put_string(object, "cross_entropy", cross_entropy_names[plan->cross_entropy]);
    json_put_bool(object, "dropout", plan->dropout);
    json_put_bool(object, "fused_grouped_mlp", plan->fused_grouped_mlp);
    json_put_bool(object, "fp8_attention", plan->fp8_attention);
    json_put_bool(object, "fp8_param_gather", plan->fp8_param_gather);
    json_put_int(object, "dp_shard", plan->dp_shard);
    json_put_number(object, "optimizer_offload", plan->optimizer_offload);
    json_put_int(object, "lora_rank", plan->lora_rank);
    put_modules(object, "lora_modules", lora_module_names, plan->lora_modules);
    json_put_int(object, "activation_offload_layers", plan->offload_layers);
    put_modules(object, "offload_modules", offload_module_names, plan->offload_modules);
    const char *state = NULL;
    for (int i = 0; state_names[i] && !state; i++)
        if (!(plan->moment_bytes < state_bytes[i]))
            state = state_names[i];
    json_put_string(object, "optimizer_state_dtype", state);
}

/* plan.json (contract.md) in and out. All problems of one file are reported at
 * once; what other tools call a field is answered with our name for it. Whether the
 * numbers make a plan is plan_check's question. */
#include "cost/plan.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/file.h"
#include "cost/base/json.h"
#include "cost/base/names.h"
#include "cost/plan_internal.h"

enum { SIZE_MAX_RANKS = 1 << 24, LAYERS_MAX = UINT16_MAX };
static const int64_t count_max = (int64_t)1 << 40; /* sequences, tokens */

static const char *const grad_dtype_names[] = {"fp32", "bf16", NULL};
static const double grad_dtype_bytes[] = {4, 2};

/* clang-format off */
static const char *const fields[] = {
    "tp", "sequence_parallel", "cp", "context_parallel", "pp", "vp", "dp", "ep", "etp", "zero", "micro_batch",
    "global_batch", "seq_len", "schedule", "schedule_group", "recompute", "recompute_layers", "precision", "optimizer",
    "grad_dtype", "attention", "moe_dispatcher", "layers_per_stage", "overlap", "rank_order", "stack",
    "recompute_modules", "cuda_graph", "vocab_parallel", "dp_shard", "optimizer_offload", "optimizer_state_dtype",
    "cross_entropy", "dropout", "activation_offload_layers", "offload_modules", "lora_rank", "lora_modules",
    "fused_grouped_mlp", "fp8_attention", "fp8_param_gather", NULL,
};
/* clang-format on */
static const char *const overlap_fields[] = {"dp_grad", "dp_param", "tp", "ep", "p2p", NULL};

/* --- names of other tools ------------------------------------------------- */

/* Lower case with '_', of Megatron-LM, DeepSpeed, torchtitan, NeMo and daily speech. */
static const struct {
    const char *theirs, *ours;
} foreign_names[] = {
    {"tensor_parallel", "tp"},
    {"tensor_parallel_size", "tp"},
    {"tensor_parallel_degree", "tp"},
    {"tensor_model_parallel", "tp"},
    {"tensor_model_parallel_size", "tp"},
    {"tp_size", "tp"},
    {"mp", "tp"},
    {"model_parallel_size", "tp"},
    {"pipeline_parallel", "pp"},
    {"pipeline_parallel_size", "pp"},
    {"pipeline_parallel_degree", "pp"},
    {"pipeline_model_parallel_size", "pp"},
    {"pipeline_stages", "pp"},
    {"pp_size", "pp"},
    {"virtual_pipeline_parallel", "vp"},
    {"virtual_pipeline_parallel_size", "vp"},
    {"virtual_pipeline_model_parallel_size", "vp"},
    {"num_virtual_stages_per_pipeline_rank", "vp"},
    {"num_layers_per_virtual_pipeline_stage", "vp"},
    {"interleave", "vp"},
    {"vpp", "vp"},
    {"data_parallel", "dp"},
    {"data_parallel_size", "dp"},
    {"data_parallel_shard_degree", "dp_shard"},
    {"data_parallel_replicate_degree", "dp"},
    {"dp_size", "dp"},
    {"context_parallel_size", "cp"},
    {"context_parallel_degree", "cp"},
    {"cp_size", "cp"},
    {"cp_comm_type", "context_parallel"},
    {"sequence_parallel_size", "cp"},
    {"ulysses_sequence_parallel_size", "cp"},
    {"expert_parallel", "ep"},
    {"expert_parallel_size", "ep"},
    {"expert_parallel_degree", "ep"},
    {"expert_model_parallel_size", "ep"},
    {"ep_size", "ep"},
    {"expert_tensor_parallel", "etp"},
    {"expert_tensor_parallel_size", "etp"},
    {"expert_tensor_parallel_degree", "etp"},
    {"sp", "sequence_parallel"},
    {"sequence_parallelism", "sequence_parallel"},
    {"enable_sequence_parallel", "sequence_parallel"},
    {"zero_stage", "zero"},
    {"zero_optimization", "zero"},
    {"use_distributed_optimizer", "zero"},
    {"sharding", "zero"},
    {"mbs", "micro_batch"},
    {"micro_batch_size", "micro_batch"},
    {"microbatch_size", "micro_batch"},
    {"local_batch_size", "micro_batch"},
    {"train_micro_batch_size_per_gpu", "micro_batch"},
    {"per_device_train_batch_size", "micro_batch"},
    {"gbs", "global_batch"},
    {"batch_size", "global_batch"},
    {"global_batch_size", "global_batch"},
    {"train_batch_size", "global_batch"},
    {"gradient_accumulation_steps", "global_batch"},
    {"num_microbatches", "global_batch"},
    {"micro_batches", "global_batch"},
    {"seq", "seq_len"},
    {"seqlen", "seq_len"},
    {"seq_length", "seq_len"},
    {"sequence_length", "seq_len"},
    {"max_seq_len", "seq_len"},
    {"context_length", "seq_len"},
    {"pipeline_schedule", "schedule"},
    {"pipeline_parallel_schedule", "schedule"},
    {"pp_schedule", "schedule"},
    {"microbatch_group_size_per_vp_stage", "schedule_group"},
    {"microbatch_group_size_per_virtual_pipeline_stage", "schedule_group"},
    {"recompute_granularity", "recompute"},
    {"activation_checkpointing", "recompute"},
    {"activation_checkpoint", "recompute"},
    {"gradient_checkpointing", "recompute"},
    {"recompute_num_layers", "recompute_layers"},
    {"dtype", "precision"},
    {"param_dtype", "precision"},
    {"mixed_precision", "precision"},
    {"bf16", "precision"},
    {"fp16", "precision"},
    {"fp8", "precision"},
    {"main_grads_dtype", "grad_dtype"},
    {"grad_reduce_in_bf16", "grad_dtype"},
    {"accumulate_allreduce_grads_in_fp32", "grad_dtype"},
    {"attention_backend", "attention"},
    {"moe_token_dispatcher_type", "moe_dispatcher"},
    {"moe_flex_dispatcher_backend", "moe_dispatcher"},
    {"cutedsl_fused_grouped_mlp", "fused_grouped_mlp"},
    {"fp8_dot_product_attention", "fp8_attention"},
    {"fp8_param", "fp8_param_gather"},
    {"fp8_params", "fp8_param_gather"},
    {"enable_fsdp_float8_all_gather", "fp8_param_gather"},
    {"use_flash_attn", "attention"},
    {"flash_attention", "attention"},
    {"layers_per_chunk", "layers_per_stage"},
    {"decoder_first_pipeline_num_layers", "layers_per_stage"},
    {"decoder_last_pipeline_num_layers", "layers_per_stage"},
    {"num_layers_in_first_pipeline_stage", "layers_per_stage"},
    {"num_layers_in_last_pipeline_stage", "layers_per_stage"},
    {"pipeline_model_parallel_layout", "layers_per_stage"},
    {"overlap_grad_reduce", "overlap.dp_grad"},
    {"overlap_param_gather", "overlap.dp_param"},
    {"tp_comm_overlap", "overlap.tp"},
    {"overlap_moe_expert_parallel_comm", "overlap.ep"},
    {"overlap_p2p_comm", "overlap.p2p"},
    {"order", "rank_order"},
    {"parallel_order", "rank_order"},
    {"framework", "stack"},
    {"enable_cuda_graph", "cuda_graph"},
    {"cuda_graph_impl", "cuda_graph"},
    {"vocab_parallel_size", "vocab_parallel"},
    {"hsdp", "dp_shard"},
    {"cpu_offload", "optimizer_offload"},
    {"optimizer_cpu_offload", "optimizer_offload"},
    {"optimizer_offload_fraction", "optimizer_offload"},
    {"lora_r", "lora_rank"},
    {"lora_dim", "lora_rank"},
    {"peft", "lora_rank"},
    {"target_modules", "lora_modules"},
    {"cpu_offloading_num_layers", "activation_offload_layers"},
    {"cpu_offloading", "activation_offload_layers"},
    {"fine_grained_activation_offloading", "offload_modules"},
    {"use_precision_aware_optimizer", "optimizer_state_dtype"},
    {"exp_avg_dtype", "optimizer_state_dtype"},
    {"backend", "stack"},
};

/* "--Tensor-Parallel" and "tensor_parallel" are the same word. */
static bool same_word(const char *theirs, const char *key)
{
    key += strspn(key, "-");
    for (; *theirs != '\0' && *key != '\0'; theirs++, key++)
        if (*theirs != (*key == '-' ? '_' : tolower((unsigned char)*key)))
            return false;
    return *theirs == *key;
}

enum { FOREIGN_NAMES = sizeof foreign_names / sizeof foreign_names[0], NEAR_MIN = 8 };

/* Long words may be mistyped; of short ones everything is near. */
static const char *our_name(const char *key)
{
    const char *theirs[FOREIGN_NAMES + 1] = {NULL};
    for (int i = 0; i < FOREIGN_NAMES; i++)
        theirs[i] = foreign_names[i].theirs;
    const char *word = NULL;
    for (int i = 0; i < FOREIGN_NAMES && word == NULL; i++)
        if (same_word(theirs[i], key))
            word = theirs[i];
    if (word == NULL && strlen(key) >= NEAR_MIN && names_nearest(fields, key) == NULL)
        word = names_nearest(theirs, key);
    return word == NULL ? NULL : foreign_names[names_find(theirs, word)].ours;
}

/* Sentences for fields that other tools know; returns how many. They may stand in
 * json_check_keys' list then, so that no field is named twice. */
static int check_foreign_keys(struct json_at at, const char **known, size_t room, struct err *err)
{
    int found = 0;
    for (const struct json *child = json_first(at.node); child != NULL; child = json_next(child)) {
        const char *ours = names_find(fields, json_key(child)) < 0 ? our_name(json_key(child)) : NULL;
        if (ours == NULL)
            continue;
        err_add(err, "file '%s': field '%.64s' is unknown; plan.json calls it '%s'", at.file, json_key(child), ours);
        if ((size_t)found < room)
            known[found] = json_key(child);
        found++;
    }
    return found;
}

static int check_keys(struct json_at at, struct err *warn, struct err *err)
{
    enum { OURS = sizeof fields / sizeof fields[0] - 1, THEIRS = 128 };
    const char *known[OURS + THEIRS + 1] = {NULL};
    memcpy(known, fields, sizeof fields);
    int found = check_foreign_keys(at, known + OURS, THEIRS, err);
    int result = json_check_keys(at, known, warn, err);
    return found > 0 ? -1 : result;
}

/* --- reading -------------------------------------------------------------- */

static int worse(int a, int b)
{
    return a < 0 || b < 0 ? -1 : 0;
}

/* "tp": true or {"size": 8} are type errors of json_read_int32; here only the range is ours. */
static int read_sizes(struct json_at at, struct plan *plan, struct err *err)
{
    const struct {
        const char *key;
        int *target;
    } sizes[] = {{"tp", &plan->tp}, {"cp", &plan->cp}, {"pp", &plan->pp},   {"vp", &plan->vp},
                 {"dp", &plan->dp}, {"ep", &plan->ep}, {"etp", &plan->etp}, {"micro_batch", &plan->micro_batch}};
    int result = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        result = worse(result, json_read_int32(at, sizes[i].key, 1, SIZE_MAX_RANKS, sizes[i].target, err));
    result = worse(result, json_read_int32(at, "zero", 0, 3, &plan->zero, err));
    result = worse(result, json_read_int(at, "global_batch", 1, count_max, &plan->global_batch, err));
    result = worse(result, json_read_int(at, "seq_len", 1, count_max, &plan->seq_len, err));
    result = worse(result, json_read_int32(at, "schedule_group", 0, SIZE_MAX_RANKS, &plan->schedule_group, err));
    return worse(result, json_read_int32(at, "recompute_layers", 0, LAYERS_MAX, &plan->recompute_layers, err));
}

static int read_words(struct json_at at, struct plan *plan, struct err *err)
{
    int schedule = (int)plan->schedule, recompute = (int)plan->recompute, precision = (int)plan->precision;
    int optimizer = (int)plan->optimizer, attention = (int)plan->attention, dispatcher = (int)plan->moe_dispatcher, kind = (int)plan->context_parallel,
        grad = -1;
    int result = json_read_bool(at, "sequence_parallel", &plan->sequence_parallel, err);
    const struct json *ring = json_get(at.node, "context_parallel");
    if (ring != NULL && json_type(ring) == JSON_NUMBER)
        result = err_add(
            err, "file '%s': field 'context_parallel' is a number; it is the kind (ring, ulysses), 'cp' is the size",
            at.file);
    else
        result = worse(result, json_read_enum(at, "context_parallel", context_parallel_names, &kind, err));
    result = worse(result, json_read_enum(at, "schedule", schedule_names, &schedule, err));
    result = worse(result, json_read_enum(at, "recompute", recompute_names, &recompute, err));
    result = worse(result, json_read_enum(at, "precision", precision_names, &precision, err));
    result = worse(result, json_read_enum(at, "optimizer", optimizer_names, &optimizer, err));
    result = worse(result, json_read_enum(at, "attention", attention_names, &attention, err));
    result = worse(result, json_read_enum(at, "moe_dispatcher", moe_dispatcher_names, &dispatcher, err));
    result = worse(result, json_read_enum(at, "grad_dtype", grad_dtype_names, &grad, err));
    plan->context_parallel = (enum context_parallel)kind;
    plan->schedule = (enum plan_schedule)schedule;
    plan->recompute = (enum recompute)recompute;
    plan->precision = (enum precision)precision;
    plan->optimizer = (enum optimizer)optimizer;
    plan->attention = (enum attention_kernel)attention;
    plan->moe_dispatcher = (enum moe_dispatcher)dispatcher;
    plan->grad_bytes = grad >= 0 ? grad_dtype_bytes[grad] : plan->grad_bytes;
    return result < 0 ? -1 : 0;
}

static int read_overlap(struct json_at at, struct plan *plan, struct err *warn, struct err *err)
{
    struct json_at inner;
    char path[32];
    int found = json_read_object(at, "overlap", &inner, path, sizeof path, err);
    if (found <= 0)
        return found;
    bool *const targets[] = {&plan->overlap.dp_grad, &plan->overlap.dp_param, &plan->overlap.tp, &plan->overlap.ep,
                             &plan->overlap.p2p};
    int result = json_check_keys(inner, overlap_fields, warn, err);
    for (int i = 0; overlap_fields[i] != NULL; i++)
        result = worse(result, json_read_bool(inner, overlap_fields[i], targets[i], err));
    return result;
}

static int read_stack(struct json_at at, struct plan *plan, struct err *err)
{
    const char *stack;
    int found = json_read_string(at, "stack", &stack, err);
    if (found <= 0)
        return found;
    if (stack[0] == '\0' || strlen(stack) >= sizeof plan->stack)
        return err_add(err, "file '%s': field 'stack' is '%.64s'; it must be a name of 1 to %d characters", at.file,
                       stack, (int)sizeof plan->stack - 1);
    memset(plan->stack, 0, sizeof plan->stack);
    memcpy(plan->stack, stack, strlen(stack));
    return 0;
}

/* Five axes joined by '-', each once. */
static int read_rank_order(struct json_at at, struct plan *plan, struct err *err)
{
    const char *text;
    int found = json_read_string(at, "rank_order", &text, err);
    if (found <= 0)
        return found;
    int n = 0;
    enum axis order[AXES] = {0};
    const char *word = text;
    bool good = strlen(text) == 3 * AXES - 1;
    for (; good && n < AXES; word += 3, n++) {
        char name[3] = {word[0], word[1], '\0'};
        int axis = names_find(axis_names, name);
        good = axis >= 0 && (n == AXES - 1 || word[2] == '-');
        if (good)
            order[n] = (enum axis)axis;
    }
    struct plan trial = *plan;
    memcpy(trial.rank_order, order, sizeof order);
    if (!good || !plan_order_is_permutation(&trial))
        return err_add(
            err,
            "file '%s': field 'rank_order' is '%.64s'; it must name tp, cp, ep, dp and pp once each, fastest "
            "first, as in 'tp-cp-ep-dp-pp'",
            at.file, text);
    memcpy(plan->rank_order, order, sizeof order);
    return 0;
}

static int read_layers(struct json_at at, struct plan *plan, struct err *err)
{
    const struct json *list = json_get(at.node, "layers_per_stage");
    if (list == NULL || json_type(list) == JSON_NULL)
        return 0;
    if (json_type(list) != JSON_ARRAY)
        return err_add(err,
                       "file '%s': field 'layers_per_stage' is %s; it must be null or a list of pp x vp layer counts",
                       at.file, json_type_name(list));
    int n = json_length(list);
    if (n < 1 || n > PLAN_CHUNKS_MAX)
        return err_add(err, "file '%s': field 'layers_per_stage' has %d entries; allowed: pp x vp of them, 1 to %d",
                       at.file, n, PLAN_CHUNKS_MAX);
    int i = 0;
    for (const struct json *item = json_first(list); item != NULL; item = json_next(item), i++) {
        double count = json_type(item) == JSON_NUMBER ? json_double(item) : -1;
        if (!(count >= 0 && count <= LAYERS_MAX) || count != (double)(uint16_t)count)
            return err_add(
                err, "file '%s': field 'layers_per_stage[%d]' is no layer count; allowed: whole numbers from 0 to %d",
                at.file, i, LAYERS_MAX);
        plan->layers_per_stage[i] = (uint16_t)count;
    }
    plan->n_layers_per_stage = n;
    return 0;
}

int plan_parse_onto(const struct json *root, const char *file, struct plan *plan, struct err *warn, struct err *err)
{
    struct json_at at = {file, "", root};
    if (json_type(root) != JSON_OBJECT)
        return err_add(err, "file '%s': a plan is an object, but this is %s", file, json_type_name(root));
    struct plan read = *plan;
    int result = check_keys(at, warn, err);
    result = worse(result, read_sizes(at, &read, err));
    result = worse(result, read_words(at, &read, err));
    result = worse(result, read_overlap(at, &read, warn, err));
    result = worse(result, read_layers(at, &read, err));
    result = worse(result, read_rank_order(at, &read, err));
    result = worse(result, read_stack(at, &read, err));
    result = worse(result, plan_read_options(at, &read, err));
    if (result == 0)
        *plan = read;
    return result;
}

int plan_parse(const struct json *root, const char *file, struct plan *ret_plan, struct err *warn, struct err *err)
{
    struct plan plan;
    plan_defaults(&plan);
    int result = plan_parse_onto(root, file, &plan, warn, err);
    if (result == 0)
        *ret_plan = plan;
    return result;
}

int plan_load(const char *path, struct plan *ret_plan, struct err *warn, struct err *err)
{
    struct json *root;
    if (json_load(path, &root, err) < 0)
        return -1;
    int result = plan_parse(root, path, ret_plan, warn, err);
    json_free(root);
    return result;
}

/* --- writing -------------------------------------------------------------- */

static void put_count_or_null(struct json *object, const char *key, int value, bool given)
{
    if (given)
        json_put_int(object, key, value);
    else
        json_put_null(object, key);
}

static void put_layers(struct json *object, const struct plan *plan)
{
    if (plan->n_layers_per_stage == 0) {
        json_put_null(object, "layers_per_stage");
        return;
    }
    struct json *list = json_put_array(object, "layers_per_stage");
    for (int i = 0; i < plan->n_layers_per_stage; i++)
        json_push_number(list, plan->layers_per_stage[i]);
}

static void put_overlap(struct json *object, const struct plan *plan)
{
    const bool values[] = {plan->overlap.dp_grad, plan->overlap.dp_param, plan->overlap.tp, plan->overlap.ep,
                           plan->overlap.p2p};
    struct json *overlap = json_put_object(object, "overlap");
    for (int i = 0; overlap_fields[i] != NULL; i++)
        json_put_bool(overlap, overlap_fields[i], values[i]);
}

static void put_rank_order(struct json *object, const struct plan *plan)
{
    char text[3 * AXES];
    for (int i = 0; i < AXES; i++) {
        memcpy(text + 3 * i, axis_names[plan->rank_order[i]], 2);
        text[3 * i + 2] = i < AXES - 1 ? '-' : '\0';
    }
    json_put_string(object, "rank_order", text);
}

static void put_sizes(struct json *object, const struct plan *plan)
{
    json_put_int(object, "tp", plan->tp);
    json_put_bool(object, "sequence_parallel", plan->sequence_parallel);
    json_put_int(object, "cp", plan->cp);
    json_put_string(object, "context_parallel", context_parallel_names[plan->context_parallel]);
    json_put_int(object, "pp", plan->pp);
    json_put_int(object, "vp", plan->vp);
    json_put_int(object, "dp", plan->dp);
    json_put_int(object, "ep", plan->ep);
    json_put_int(object, "etp", plan->etp);
    json_put_int(object, "zero", plan->zero);
    json_put_int(object, "micro_batch", plan->micro_batch);
    json_put_int(object, "global_batch", plan->global_batch);
    json_put_int(object, "seq_len", plan->seq_len);
}

struct json *plan_to_json(const struct plan *plan)
{
    struct json *object = json_new_object();
    put_sizes(object, plan);
    json_put_string(object, "schedule", schedule_names[plan->schedule]);
    put_count_or_null(object, "schedule_group", plan->schedule_group, plan->schedule_group > 0);
    json_put_string(object, "recompute", recompute_names[plan->recompute]);
    put_count_or_null(object, "recompute_layers", plan->recompute_layers, plan->recompute_layers >= 0);
    json_put_string(object, "precision", precision_names[plan->precision]);
    json_put_string(object, "optimizer", optimizer_names[plan->optimizer]);
    const char *grad = NULL;
    for (int i = 0; grad_dtype_names[i] != NULL; i++)
        if (plan->grad_bytes > 0 && !(plan->grad_bytes < grad_dtype_bytes[i]) && grad == NULL)
            grad = grad_dtype_names[i];
    json_put_string(object, "grad_dtype", grad);
    json_put_string(object, "attention", attention_names[plan->attention]);
    json_put_string(object, "moe_dispatcher", moe_dispatcher_names[plan->moe_dispatcher]);
    put_layers(object, plan);
    put_overlap(object, plan);
    plan_put_options(object, plan);
    put_rank_order(object, plan);
    json_put_string(object, "stack", plan->stack);
    return object;
}

int plan_save(const char *path, const struct plan *plan, struct err *err)
{
    struct json *root = plan_to_json(plan);
    char *text = json_print(root);
    int result = file_write_atomic(path, text, strlen(text), err);
    free(text);
    json_free(root);
    return result;
}

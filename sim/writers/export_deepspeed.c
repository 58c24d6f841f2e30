/* A plan as DeepSpeed's ds_config.json.
 *
 * Keys are those of deepspeed/runtime/config.py, zero/config.py and the documentation
 * (deepspeed.ai/docs/config-json). The file says batch, number format, ZeRO, offloading of
 * the optimizer, tensor parallelism (AutoTP, ZeRO 0 to 2) and Ulysses sequence parallelism;
 * pipelines and experts are built by the model's own code, which a file cannot do.
 *   train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x dp */
#include <stdlib.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/model.h"
#include "sim/writers/export_internal.h"

static struct json *put_switch(struct json *root, const char *key)
{
    struct json *object = json_put_object(root, key);
    json_put_bool(object, "enabled", true);
    return object;
}

static void put_batch(const struct exporter *e, struct json *root)
{
    const struct plan *p = e->plan;
    json_put_int(root, "train_batch_size", p->global_batch);
    json_put_int(root, "train_micro_batch_size_per_gpu", p->micro_batch);
    json_put_int(root, "gradient_accumulation_steps", plan_micro_batches(p));
}

static void put_precision(const struct exporter *e, struct json *root)
{
    const struct plan *p = e->plan;
    if (p->precision == PRECISION_BF16)
        put_switch(root, "bf16");
    else if (p->precision == PRECISION_FP16)
        put_switch(root, "fp16");
    else if (p->precision != PRECISION_FP32)
        export_refuse(e, "precision", precision_names[p->precision], "fp32, fp16 and bf16", "bf16");
    if (p->grad_bytes > 0)
        json_put_string(json_put_object(root, "data_types"), "grad_accum_dtype", p->grad_bytes < 4 ? "bf16" : "fp32");
    if (p->moment_bytes < 4 && p->optimizer == OPTIMIZER_ADAMW)
        export_refuse(e, "optimizer_state_dtype", p->moment_bytes < 2 ? "fp8" : "bf16", "moments in fp32 beside fp32 master weights", "fp32");
    else if (p->moment_bytes < 4)
        err_add(e->warn, "optimizer_state_dtype changes nothing: sgd has no moments");
    if (p->fp8_attention)
        err_add(e->warn, "fp8_attention changes nothing: precision is %s", precision_names[p->precision]);
    if (!p->fp8_param_gather)
        err_add(e->warn, "fp8_param_gather changes nothing: precision is %s", precision_names[p->precision]);
}

static void put_offload(const struct exporter *e, struct json *zero)
{
    const struct plan *p = e->plan;
    if (p->optimizer_offload <= 0)
        return;
    struct json *offload = json_put_object(zero, "offload_optimizer");
    json_put_string(offload, "device", "cpu");
    json_put_bool(offload, "pin_memory", true);
    if (p->zero == 3)
        json_put_number(offload, "ratio", p->optimizer_offload);
    if (p->zero == 0)
        export_refuse(e, "optimizer_offload", export_fraction(p->optimizer_offload).text, "it with zero 1, 2 or 3", "0, or zero 1");
    else if (p->zero < 3 && p->optimizer_offload < 1)
        export_refuse(e, "optimizer_offload", export_fraction(p->optimizer_offload).text, "0 or 1 with zero 1 and 2, any share with zero 3",
                      p->optimizer_offload < 0.5 ? "0" : "1");
}

static void put_zero(const struct exporter *e, struct json *root)
{
    const struct plan *p = e->plan;
    bool several = export_data_ranks(p) > 1, part = export_shard_ranks(p) < export_data_ranks(p);
    struct json *zero = json_put_object(root, "zero_optimization");
    json_put_int(zero, "stage", p->zero);
    if (p->zero > 0) {
        json_put_bool(zero, "overlap_comm", p->overlap.dp_grad);
        json_put_bool(zero, "reduce_scatter", true);
        json_put_bool(zero, "contiguous_gradients", true);
    } else if (p->overlap.dp_grad && several) {
        err_add(e->warn, "overlap.dp_grad: DeepSpeed reduces gradients after backward with zero 0; it overlaps them with zero 1 to 3");
    }
    if ((p->zero == 1 || p->zero == 2) && p->overlap.dp_param && several)
        err_add(e->warn, "overlap.dp_param: DeepSpeed gathers parameters after the step with zero 1 and 2, not beside forward");
    if (p->zero == 3 && !p->overlap.dp_param && several) {
        json_put_int(zero, "stage3_prefetch_bucket_size", 0);
    }
    if (p->zero == 3 && part)
        json_put_int(zero, "mics_shard_size", export_shard_ranks(p));
    else if (p->zero > 0 && part)
        export_refuse(e, "dp_shard", export_number(p->dp_shard).text, "shards over all of dp x cp with zero 1 and 2 (MiCS is zero 3)", "0, or zero 3");
    else if (p->dp_shard > 0 && p->zero == 0)
        err_add(e->warn, "dp_shard %d changes nothing: with zero 0 nothing is sharded", p->dp_shard);
    put_offload(e, zero);
}

static void put_optimizer(const struct exporter *e, struct json *root)
{
    json_put_string(json_put_object(root, "optimizer"), "type", e->plan->optimizer == OPTIMIZER_SGD ? "SGD" : "AdamW");
    if (e->plan->optimizer == OPTIMIZER_SGD && e->plan->zero > 0)
        json_put_bool(root, "zero_allow_untested_optimizer", true);
}

static void put_parallel(const struct exporter *e, struct json *root)
{
    static const enum axis order[AXES] = {AXIS_TP, AXIS_CP, AXIS_EP, AXIS_DP, AXIS_PP};
    const struct plan *p = e->plan;
    if (p->tp > 1)
        json_put_int(json_put_object(root, "tensor_parallel"), "autotp_size", p->tp);
    if (p->tp > 1 && p->zero == 3)
        export_refuse(e, "zero", "3 with tp > 1", "tensor parallelism with zero 0, 1 and 2", "2");
    if (p->sequence_parallel)
        export_refuse(e, "sequence_parallel", "true", "tensor parallelism without it", "false");
    if (p->cp > 1) {
        json_put_int(root, "sequence_parallel_size", p->cp);
        json_put_int(root, "data_parallel_size", p->dp);
    }
    if (p->cp > 1 && p->tp > 1)
        export_refuse(e, "cp", export_number(p->cp).text, "sequence parallelism without tensor parallelism", "1, or tp 1");
    if (p->cp > 1 && p->context_parallel == CP_RING)
        export_refuse(e, "context_parallel", "ring", "ulysses", "ulysses");
    if (p->pp > 1)
        export_refuse(e, "pp", export_number(p->pp).text, "pipelines from code (PipelineModule), not from ds_config.json", "1");
    if (p->ep > 1)
        export_refuse(e, "ep", export_number(p->ep).text, "expert parallelism from code (deepspeed.moe.layer.MoE), not from ds_config.json", "1");
    if (p->etp > 1)
        export_refuse(e, "etp", export_number(p->etp).text, "experts whole", "1");
    if (!export_order_is(e, order))
        export_refuse(e, "rank_order", "another order", "tp, then cp, then dp", "tp-cp-ep-dp-pp");
}

static void put_recompute(const struct exporter *e, struct json *root)
{
    const struct plan *p = e->plan;
    bool full = p->recompute == RECOMPUTE_FULL && p->recompute_layers != 0;
    if (full) {
        struct json *object = json_put_object(root, "activation_checkpointing");
        json_put_bool(object, "partition_activations", false);
        json_put_bool(object, "cpu_checkpointing", false);
        if (e->request->model)
            json_put_int(object, "number_checkpoints", e->request->model->layers);
        err_add(e->warn, "recompute full: the model's code has to call deepspeed.checkpointing (or gradient_checkpointing_enable) on every layer");
    }
    if (p->recompute == RECOMPUTE_SELECTIVE)
        export_refuse(e, "recompute", "selective", "none and full", "full");
    if (full && p->recompute_layers > 0)
        export_refuse(e, "recompute_layers", export_number(p->recompute_layers).text, "all layers or none", "null");
    if (p->recompute_modules && p->recompute != RECOMPUTE_SELECTIVE)
        err_add(e->warn, "recompute_modules change nothing: recompute is %s", recompute_names[p->recompute]);
    if (p->offload_layers > 0)
        export_refuse(e, "activation_offload_layers", export_number(p->offload_layers).text, "activations on the accelerator", "0");
    if (p->offload_modules)
        export_refuse(e, "offload_modules", export_list(offload_module_names, p->offload_modules, ", ").text, "activations on the accelerator", "null");
}

/* What a ds_config.json has no word for. */
static void check_code(const struct exporter *e)
{
    const struct plan *p = e->plan;
    if (p->overlap.tp)
        export_refuse(e, "overlap.tp", "true", "tensor parallelism without overlap", "false");
    if (p->overlap.ep)
        export_refuse(e, "overlap.ep", "true", "no expert parallelism from a file", "false");
    if (p->cuda_graph != CUDA_GRAPH_NONE)
        export_refuse(e, "cuda_graph", cuda_graph_names[p->cuda_graph], "none in training", "none");
    if (p->vocab_parallel != VOCAB_EDGES)
        export_refuse(e, "vocab_parallel", vocab_parallel_names[p->vocab_parallel], "no pipeline from a file", "edges");
    if (p->fused_grouped_mlp)
        export_refuse(e, "fused_grouped_mlp", "true", "the model's own experts", "false");
    if (p->attention != ATTENTION_FLASH)
        err_add(e->warn, "attention %s is not in ds_config.json: it is the model's own (attn_implementation of transformers)", attention_names[p->attention]);
    if (p->cross_entropy != CROSS_ENTROPY_STACK)
        err_add(e->warn, "cross_entropy %s is not in ds_config.json: the loss is the model's own", cross_entropy_names[p->cross_entropy]);
    err_add(e->warn, "seq_len %lld is not in ds_config.json: the data loader cuts the sequences", (long long)p->seq_len);
    if (p->dropout)
        err_add(e->warn, "dropout is not in ds_config.json: it is the model's own");
    if (p->lora_rank > 0)
        err_add(e->warn, "lora_rank %d and lora_modules are not in ds_config.json: wrap the model before deepspeed.initialize (peft)", p->lora_rank);
    else if (p->lora_modules)
        err_add(e->warn, "lora_modules change nothing: lora_rank is 0");
    if (export_has_experts(e) && p->moe_dispatcher != DISPATCHER_ALL_TO_ALL)
        err_add(e->warn, "moe_dispatcher %s changes nothing: with ep 1 no token travels", moe_dispatcher_names[p->moe_dispatcher]);
}

void export_deepspeed(const struct exporter *e, FILE *out)
{
    static void (*const parts[])(const struct exporter *, struct json *) = {put_batch, put_precision, put_optimizer, put_zero, put_parallel, put_recompute};
    struct json *root = json_new_object();
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        parts[i](e, root);
    check_code(e);
    char *text = json_print(root);
    fputs(text, out);
    free(text);
    json_free(root);
}

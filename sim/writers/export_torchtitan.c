/* A plan as a torchtitan job configuration in TOML.
 *
 * Keys and conditions are those of torchtitan/config/job_config.py, distributed/parallel_dims.py
 * and distributed/pipeline_parallel.py (2025). FSDP2 shards over data_parallel_shard_degree x cp:
 * reshard_after_forward never is ZeRO 2, always ZeRO 3. A pipeline works off the whole local batch
 * as micro-batches; without one, gradients accumulate up to global_batch_size. Experts are cut out
 * of the shard ranks ("dp2ep"), with etp 1 out of tp as well. */
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/cluster.h"
#include "cost/model.h"
#include "sim/writers/export_internal.h"

static const char *const schedule_words[SCHEDULES] = {
    [SCHEDULE_GPIPE] = "GPipe", [SCHEDULE_LOOPED_BFS] = "LoopedBFS", [SCHEDULE_1F1B] = "1F1B", [SCHEDULE_INTERLEAVED] = "Interleaved1F1B",
    [SCHEDULE_INTERLEAVED_ZB] = "InterleavedZeroBubble", [SCHEDULE_ZB_V] = "ZBVZeroBubble", [SCHEDULE_DUALPIPE_V] = "DualPipeV",
};

static const char *nearest_schedule(const struct plan *p)
{
    switch (p->schedule) {
    case SCHEDULE_ZB_H1:
    case SCHEDULE_ZB_H2:
    case SCHEDULE_ZB_AUTO: return "interleaved-zb with vp 2";
    case SCHEDULE_DUALPIPE: return "dualpipev with vp 2";
    default: return "zb-v with vp 2";
    }
}

static bool runs_one_stage(enum plan_schedule schedule) /* per rank */
{
    return schedule == SCHEDULE_GPIPE || schedule == SCHEDULE_1F1B;
}

/* --- [parallelism] ----------------------------------------------------------- */

static void print_data(const struct exporter *e, FILE *out)
{
    const struct plan *p = e->plan;
    int64_t shard = p->zero == 0 ? 1 : export_shard_ranks(p) / p->cp;
    bool sharded = export_data_ranks(p) > 1, alone = (int64_t)p->tp * p->cp * p->pp == 1;
    if (p->zero > 0 && export_shard_ranks(p) % p->cp != 0) {
        export_refuse(e, "dp_shard", export_number(p->dp_shard).text, "shards over whole context-parallel groups", export_number(export_data_ranks(p)).text);
        shard = 1;
    }
    if (p->zero == 1 && sharded)
        export_refuse(e, "zero", "1", "zero 2 and 3 (FSDP2), and zero 0 without other parallelism (DDP)", "2");
    if (p->zero == 0 && sharded && !alone)
        export_refuse(e, "zero", "0 with tp, cp or pp > 1", "zero 2 and 3 beside them", "2");
    if (p->dp_shard > 0 && p->zero == 0)
        err_add(e->warn, "dp_shard %d changes nothing: with zero 0 nothing is sharded", p->dp_shard);
    fprintf(out, "data_parallel_replicate_degree = %lld\n", (long long)(p->dp / shard));
    fprintf(out, "data_parallel_shard_degree = %lld\n", (long long)shard);
    if (p->zero >= 2 && sharded)
        fprintf(out, "fsdp_reshard_after_forward = \"%s\"\n", p->zero == 3 ? "always" : "never");
}

static void print_tensor(const struct exporter *e, FILE *out)
{
    const struct plan *p = e->plan;
    fprintf(out, "tensor_parallel_degree = %d\n", p->tp);
    if (p->tp > 1 && !p->sequence_parallel)
        export_refuse(e, "sequence_parallel", "false with tp > 1", "tensor parallelism with it", "true");
    if (p->overlap.tp && p->tp > 1)
        fprintf(out, "enable_async_tensor_parallel = true\n");
    else if (p->overlap.tp)
        err_add(e->warn, "overlap.tp changes nothing: tp is 1");
    if (p->overlap.tp && p->tp > 1 && strcmp(p->stack, "torchtitan-eager") == 0)
        export_refuse(e, "overlap.tp", "true on stack torchtitan-eager", "it with torch.compile", "false, or stack torchtitan");
    fprintf(out, "context_parallel_degree = %d\n", p->cp);
    if (p->cp > 1 && p->context_parallel == CP_ULYSSES)
        export_refuse(e, "context_parallel", "ulysses", "ring", "ring");
    else if (p->cp > 1)
        fprintf(out, "context_parallel_rotate_method = \"alltoall\"\n");
}

static void print_experts(const struct exporter *e, FILE *out)
{
    const struct plan *p = e->plan;
    int64_t shard = p->zero == 0 ? p->cp : export_shard_ranks(p); /* x cp */
    bool whole = p->etp == 1, cut = p->etp == p->tp && p->tp > 1;
    int64_t unit = cut ? p->cp : (int64_t)p->cp * p->tp, room = cut ? shard : shard * p->tp;
    if (p->ep == 1 && p->etp == 1 && p->tp > 1 && export_has_experts(e))
        err_add(e->warn, "etp 1 with ep 1: torchtitan cuts experts by tp where ep is 1");
    if (p->ep == 1 && p->etp == 1)
        return;
    fprintf(out, "expert_parallel_degree = %d\n", p->ep);
    fprintf(out, "expert_tensor_parallel_degree = %d\n", p->etp);
    if (!whole && !cut)
        export_refuse(e, "etp", export_number(p->etp).text, "1 and tp", "1");
    if (p->ep > 1 && (p->ep % unit != 0 || room % p->ep != 0)) {
        char takes[96];
        snprintf(takes, sizeof takes, "multiples of %lld that divide the %lld ranks that share a copy", (long long)unit, (long long)room);
        export_refuse(e, "ep", export_number(p->ep).text, takes, room % unit == 0 ? export_number(unit).text : "1");
    }
    fprintf(out, "expert_parallel_comm_backend = \"%s\"\n", p->moe_dispatcher == DISPATCHER_FLEX && p->ep > 1       ? "deepep"
                                                            : p->moe_dispatcher == DISPATCHER_HYBRIDEP && p->ep > 1 ? "hybridep"
                                                                                                                    : "standard");
    if (p->overlap.ep && p->ep > 1)
        export_refuse(e, "overlap.ep", "true", "dispatch beside compute inside dualpipev only", "false");
}

/* Names of the modules on every chunk: embedding first, norm and head last. */
static void print_modules(const struct exporter *e, FILE *out)
{
    const struct plan *p = e->plan;
    int layer = 0, n = p->n_layers_per_stage;
    fprintf(out, "module_fqns_per_model_part = [\n");
    for (int i = 0; i < n; i++) {
        const char *between = "";
        fprintf(out, "  [");
        if (i == 0) {
            fprintf(out, "\"tok_embeddings\"");
            between = ", ";
        }
        for (int k = 0; k < p->layers_per_stage[i]; k++, layer++, between = ", ")
            fprintf(out, "%s\"layers.%d\"", between, layer);
        if (i == n - 1)
            fprintf(out, "%s\"norm\", \"output\"", between);
        fprintf(out, "],\n");
    }
    fprintf(out, "]\n");
}

static void print_pipeline(const struct exporter *e, FILE *out)
{
    const struct plan *p = e->plan;
    const struct model *m = e->request->model;
    fprintf(out, "pipeline_parallel_degree = %d\n", p->pp);
    if (p->pp == 1)
        return; /* one stage: all schedules are one */
    if (!schedule_words[p->schedule])
        export_refuse(e, "schedule", schedule_names[p->schedule], "gpipe, looped-bfs, 1f1b, interleaved, interleaved-zb, zb-v and dualpipev", nearest_schedule(p));
    else if (!runs_one_stage(p->schedule) && p->vp == 1)
        export_refuse(e, "vp", "1", "two chunks per rank or more in this schedule", p->schedule == SCHEDULE_LOOPED_BFS ? "2, or schedule gpipe" : "2");
    else
        fprintf(out, "pipeline_parallel_schedule = \"%s\"\n", schedule_words[p->schedule]);
    if (p->schedule_group > 0)
        export_refuse(e, "schedule_group", export_number(p->schedule_group).text, "rounds of its own choice", "null");
    fprintf(out, "pipeline_parallel_microbatch_size = %d\n", p->micro_batch);
    if (p->n_layers_per_stage > 0) {
        print_modules(e, out);
        return;
    }
    fprintf(out, "pipeline_parallel_first_stage_less_layers = 0\npipeline_parallel_last_stage_less_layers = 0\n");
    if (m)
        fprintf(out, "pipeline_parallel_layers_per_stage = %lld\n", (long long)(m->layers / ((int64_t)p->pp * p->vp)));
    else if (p->vp > 2)
        export_refuse(e, "vp", export_number(p->vp).text, "more than 2 chunks per rank by layers per chunk, which --model gives", "2, or with --model");
}

static void print_parallelism(const struct exporter *e, FILE *out)
{
    static const enum axis order[AXES] = {AXIS_TP, AXIS_CP, AXIS_EP, AXIS_DP, AXIS_PP};
    fprintf(out, "\n[parallelism]\n");
    print_data(e, out);
    print_tensor(e, out);
    print_experts(e, out);
    print_pipeline(e, out);
    if (!export_order_is(e, order))
        export_refuse(e, "rank_order", "another order", "tp-cp-ep-dp-pp", "tp-cp-ep-dp-pp");
    if (e->plan->vocab_parallel != VOCAB_EDGES)
        export_refuse(e, "vocab_parallel", vocab_parallel_names[e->plan->vocab_parallel], "embedding and head on the first and last stage", "edges");
    if (!e->plan->overlap.dp_grad || !e->plan->overlap.dp_param)
        err_add(e->warn, "overlap.%s false: FSDP2 always overlaps it", e->plan->overlap.dp_grad ? "dp_param" : "dp_grad");
    if (!e->plan->overlap.p2p && e->plan->pp > 1)
        err_add(e->warn, "overlap.p2p false: torch.distributed.pipelining always sends beside compute");
}

/* --- [training] and what belongs to it ----------------------------------------- */

static void print_training(const struct exporter *e, FILE *out)
{
    const struct plan *p = e->plan;
    fprintf(out, "\n[training]\n");
    fprintf(out, "local_batch_size = %lld\n", (long long)(p->pp > 1 ? p->global_batch / p->dp : p->micro_batch));
    fprintf(out, "global_batch_size = %lld\n", (long long)p->global_batch);
    fprintf(out, "seq_len = %lld\n", (long long)p->seq_len);
    fprintf(out, "mixed_precision_param = \"%s\"\n", p->precision == PRECISION_FP32 ? "float32" : "bfloat16");
    fprintf(out, "mixed_precision_reduce = \"float32\"\n");
    if (p->grad_bytes > 0 && p->grad_bytes < 4)
        export_refuse(e, "grad_dtype", "bf16", "gradients in fp32", "fp32");
    if (p->optimizer_offload > 0)
        export_refuse(e, "optimizer_offload", export_fraction(p->optimizer_offload).text, "offloading of parameters and gradients with it only", "0");
    if (p->moment_bytes < 4)
        export_refuse(e, "optimizer_state_dtype", p->moment_bytes < 2 ? "fp8" : "bf16", "states in fp32", "fp32");
    fprintf(out, "\n[optimizer]\nname = \"AdamW\"\n");
    if (p->optimizer != OPTIMIZER_ADAMW)
        export_refuse(e, "optimizer", optimizer_names[p->optimizer], "adamw", "adamw");
}

static void print_recompute(const struct exporter *e, FILE *out)
{
    const struct plan *p = e->plan;
    bool none = p->recompute == RECOMPUTE_NONE || (p->recompute == RECOMPUTE_FULL && p->recompute_layers == 0);
    fprintf(out, "\n[activation_checkpoint]\nmode = \"%s\"\n", none ? "none" : recompute_names[p->recompute]);
    if (p->recompute == RECOMPUTE_SELECTIVE)
        fprintf(out, "selective_ac_option = \"op\"\n");
    if (p->recompute == RECOMPUTE_SELECTIVE && p->recompute_modules)
        export_refuse(e, "recompute_modules", export_list(recompute_module_names, p->recompute_modules, ", ").text, "its own choice of operators", "null");
    else if (p->recompute_modules)
        err_add(e->warn, "recompute_modules change nothing: recompute is %s", recompute_names[p->recompute]);
    if (!none && p->recompute_layers > 0)
        export_refuse(e, "recompute_layers", export_number(p->recompute_layers).text, "all layers of a chunk or none", "null");
    if (p->offload_layers > 0)
        export_refuse(e, "activation_offload_layers", export_number(p->offload_layers).text, "activations on the accelerator", "0");
    if (p->offload_modules)
        export_refuse(e, "offload_modules", export_list(offload_module_names, p->offload_modules, ", ").text, "activations on the accelerator", "null");
}

static void print_kernels(const struct exporter *e, FILE *out)
{
    const struct plan *p = e->plan;
    bool eager = strcmp(p->stack, "torchtitan-eager") == 0;
    const char *gathers = plan_keeps_low_weights(p) ? "true" : "false";
    fprintf(out, "\n[compile]\nenable = %s\n", eager ? "false" : "true");
    if (!eager)
        fprintf(out, "components = [\"model\", \"loss\"]\n");
    if (p->precision == PRECISION_FP8)
        fprintf(out, "\n[quantize.linear.float8]\nenable_fsdp_float8_all_gather = %s\nprecompute_float8_dynamic_scale_for_fsdp = %s\nfilter_fqns = [\"output\"]\n", gathers, gathers);
    else if (p->precision == PRECISION_MXFP8)
        fprintf(out, "\n[quantize.linear.mx]\nrecipe_name = \"mxfp8_cublas\"\nfilter_fqns = [\"output\"]\n");
    else if (p->precision != PRECISION_BF16 && p->precision != PRECISION_FP32)
        export_refuse(e, "precision", precision_names[p->precision], "fp32, bf16, fp8 and mxfp8", p->precision == PRECISION_FP16 ? "bf16" : p->precision == PRECISION_NVFP4 ? "mxfp8" : "fp8");
    if (p->precision == PRECISION_FP8)
        err_add(e->warn, "precision fp8: torchtitan scales by the present tensor, not by earlier ones");
}

static void check_kernels(const struct exporter *e)
{
    const struct plan *p = e->plan;
    if (p->attention != ATTENTION_FLASH)
        export_refuse(e, "attention", attention_names[p->attention], "flash", "flash");
    if (p->cross_entropy != CROSS_ENTROPY_STACK)
        export_refuse(e, "cross_entropy", cross_entropy_names[p->cross_entropy], "its own", "stack");
    if (p->dropout)
        export_refuse(e, "dropout", "true", "models without it", "false");
    if (p->cuda_graph != CUDA_GRAPH_NONE)
        export_refuse(e, "cuda_graph", cuda_graph_names[p->cuda_graph], "none", "none");
    if (p->fused_grouped_mlp)
        export_refuse(e, "fused_grouped_mlp", "true", "its own grouped GEMMs", "false");
    if (p->fp8_attention)
        export_refuse(e, "fp8_attention", "true", "attention in 16 bit", "false");
    if (p->lora_rank > 0)
        export_refuse(e, "lora_rank", export_number(p->lora_rank).text, "all weights in a TOML file", "0");
    else if (p->lora_modules)
        err_add(e->warn, "lora_modules change nothing: lora_rank is 0");
}

/* Families whose model torchtitan holds; sizes ("flavors") are names of its own. */
static const char *model_name(const struct model *m)
{
    static const struct {
        const char *family, *name;
    } names[] = {{"llama", "llama3"}, {"llama4", "llama4"}, {"deepseek_v3", "deepseek_v3"}, {"qwen3", "qwen3"}, {"qwen3_moe", "qwen3"}, {"gpt_oss", "gpt_oss"}};
    for (size_t i = 0; m && i < sizeof names / sizeof *names; i++)
        if (strcmp(m->family, names[i].family) == 0)
            return names[i].name;
    return NULL;
}

static void print_model(const struct exporter *e, FILE *out)
{
    const struct plan *p = e->plan;
    const struct model *m = e->request->model;
    const char *name = model_name(m), *converter = p->precision == PRECISION_FP8 ? "quantize.linear.float8" : p->precision == PRECISION_MXFP8 ? "quantize.linear.mx" : NULL;
    int64_t nodes;
    int per_node;
    if (e->request->cluster && export_nodes(e->request->cluster, &nodes, &per_node))
        fprintf(out, "# torchrun --nnodes %lld --nproc-per-node %d -m torchtitan.train --job.config_file THIS_FILE\n", (long long)nodes, per_node);
    if (m && !name)
        err_add(e->warn, "model '%s' of family '%s' is none that torchtitan has: register yours, and name it under [model]", m->name, m->family);
    if (name)
        err_add(e->warn, "[model] names no flavor: add the one of model '%s' (torchtitan's own names), or torchtitan trains its debugmodel", m->name);
    if (!name && !converter)
        return;
    fprintf(out, "[model]\n");
    if (name)
        fprintf(out, "name = \"%s\" # and the flavor of your size\n", name);
    if (converter)
        fprintf(out, "converters = [\"%s\"]\n", converter);
}

void export_torchtitan(const struct exporter *e, FILE *out)
{
    static void (*const parts[])(const struct exporter *, FILE *) = {print_model, print_training, print_parallelism, print_recompute, print_kernels};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        parts[i](e, out);
    check_kernels(e);
}

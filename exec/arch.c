#include "exec/arch.h"

#include <string.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/model.h"
#include "cost/plan.h"

static int read_activation(const struct json *root, const char *file, enum activation *ret, struct err *err)
{
    static const struct {
        const char *word;
        enum activation activation;
    } words[] = {
        {"silu", ACTIVATION_SILU},
        {"swish", ACTIVATION_SILU},
        {"swiglu", ACTIVATION_SILU},
        {"gelu_new", ACTIVATION_GELU_TANH},
        {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
        {"gelu_fast", ACTIVATION_GELU_TANH},
        {"gelu", ACTIVATION_GELU},
        {"relu", ACTIVATION_RELU},
    };
    static const char *const keys[] = {"hidden_activation", "hidden_act", "activation_function"};
    const struct json *node = NULL;
    for (int i = 0; i < 3 && !node; i++)
        node = json_has(root, keys[i]) ? json_get(root, keys[i]) : NULL;
    if (!node || json_type(node) != JSON_STRING)
        return 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(json_text(node), words[i].word) == 0) {
            *ret = words[i].activation;
            return 0;
        }
    return err_add(err, "model '%s': planexec does not know the activation '%s'; it has silu, gelu, gelu_new, relu",
                   file, json_text(node));
}

static double number(const struct json *root, const char *a, const char *b, double otherwise)
{
    const char *keys[] = {a, b};
    for (int i = 0; i < 2; i++) {
        const struct json *node = json_get(root, keys[i]);
        if (node && json_type(node) == JSON_NUMBER)
            return json_double(node);
    }
    return otherwise;
}

static bool flag(const struct json *root, const char *key, bool otherwise)
{
    const struct json *node = json_get(root, key);
    return node && json_type(node) == JSON_BOOL ? json_true(node) : otherwise;
}

int arch_load(const char *path, const struct model *model, struct arch *ret, struct err *err)
{
    struct json *root;
    if (json_load_python(path, &root, err) < 0)
        return -1;
    const struct json *text = json_get(root, "text_config");
    const struct json *at = text && json_type(text) == JSON_OBJECT ? text : root;
    bool layer_norm = model->norm == MODEL_LAYER_NORM, mixtral = strcmp(model->family, "mixtral") == 0;
    *ret = (struct arch){
        .norm_epsilon = (float)number(at, layer_norm ? "layer_norm_epsilon" : "rms_norm_eps",
                                      layer_norm ? "layer_norm_eps" : "norm_eps", layer_norm ? 1e-5 : 1e-6),
        .rotary = !model->learned_positions && !model->alibi,
        .rope = {.theta = 10000, .factor = 1, .attention_factor = 1},
        .activation = layer_norm ? ACTIVATION_GELU_TANH : ACTIVATION_SILU,
        .renormalise = flag(at, "norm_topk_prob", mixtral),
        .aux_coefficient = (float)number(at, "router_aux_loss_coef", "aux_loss_alpha", 0),
        .init_std = (float)number(at, "initializer_range", "init_std", 0.02),
    };
    int result = read_activation(at, path, &ret->activation, err);
    if (ret->rotary && rope_read(at, path, &ret->rope, err) < 0)
        result = -1;
    json_free(root);
    return result;
}

static int refuse(struct err *err, const struct model *model, const char *what)
{
    return err_add(err, "model '%s': planexec does not run %s", model->name, what);
}

static int check_model(const struct model *model, struct err *err)
{
    int before = err->count;
    if (model->ssm_heads > 0)
        refuse(err, model, "state-space mixers (Mamba-2, gated delta nets)");
    if (model->mla)
        refuse(err, model, "multi-head latent attention");
    if (model->alibi)
        refuse(err, model, "ALiBi");
    if (model->norms_per_layer != 2 || !model->final_norm || model->embedding_norm)
        refuse(err, model, "blocks other than two norms per layer and a final one");
    if (model->attention_sinks || model->attention_gate || model->index_heads > 0)
        refuse(err, model, "attention sinks, output gates or sparse indexers");
    if (model->qk_norm_full)
        refuse(err, model, "a q/k norm over the whole projection");
    if (model->expert_bias || model->router_bias || model->head_bias)
        refuse(err, model, "biases of experts, router or head");
    if (model->mtp_modules > 0)
        refuse(err, model, "multi-token prediction modules");
    if (model->n_group > 1)
        refuse(err, model, "node-limited routing");
    if (model->head_dim != model->v_head_dim || model->head_dim % 2 != 0)
        refuse(err, model, "odd head dimensions or values narrower than keys");
    for (int i = 0; i < model->n_kinds; i++)
        if (model->kinds[i].shared_gate || (model->kinds[i].chunked && model->kinds[i].window > 0)) {
            refuse(err, model, "gates on shared experts or chunked attention");
            break;
        }
    return err->count > before ? -1 : 0;
}

/* What a plan may say and planexec would not do: refused, so that no figure is of another plan. CUDA graphs, fused losses
 * and the dispatcher are left alone: they change neither results nor messages here. */
static void check_options(const struct plan *plan, struct err *err)
{
    const uint32_t repeated = 1U << MODULE_LAYERNORM | 1U << MODULE_MOE_ACT | 1U << MODULE_MLA_UP_PROJ;
    if (plan->optimizer != OPTIMIZER_ADAMW)
        err_add(err, "planexec trains with adamw only, the plan says %s", optimizer_names[plan->optimizer]);
    if (plan->vocab_parallel != VOCAB_EDGES)
        err_add(err, "planexec keeps the vocabulary at the pipeline's ends (vocab_parallel edges), the plan says %s", vocab_parallel_names[plan->vocab_parallel]);
    if (plan->dp_shard > 0 && plan->dp_shard != plan->dp * plan->cp)
        err_add(err, "planexec shards over all of dp x cp = %d, the plan says dp_shard %d", plan->dp * plan->cp, plan->dp_shard);
    if (plan->lora_rank > 0)
        err_add(err, "planexec trains all weights, the plan says lora_rank %d", plan->lora_rank);
    if (plan->fp8_attention)
        err_add(err, "planexec's attention core computes in 16 bit, the plan says fp8_attention true");
    if (plan->dropout)
        err_add(err, "planexec trains without dropout, the plan says dropout true");
    if (plan->optimizer_offload > 0 || plan->offload_layers > 0 || plan->offload_modules)
        err_add(err, "planexec offloads nothing to the host, the plan does (optimizer_offload, activation_offload_layers or offload_modules)");
    if (plan->moment_bytes < 4 || (plan->grad_bytes > 0 && plan->grad_bytes < 4))
        err_add(err, "planexec keeps gradients and the optimizer's states in fp32, the plan says less (grad_dtype or optimizer_state_dtype)");
    if (plan->recompute == RECOMPUTE_SELECTIVE && (plan->recompute_modules & ~repeated))
        err_add(err, "planexec's selective recompute repeats norms and activations, the plan's recompute_modules name others");
}

int arch_check(const struct model *model, const struct plan *plan, struct err *err)
{
    int before = err->count;
    check_model(model, err);
    check_options(plan, err);
    if ((double)plan->micro_batch * (double)plan->seq_len > INT32_MAX || (double)plan->global_batch > INT32_MAX)
        err_add(err, "micro_batch %d x seq_len %lld, or global_batch %lld, is more than the %d that planexec counts to", plan->micro_batch,
                (long long)plan->seq_len, (long long)plan->global_batch, INT32_MAX);
    else if (model->experts > 0 && plan->tp > 1 && plan->micro_batch * plan->seq_len / plan->cp % plan->tp != 0)
        err_add(
            err,
            "tp %d does not divide the %lld tokens of a micro-batch, which planexec needs to spread them over the experts",
            plan->tp, (long long)(plan->micro_batch * plan->seq_len / plan->cp));
    return err->count > before ? -1 : 0;
}

/* Bytes that one layer keeps from forward to backward, against the closed forms of
 * Korthikanti et al. 2022 (arXiv:2205.05198), in units of s b h:
 *   equation 1: 34 + 5 a s/h             equation 2 (tensor parallel): 10 + 24/t + 5 a s/(h t)
 *   equation 4 (sequence parallel): (34 + 5 a s/h)/t      section 5: selective 34/t, full 2 (2/t). */
#include "tests/unit/test.h"

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/cluster.h"
#include "cost/ops.h"
#include "cost/profile.h"

static struct cluster cluster;
static struct stack stack;

/* 22B of the paper: h 6144, 64 heads, s 2048. */
static struct model usual_model(void)
{
    struct model m = {.hidden = 6144, .layers = 1, .heads = 64, .kv_heads = 64, .head_dim = 96, .v_head_dim = 96, .vocab = 51200,
                      .norms_per_layer = 2, .final_norm = true, .qkv_bias = true, .out_bias = true, .mlp_bias = true, .learned_positions = true,
                      .n_kinds = 1, .n_group = 1, .topk_group = 1};
    m.kinds[0] = (struct layer_kind){.ffn = 4 * m.hidden, .layers = 1};
    return m;
}

static struct plan usual_plan(int tp, bool sequence_parallel)
{
    struct plan plan;
    plan_defaults(&plan);
    plan.tp = tp;
    plan.dp = 8 / tp;
    plan.sequence_parallel = sequence_parallel;
    plan.micro_batch = 4;
    plan.seq_len = 2048;
    plan.precision = PRECISION_FP16;
    plan.attention = ATTENTION_UNFUSED;
    plan.dropout = true;
    return plan;
}

static struct layer_price price(const struct model *model, const struct plan *plan)
{
    struct ops_context context;
    struct layer_price ret;
    ops_context_init(&context, model, &cluster, plan, &stack, NULL);
    ops_price_layer(&context, 0, &ret);
    return ret;
}

static double unit(const struct model *model, const struct plan *plan)
{
    return (double)plan->seq_len * plan->micro_batch * (double)model->hidden;
}

static void test_paper(void)
{
    struct model m = usual_model();
    double scores = 5.0 * (double)m.heads * 2048 / (double)m.hidden;
    for (int tp = 1; tp <= 8; tp *= 2) {
        struct plan plain = usual_plan(tp, false), sequence = usual_plan(tp, tp > 1);
        struct layer_price p = price(&m, &plain), q = price(&m, &sequence);
        CHECK_DOUBLE(p.kept_bytes / unit(&m, &plain), 10 + 24.0 / tp + scores / tp, 1e-12);
        CHECK_DOUBLE(p.kept_selective_bytes / unit(&m, &plain), 10 + 24.0 / tp, 1e-12);
        CHECK_DOUBLE(q.kept_bytes / unit(&m, &sequence), (34 + scores) / tp, 1e-12);
        CHECK_DOUBLE(q.kept_selective_bytes / unit(&m, &sequence), 34.0 / tp, 1e-12);
        CHECK_DOUBLE(q.kept_full_bytes / unit(&m, &sequence), 2.0 / tp, 1e-12);
    }
}

static void test_options(void)
{
    struct model m = usual_model();
    struct plan plan = usual_plan(1, false);
    double scores = (double)m.heads * 2048 / (double)m.hidden, lse = 4.0 * (double)m.heads / (double)m.hidden;
    plan.dropout = false; /* no masks, and the softmax's output alone */
    CHECK_DOUBLE(price(&m, &plan).kept_bytes / unit(&m, &plan), 32 + 2 * scores, 1e-12);
    plan.attention = ATTENTION_FLASH; /* its output once for itself, once for the projection, unless the batch is one sequence */
    CHECK_DOUBLE(price(&m, &plan).kept_bytes / unit(&m, &plan), 34 + lse, 1e-12);
    plan.micro_batch = 1;
    CHECK_DOUBLE(price(&m, &plan).kept_bytes / unit(&m, &plan), 32 + lse, 1e-12);
    m.gated = true; /* gate, up, product: 4 f instead of 2 f... in 16 bit, f = 4 h */
    CHECK_DOUBLE(price(&m, &plan).kept_bytes / unit(&m, &plan), 40 + lse, 1e-12);
    stack.eager_activation = true;
    CHECK_DOUBLE(price(&m, &plan).kept_bytes / unit(&m, &plan), 48 + lse, 1e-12);
    stack.norm_kept_bytes = 8;
    CHECK_DOUBLE(price(&m, &plan).kept_bytes / unit(&m, &plan), 64 + lse, 1e-12);
    stack.eager_activation = false;
    stack.norm_kept_bytes = 0;
}

static void test_modules(void)
{
    struct model m = usual_model();
    struct plan plan = usual_plan(1, false);
    double lse = 4.0 * (double)m.heads / (double)m.hidden;
    plan.attention = ATTENTION_FLASH;
    plan.dropout = false;
    plan.micro_batch = 1;
    static const struct { uint32_t modules; double saved; } rows[] = {
        {1U << MODULE_CORE_ATTN, 0}, {1U << MODULE_LAYERNORM, 4}, {1U << MODULE_MLP, 16}, {1U << MODULE_MOE_ACT, 0}, {1U << MODULE_LAYERNORM | 1U << MODULE_MLP, 20}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plan.recompute_modules = rows[i].modules;
        struct layer_price p = price(&m, &plan);
        CHECK_DOUBLE(p.kept_bytes / unit(&m, &plan), 32 + lse, 1e-12);
        CHECK_DOUBLE(p.kept_selective_bytes / unit(&m, &plan), 32 + lse - rows[i].saved, 1e-12);
        CHECK((p.selective_s > 0) == (rows[i].saved > 0));
    }
}

int main(void)
{
    struct profile *profile = NULL;
    struct err err = {0}, warn = {0};
    struct json *hw = json_new_object();
    json_put_string(hw, "accelerator", "a100-sxm-80gb");
    json_put_int(hw, "nodes", 1);
    if (CHECK_INT(profile_open(NULL, &profile, &err), 0) && CHECK_INT(profile_stack(profile, "megatron-2022", &stack, &err), 0) &&
        CHECK_INT(cluster_parse(hw, "hw", profile, &cluster, &warn, &err), 0)) {
        test_paper();
        test_options();
        test_modules();
    }
    json_free(hw);
    profile_close(profile);
    return test_report();
}

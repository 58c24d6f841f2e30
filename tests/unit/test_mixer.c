/* Layers without attention: their products of matrices are those that the parameters say, scans cost time in proportion
 * to tokens, tensor parallelism cuts both, and its limits are said. */
#include "tests/unit/test.h"

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/cluster.h"
#include "cost/ops.h"
#include "cost/profile.h"

static struct cluster cluster;
static struct stack stack;
static struct model model;

static const char nemotron[] = "{\"model_type\": \"nemotron_h\", \"hidden_size\": 8192, \"num_hidden_layers\": 4, \"num_attention_heads\": 64,"
                               " \"num_key_value_heads\": 8, \"head_dim\": 128, \"intermediate_size\": 32768, \"vocab_size\": 131072,"
                               " \"mamba_num_heads\": 256, \"mamba_head_dim\": 64, \"n_groups\": 8, \"ssm_state_size\": 256, \"conv_kernel\": 4,"
                               " \"hybrid_override_pattern\": \"M*-M\"}";
static const char qwen[] = "{\"model_type\": \"qwen3_next\", \"hidden_size\": 2048, \"num_hidden_layers\": 4, \"num_attention_heads\": 16,"
                           " \"num_key_value_heads\": 2, \"head_dim\": 256, \"intermediate_size\": 6144, \"vocab_size\": 248320,"
                           " \"linear_num_value_heads\": 32, \"linear_value_head_dim\": 128, \"linear_num_key_heads\": 16,"
                           " \"linear_key_head_dim\": 128, \"linear_conv_kernel_dim\": 4}";

static void load(const char *text)
{
    struct err err = {0}, warn = {0};
    struct json *root = NULL;
    CHECK_INT(json_parse(text, strlen(text), "config.json", &root, &err), 0);
    CHECK_INT(model_parse(root, "config.json", &model, &warn, &err), 0);
    CHECK_STR(err.text, "");
    json_free(root);
}

static void load_cluster(void)
{
    static const char hw[] = "{\"accelerator\": \"h100-sxm\", \"nodes\": 1}";
    struct err err = {0}, warn = {0};
    struct json *root = NULL;
    struct profile *profile = NULL;
    CHECK_INT(profile_open(NULL, &profile, &err), 0);
    CHECK_INT(json_parse(hw, strlen(hw), "hw.json", &root, &err), 0);
    CHECK_INT(cluster_parse(root, "hw.json", profile, &cluster, &warn, &err), 0);
    CHECK_INT(profile_stack(profile, "megatron", &stack, &err), 0);
    CHECK_STR(err.text, "");
    json_free(root);
    profile_close(profile);
    cluster.accelerator.points = NULL;
    cluster.group[0].accelerator.points = NULL;
}

static struct layer_price price(int kind, int tp, int64_t seq_len)
{
    struct plan plan;
    struct ops_context context;
    struct layer_price ret;
    plan_defaults(&plan);
    plan.tp = tp;
    plan.sequence_parallel = tp > 1;
    plan.seq_len = seq_len;
    ops_context_init(&context, &model, &cluster, &plan, &stack, NULL);
    ops_price_layer(&context, kind, &ret);
    return ret;
}

/* FLOPs of the layer's GEMMs: 2 per weight and token, vectors not counted. */
static void test_flop(const char *text, int kind, double weights)
{
    load(text);
    CHECK_DOUBLE(price(kind, 1, 4096).flop, 2 * weights * 4096, 1e-12);
    CHECK_DOUBLE(price(kind, 2, 4096).flop, 2 * weights * 4096 / 2, 1e-12);
    CHECK(price(kind, 2, 4096).kept_bytes < 0.51 * price(kind, 1, 4096).kept_bytes);
}

/* A scan is linear in the sequence, attention is not. */
static void test_length(void)
{
    load(nemotron);
    double mamba = price(0, 1, 65536).compute_s[PHASE_F] / price(0, 1, 8192).compute_s[PHASE_F];
    double attention = price(1, 1, 65536).compute_s[PHASE_F] / price(1, 1, 8192).compute_s[PHASE_F];
    CHECK(mamba > 7 && mamba < 8.5);
    CHECK(attention > 12);
}

static void test_rule(void)
{
    struct plan plan;
    struct err warn = {0}, err = {0};
    load(nemotron);
    plan_defaults(&plan);
    plan.tp = 16; /* divides heads, not groups */
    plan.sequence_parallel = true;
    CHECK_INT(plan_check(&plan, &model, NULL, &warn, &err), -1);
    CHECK_CONTAINS(err.text, "tp 16 does not divide the 8 groups of the state-space mixers: 8 % 16 = 8; valid tp: 1, 2, 4, 8");
}

int main(void)
{
    load_cluster();
    test_flop(nemotron, 0, 8192.0 * (2 * 16384 + 2 * 8 * 256 + 256) + 16384.0 * 8192);
    test_flop(qwen, 0, 2048.0 * (2 * 4096 + 2 * 16 * 128 + 2 * 32) + 4096.0 * 2048 + 3 * 2048.0 * 6144);
    test_length();
    test_rule();
    return test_report();
}

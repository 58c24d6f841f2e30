/* Launch rules one by one: the bit, and a sentence with the values and what would do. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/cluster.h"
#include "cost/model.h"
#include "cost/plan.h"
#include "tests/unit/test.h"

static struct err warn, err;

/* Eight heads, two kv heads, 24 layers; positions learned; 512-wide MLP. */
static const struct model dense = {.name = "dense",
                                   .layers = 24,
                                   .heads = 8,
                                   .kv_heads = 2,
                                   .vocab = 50257,
                                   .max_positions = 8192,
                                   .learned_positions = true,
                                   .n_kinds = 1,
                                   .kinds = {{.ffn = 512, .layers = 24}}};
/* The same with a dense and 23 MoE layers: 16 experts 96 wide, shared expert 160 wide. */
static const struct model moe = {
    .name = "moe",
    .layers = 24,
    .heads = 8,
    .kv_heads = 2,
    .vocab = 51200,
    .max_positions = 8192,
    .experts = 16,
    .experts_per_token = 2,
    .n_kinds = 2,
    .kinds = {{.ffn = 512, .layers = 1}, {.moe = true, .ffn = 96, .shared_ffn = 160, .layers = 23}}};

static struct cluster cluster_of(int64_t accelerators)
{
    struct cluster cluster = {.name = "rack", .accelerators = accelerators, .n_groups = 1};
    snprintf(cluster.accelerator.name, sizeof cluster.accelerator.name, "a100-sxm-80");
    cluster.accelerator.peak_flop_per_s[RATE_16BIT] = 312e12;
    cluster.accelerator.peak_flop_per_s[RATE_TF32] = 156e12;
    cluster.group[0].accelerators_per_node = 8;
    cluster.group[0].accelerator = cluster.accelerator;
    return cluster;
}

static struct plan plan_of(const char *text)
{
    struct plan plan;
    struct json *root = NULL;
    plan_defaults(&plan);
    CHECK_INT(json_parse(text, strlen(text), "test", &root, &err), 0);
    CHECK_INT(plan_parse(root, "test", &plan, &warn, &err), 0);
    json_free(root);
    return plan;
}

static int bits(uint32_t set)
{
    int n = 0;
    for (; set != 0; set &= set - 1)
        n++;
    return n;
}

struct expectation {
    const char *plan;
    uint32_t broken;
    const char *says; /* "" when nothing is broken */
};

#define R(rule) ((uint32_t)1 << RULE_##rule)

static void check_one(const struct model *model, const struct cluster *cluster, const struct expectation *expected)
{
    err_clear(&warn);
    err_clear(&err);
    struct plan plan = plan_of(expected->plan);
    uint32_t broken = plan_broken_rules(&plan, model, cluster);
    int result = plan_check(&plan, model, cluster, &warn, &err);
    if (broken != expected->broken)
        printf("%s: %s\n", expected->plan, err.text);
    CHECK_INT(broken, expected->broken);
    CHECK_INT(result, expected->broken ? -1 : 0);
    CHECK(err.count >= bits(broken) && (broken != 0 || err.count == 0));
    CHECK_CONTAINS(err.text, expected->says);
    CHECK_INT(plan_check(&plan, model, cluster, NULL, NULL), result); /* messages may be unwanted */
}

#define CHECK_ALL(model, cluster, table)                                                                               \
    for (size_t i_ = 0; i_ < sizeof table / sizeof table[0]; i_++)                                                     \
    check_one(model, cluster, &table[i_])

static void test_widths(void)
{
    static const struct expectation on_dense[] = {
        {"{\"tp\":8}", 0, ""},
        {"{\"tp\":3}", R(HEADS_TP) | R(KV_HEADS_TP) | R(FFN_TP), "valid tp: 1, 2, 4, 8"},
        {"{\"tp\":16}", R(HEADS_TP), "tp 16 does not divide num_attention_heads 8"},
        {"{\"tp\":2,\"stack\":\"torchtitan\"}", R(VOCAB_TP), "50257 % 2 = 1"},
        {"{\"tp\":2,\"stack\":\"deepspeed\"}", R(VOCAB_TP), "pad it to 50258"},
        {"{\"tp\":2,\"stack\":\"megatron\"}", 0, ""},
        {"{\"etp\":2}", R(EP_DENSE), "etp 2 on model 'dense', which has no experts"},
        {"{\"ep\":2}", R(EP_DENSE), "ep 2 on model 'dense'"},
    };
    static const struct expectation on_moe[] = {
        {"{\"etp\":5,\"dp\":5,\"global_batch\":5}", R(ETP_FFN), "etp 5 does not divide the width 96 of one expert"},
        {"{\"ep\":3,\"dp\":3,\"global_batch\":9}", R(EP_EXPERTS), "16 % 3 = 1; valid ep: 1, 2, 4, 8, 16"},
        {"{\"ep\":32,\"dp\":32}", R(EP_EXPERTS), "ep 32 does not divide the 16 experts"},
        {"{\"ep\":16,\"dp\":8}", R(EP_WORLD), "at least 16 accelerators (dp 16)"},
        {"{\"tp\":2,\"ep\":2}", R(EP_SP), "need sequence_parallel true"},
        {"{\"tp\":2,\"ep\":2,\"stack\":\"deepspeed\"}", 0, ""},
        {"{\"tp\":2,\"ep\":2,\"sequence_parallel\":true}", 0, ""},
        {"{\"tp\":2,\"ep\":1}", 0, ""},
    };
    struct model odd = moe;
    odd.kinds[1].shared_ffn = 156;
    CHECK_ALL(&dense, NULL, on_dense);
    CHECK_ALL(&moe, NULL, on_moe);
    check_one(&odd, NULL, &(struct expectation){"{\"tp\":8}", R(FFN_TP), "shared experts' width 156: 156 % 8 = 4"});
}

static void test_sequence(void)
{
    static const struct expectation table[] = {
        {"{\"sequence_parallel\":true}", R(SP_NEEDS_TP), "needs tp > 1"},
        {"{\"tp\":8,\"sequence_parallel\":true,\"seq_len\":4100}", R(SEQ_SP_CP), "nearest valid: 4096 or 4104"},
        {"{\"tp\":8,\"seq_len\":4100}", 0, ""},
        {"{\"cp\":4,\"seq_len\":4100}", R(SEQ_SP_CP), "multiple of 8 (ring attention cuts it into 2 x cp 4 pieces)"},
        {"{\"cp\":4,\"seq_len\":4104}", 0, ""},
        {"{\"cp\":4,\"context_parallel\":\"ulysses\",\"seq_len\":4100}", 0, ""},
        {"{\"cp\":4,\"context_parallel\":\"ulysses\",\"seq_len\":4102}", R(SEQ_SP_CP), "multiple of 4 (Ulysses"},
        /* each of 2 ranks has 2052, which tp 8 does not divide */
        {"{\"cp\":2,\"tp\":8,\"sequence_parallel\":true,\"seq_len\":4104}", R(SEQ_SP_CP),
         "nearest valid: 4096 or 4112"},
        {"{\"cp\":16,\"context_parallel\":\"ulysses\"}", R(CP_HEADS), "valid cp: 1, 2, 4, 8"},
        {"{\"tp\":4,\"cp\":4,\"context_parallel\":\"ulysses\"}", R(CP_HEADS), "tp 4 x cp 4 = 16"},
        {"{\"tp\":4,\"cp\":2,\"context_parallel\":\"ulysses\"}", 0, ""},
        {"{\"tp\":4,\"cp\":4}", 0, ""},
        {"{\"seq_len\":8200}", R(SEQ_MODEL), "8192 learned positions"},
    };
    CHECK_ALL(&dense, NULL, table);
    check_one(&moe, NULL, &(struct expectation){"{\"seq_len\":8200}", 0, ""});
    CHECK_CONTAINS(warn.text, "seq_len 8200 exceeds max_position_embeddings 8192");
}

static void test_layers(void)
{
    static const struct expectation table[] = {
        {"{\"pp\":5}", R(LAYERS_SPLIT), "24 % 5 = 4; set layers_per_stage to [5,5,5,5,4]"},
        {"{\"pp\":7}", R(LAYERS_SPLIT),
         "[2,4,4,4,4,4,2] (Megatron-LM: --decoder-first-pipeline-num-layers 2 --decoder-last-pipeline-num-layers 2)"},
        {"{\"pp\":23}", R(LAYERS_SPLIT), "[1,2,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1] (Megatron-LM: --pipeline"},
        {"{\"pp\":26}", R(PP_LAYERS), "set layers_per_stage to [0,1,1,"},
        {"{\"pp\":27}", R(PP_LAYERS), "only 24 layers; set pp x vp to one of 1, 2, 3"},
        {"{\"pp\":2,\"layers_per_stage\":[11,13]}", 0, ""},
        {"{\"pp\":2,\"layers_per_stage\":[11,12]}", R(LAYERS_LIST),
         "24 layers, list holds 23: layers_per_stage would lose 1 "},
        {"{\"pp\":2,\"layers_per_stage\":[24]}", R(LAYERS_LIST), "has 1 entries, pp 2 x vp 1 = 2 are needed"},
        {"{\"pp\":3,\"layers_per_stage\":[0,24,0]}", 0, ""},
        {"{\"pp\":3,\"layers_per_stage\":[12,0,12]}", R(LAYERS_LIST), "gives chunk 1 no layer"},
        {"{\"pp\":2,\"vp\":2,\"schedule\":\"interleaved\",\"layers_per_stage\":[5,7,7,5]}", 0, ""},
        {"{\"pp\":2,\"recompute\":\"full\",\"recompute_layers\":12}", 0, ""},
        {"{\"pp\":2,\"recompute\":\"full\",\"recompute_layers\":13}", R(RECOMPUTE_LAYERS), "allowed: 0 to 12"},
        {"{\"pp\":2,\"recompute\":\"full\",\"recompute_layers\":13,\"layers_per_stage\":[11,13]}", 0, ""},
        {"{\"recompute\":\"selective\",\"recompute_layers\":1}", R(RECOMPUTE_LAYERS),
         "goes only with recompute 'full'"},
        {"{\"recompute_layers\":0}", R(RECOMPUTE_LAYERS), "not 'none'"},
    };
    CHECK_ALL(&dense, NULL, table);
}

/* What is offered holds every layer, for all sizes: read from the sentence, and taken back as a plan. */
static void test_offered_splits(void)
{
    for (int layers = 2; layers <= 60; layers++)
        for (int pp = 2; pp <= layers + 2 && pp <= 32; pp++) {
            struct model model = dense;
            struct plan plan;
            plan_defaults(&plan);
            model.layers = layers;
            plan.pp = pp;
            if (layers % pp == 0)
                continue;
            err_clear(&err);
            CHECK_INT(plan_check(&plan, &model, NULL, NULL, &err), -1);
            const char *at = strchr(err.text, '[');
            for (int used; at && sscanf(at + 1, "%hu%n", &plan.layers_per_stage[plan.n_layers_per_stage], &used) == 1;
                 at += 1 + used)
                plan.n_layers_per_stage++;
            CHECK_INT(plan_check(&plan, &model, NULL, NULL, NULL), 0);
            for (int i = 0; i < pp; i++)
                CHECK(plan.layers_per_stage[i] <= (layers + pp - 1) / pp);
        }
}

static void test_schedules(void)
{
    static const struct expectation table[] = {
        {"{\"vp\":2}", R(VP_NEEDS_PP), "vp 2 needs a pipeline"},
        {"{\"pp\":2,\"vp\":2}", R(VP_SCHEDULE), "schedule '1f1b' runs with vp 1"},
        {"{\"pp\":2,\"vp\":2,\"schedule\":\"gpipe\"}", R(VP_SCHEDULE), "interleaved, looped-bfs, interleaved-zb"},
        {"{\"pp\":2,\"vp\":2,\"schedule\":\"zb-h1\"}", R(VP_SCHEDULE), "'zb-h1'"},
        {"{\"pp\":2,\"vp\":2,\"schedule\":\"zb-auto\"}", R(VP_SCHEDULE), "'zb-auto'"},
        {"{\"pp\":2,\"vp\":2,\"schedule\":\"interleaved\"}", 0, ""},
        {"{\"pp\":2,\"vp\":2,\"schedule\":\"looped-bfs\"}", 0, ""},
        {"{\"pp\":2,\"vp\":1,\"schedule\":\"looped-bfs\"}", 0, ""},
        {"{\"pp\":2,\"vp\":4,\"schedule\":\"interleaved-zb\"}", 0, ""},
        {"{\"pp\":2,\"vp\":1,\"schedule\":\"interleaved\"}", R(VP_SCHEDULE), "needs vp >= 2, but vp is 1"},
        {"{\"pp\":2,\"vp\":2,\"schedule\":\"zb-v\"}", 0, ""},
        {"{\"pp\":2,\"vp\":1,\"schedule\":\"zb-v\"}", R(VP_SCHEDULE), "with vp 2, but vp is 1"},
        {"{\"pp\":2,\"vp\":3,\"schedule\":\"v-half\"}", R(VP_SCHEDULE), "'v-half' runs with vp 2, but vp is 3"},
        {"{\"pp\":2,\"vp\":2,\"schedule\":\"dualpipev\"}", 0, ""},
        {"{\"pp\":2,\"schedule\":\"dualpipe\"}", 0, ""},
        {"{\"pp\":3,\"schedule\":\"dualpipe\"}", R(SCHEDULE), "even pp, but pp is 3; nearest valid: 2 or 4"},
        {"{\"schedule_group\":4}", R(SCHEDULE), "goes only with schedule 'interleaved'"},
    };
    CHECK_ALL(&dense, NULL, table);
}

static void test_micro_batches(void)
{
    static const struct expectation table[] = {
        {"{\"pp\":4,\"vp\":2,\"schedule\":\"interleaved\",\"global_batch\":6}", R(MICRO_BATCHES_PP),
         "multiple of pp 4, or a schedule_group that suits; nearest valid: 4 or 8 (global_batch 4 or 8)"},
        {"{\"pp\":4,\"vp\":2,\"schedule\":\"interleaved\",\"global_batch\":24,\"dp\":2,\"micro_batch\":2}",
         R(MICRO_BATCHES_PP), "nearest valid: 4 or 8 (global_batch 16 or 32)"},
        {"{\"pp\":4,\"vp\":2,\"schedule\":\"interleaved\",\"global_batch\":6,\"schedule_group\":6}", 0, ""},
        {"{\"pp\":4,\"vp\":2,\"schedule\":\"interleaved\",\"global_batch\":9,\"schedule_group\":5}", 0, ""},
        {"{\"pp\":4,\"vp\":2,\"schedule\":\"interleaved\",\"global_batch\":8,\"schedule_group\":5}",
         R(MICRO_BATCHES_PP), "a rest of 0 or at least pp 4"},
        {"{\"pp\":4,\"vp\":2,\"schedule\":\"interleaved\",\"global_batch\":8,\"schedule_group\":3}",
         R(MICRO_BATCHES_PP), "pp 4 <= schedule_group, which is 3"},
        {"{\"pp\":4,\"schedule\":\"dualpipe\",\"global_batch\":6}", R(MICRO_BATCHES_PP),
         "at least 2 x pp = 8, and an even number"},
        {"{\"pp\":4,\"schedule\":\"dualpipe\",\"global_batch\":9}", R(MICRO_BATCHES_PP), "nearest valid: 8 or 10"},
        {"{\"pp\":4,\"vp\":2,\"schedule\":\"dualpipev\",\"global_batch\":7}", R(MICRO_BATCHES_PP),
         "nearest valid: 8 (global"},
        {"{\"pp\":4,\"vp\":2,\"schedule\":\"dualpipev\",\"global_batch\":9}", 0, ""},
        {"{\"pp\":4,\"vp\":2,\"schedule\":\"interleaved-zb\",\"global_batch\":9}", R(MICRO_BATCHES_PP), "equal rounds"},
        {"{\"pp\":4,\"global_batch\":1}", 0, ""},
        {"{\"pp\":4,\"global_batch\":3,\"stack\":\"torchtitan\"}", R(MICRO_BATCHES_PP), "at least pp 4"},
        {"{\"pp\":1,\"global_batch\":1,\"stack\":\"torchtitan\"}", 0, ""},
    };
    CHECK_ALL(&dense, NULL, table);
}

static void test_batch(void)
{
    static const struct expectation table[] = {
        {"{\"dp\":7,\"micro_batch\":2,\"global_batch\":256}", R(BATCH), "nearest valid: 252 or 266"},
        {"{\"dp\":4,\"micro_batch\":4,\"global_batch\":8}", R(BATCH), "nearest valid: 16"},
        {"{\"dp\":16,\"global_batch\":8}", R(DP_BATCH), "dp 16 exceeds global_batch 8"},
        {"{\"dp\":8,\"global_batch\":8}", 0, ""},
    };
    CHECK_ALL(&dense, NULL, table);
}

static void test_zero(void)
{
    static const struct expectation table[] = {
        {"{\"pp\":2,\"zero\":1}", 0, ""},
        {"{\"pp\":2,\"zero\":2}", 0, ""},
        {"{\"pp\":2,\"zero\":3}", R(ZERO_PP), "zero 3 does not go with pp 2 in stack 'megatron'"},
        {"{\"pp\":2,\"zero\":2,\"stack\":\"deepspeed\"}", R(ZERO_PP), "zero 0 or 1"},
        {"{\"pp\":2,\"zero\":3,\"stack\":\"deepspeed\"}", R(ZERO_PP), "zero 0 or 1"},
        {"{\"pp\":2,\"zero\":3,\"stack\":\"torchtitan\"}", 0, ""},
        {"{\"pp\":2,\"zero\":3,\"stack\":\"fsdp2\"}", 0, ""},
        {"{\"pp\":1,\"zero\":3,\"stack\":\"deepspeed\"}", 0, ""},
    };
    CHECK_ALL(&dense, NULL, table);
}

static void test_cluster_rules(void)
{
    static const struct expectation table[] = {
        {"{\"tp\":4,\"dp\":4}", 0, ""},
        {"{\"tp\":4,\"dp\":2}", R(WORLD),
         "needs tp 4 x cp 1 x pp 1 x dp 2 = 8 accelerators, cluster 'rack' has 16; with dp 4"},
        {"{\"tp\":8,\"pp\":4}", R(WORLD),
         "= 32 accelerators (4 nodes of 8), cluster 'rack' has 16, which is no multiple"},
        {"{\"dp\":16,\"precision\":\"fp8\"}", R(PRECISION_ACCELERATOR),
         "'a100-sxm-80' of cluster 'rack' does not support"},
        {"{\"dp\":16,\"precision\":\"fp32\"}", 0, ""},
        {"{\"dp\":16,\"precision\":\"fp16\"}", 0, ""},
    };
    struct cluster cluster = cluster_of(16);
    CHECK_ALL(&dense, &cluster, table);
    cluster.group[0].accelerator.lacks_bf16 = true;
    check_one(&dense, &cluster, &(struct expectation){"{\"dp\":16}", R(PRECISION_ACCELERATOR), "it has fp32, fp16"});
}

static void test_rank_order(void)
{
    static const struct expectation table[] = {
        {"{\"tp\":2,\"pp\":2,\"dp\":2,\"rank_order\":\"tp-cp-ep-pp-dp\"}", 0, ""},
        {"{\"dp\":6,\"ep\":2,\"pp\":2,\"tp\":1,\"global_batch\":6,\"rank_order\":\"tp-cp-ep-pp-dp\"}", 0, ""},
        {"{\"tp\":2,\"sequence_parallel\":true,\"dp\":8,\"etp\":1,\"ep\":8,\"pp\":2,\"rank_order\":\"tp-cp-ep-pp-dp\"}",
         0, ""},
        {"{\"tp\":2,\"cp\":2,\"dp\":3,\"etp\":3,\"ep\":2,\"pp\":2,\"global_batch\":6,\"sequence_parallel\":true,"
         "\"rank_order\":\"tp-cp-ep-pp-dp\"}",
         R(RANK_ORDER), "put pp last"},
        {"{\"tp\":2,\"cp\":2,\"dp\":3,\"etp\":3,\"ep\":2,\"pp\":2,\"global_batch\":6,\"sequence_parallel\":true}", 0,
         ""},
    };
    CHECK_ALL(&moe, NULL, table);
    struct plan plan = plan_of("{}");
    plan.rank_order[0] = AXIS_PP;
    CHECK_INT(plan_broken_rules(&plan, &dense, NULL), R(RANK_ORDER));
    err_clear(&err);
    CHECK_INT(plan_check(&plan, &dense, NULL, NULL, &err), -1);
    CHECK_CONTAINS(err.text, "once");
}

/* What a plan asks for and the model has not: a warning for each, none where it has; adapters that find nothing are refused. */
static void test_idle_fields(void)
{
    static const struct {
        const struct model *model;
        const char *plan, *warning;
    } cases[] = {
        {&dense, "{\"recompute\":\"selective\",\"recompute_modules\":[\"moe\",\"core_attn\",\"mla_up_proj\"]}", "recompute_modules moe, mla_up_proj: model"},
        {&dense, "{\"recompute_modules\":[\"core_attn\"]}", "recompute_modules go with recompute 'selective', not 'none'"},
        {&dense, "{\"offload_modules\":[\"expert_fc1\",\"core_attn\",\"moe_act\"]}", "offload_modules expert_fc1, moe_act: model"},
        {&dense, "{\"lora_modules\":[\"linear_qkv\"]}", "lora_rank is 0: all weights are trained"},
        {&dense, "{\"fused_grouped_mlp\":true}", "fused_grouped_mlp: model"},
        {&dense, "{\"fp8_attention\":true}", "fp8_attention goes with an 8-bit precision, not 'bf16'"},
        {&dense, "{\"fp8_attention\":true,\"precision\":\"fp8\",\"attention\":\"eager\"}", "fp8_attention goes with fused attention, not 'eager'"},
        {&dense, "{\"fp8_param_gather\":false}", "fp8_param_gather goes with an 8-bit precision, not 'bf16'"},
        {&dense, "{\"precision\":\"fp8\",\"zero\":0}", "fp8_param_gather goes with zero 1 or more, not 0"},
        {&dense, "{\"precision\":\"fp8\",\"fp8_param_gather\":false}", ""},
        {&dense, "{\"activation_offload_layers\":1000}", "activation_offload_layers 1000 exceeds the"},
        {&dense, "{\"activation_offload_layers\":1,\"offload_modules\":[\"core_attn\"]}", ""},
        {&dense, "{\"lora_rank\":8,\"lora_modules\":[\"linear_fc1\"]}", ""},
        {&dense, "{\"fp8_attention\":true,\"precision\":\"fp8\"}", ""},
        {&moe, "{\"fused_grouped_mlp\":true,\"offload_modules\":[\"expert_fc1\",\"moe_act\"]}", ""},
        {&moe, "{\"recompute\":\"selective\",\"recompute_modules\":[\"moe\",\"moe_act\"]}", ""},
        {&moe, "{\"dp\":8,\"ep\":8,\"pp\":2,\"schedule\":\"zb-h1\",\"overlap\":{\"ep\":true}}", "overlap.ep beside pp 2 goes with schedule 'interleaved'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan plan = plan_of(cases[i].plan);
        err_clear(&warn);
        plan_check(&plan, cases[i].model, NULL, &warn, NULL);
        if (cases[i].warning[0])
            CHECK_CONTAINS(warn.text, cases[i].warning);
        else
            CHECK(strstr(warn.text, "offload") == NULL && strstr(warn.text, "modules") == NULL && strstr(warn.text, "fp8") == NULL && strstr(warn.text, "fused") == NULL);
    }
    struct model experts_alone = moe;
    experts_alone.n_kinds = 1;
    experts_alone.kinds[0] = (struct layer_kind){.moe = true, .ffn = 64, .layers = moe.layers};
    check_one(&experts_alone, NULL, &(struct expectation){"{\"lora_rank\":8,\"lora_modules\":[\"linear_fc1\",\"linear_fc2\"]}", R(ADAPTERS),
                                                          "nothing would be trained; allowed: linear_qkv, linear_proj"});
    check_one(&experts_alone, NULL, &(struct expectation){"{\"lora_rank\":8}", 0, ""});
    experts_alone.kinds[0].mixer = MIXER_NONE;
    experts_alone.kinds[0].mixer_only = true;
    check_one(&experts_alone, NULL, &(struct expectation){"{\"lora_rank\":8}", R(ADAPTERS), "allowed: none, lora_rank must be 0"});
}

/* Sizes that no file can hold but a program can. */
static void test_impossible_sizes(void)
{
    struct plan plan = plan_of("{}");
    plan.tp = 0;
    plan.seq_len = -1;
    err_clear(&err);
    CHECK_INT(plan_broken_rules(&plan, &dense, NULL), R(WORLD));
    CHECK_INT(plan_check(&plan, &dense, NULL, NULL, &err), -1);
    CHECK_INT(err.count, 2);
    CHECK_CONTAINS(err.text, "tp is 0");
    CHECK_CONTAINS(err.text, "seq_len is -1");
}

static void test_all_at_once(void)
{
    struct cluster cluster = cluster_of(16);
    check_one(
        &moe, &cluster,
        &(struct expectation){"{\"tp\":3,\"pp\":5,\"dp\":7,\"vp\":2,\"ep\":5,\"etp\":7,\"global_batch\":8,\"zero\":3,"
                              "\"precision\":\"nvfp4\",\"recompute_layers\":2,\"schedule_group\":2}",
                              R(WORLD) | R(HEADS_TP) | R(KV_HEADS_TP) | R(FFN_TP) | R(LAYERS_SPLIT) | R(VP_SCHEDULE) |
                                  R(BATCH) | R(EP_EXPERTS) | R(EP_WORLD) | R(ETP_FFN) | R(EP_SP) | R(ZERO_PP) |
                                  R(PRECISION_ACCELERATOR) | R(RECOMPUTE_LAYERS) | R(SCHEDULE),
                              "nvfp4"});
    CHECK_INT(err.count, 16); /* the MLP's rule twice: dense and shared experts */
}

static void test_warnings(void)
{
    struct cluster cluster = cluster_of(16);
    struct plan plan = plan_of("{\"tp\":8,\"dp\":2}");
    err_clear(&warn);
    CHECK_INT(plan_check(&plan, &dense, &cluster, &warn, NULL), 0);
    CHECK_INT(warn.count, 2);
    CHECK_CONTAINS(warn.text, "vocab_size 50257 is padded to 51200, a multiple of 128 x tp 8");
    CHECK_CONTAINS(warn.text, "num_key_value_heads 2 are fewer than tp 8");
    cluster.group[0].accelerators_per_node = 4;
    CHECK_INT(plan_check(&plan, &dense, &cluster, &warn, NULL), 0);
    CHECK_CONTAINS(warn.text, "tp 8 reaches across 2 nodes of 4");
}

/* What the fields say to each other, whatever the model: also without one. */
static void test_without_model(void)
{
    static const struct expectation table[] = {
        {"{}", 0, ""},
        {"{\"tp\":3,\"pp\":7}", 0, ""},
        {"{\"sequence_parallel\":true}", R(SP_NEEDS_TP), "set sequence_parallel to false or tp to 2"},
        {"{\"cp\":4,\"seq_len\":4100}", R(SEQ_SP_CP), "nearest valid: 4096 or 4104"},
        {"{\"dp\":3}", R(BATCH), "128 % 3 = 2"},
        {"{\"vp\":2}", R(VP_NEEDS_PP), "pp to at least 2"},
        {"{\"recompute_layers\":2}", R(RECOMPUTE_LAYERS), "goes only with recompute 'full', not 'none'"},
        {"{\"dp\":8,\"dp_shard\":3}", R(DP_SHARD), "dp_shard 3 does not divide dp 8 x cp 1 = 8: 8 % 3 = 2; valid dp_shard: 1, 2, 4, 8"},
        {"{\"dp\":8,\"dp_shard\":16}", R(DP_SHARD), "valid dp_shard: 1, 2, 4, 8"},
        {"{\"dp\":8,\"dp_shard\":4}", 0, ""},
        {"{\"recompute\":\"full\",\"activation_offload_layers\":4}", R(OFFLOAD), "set it to 0 or recompute to none"},
        {"{\"recompute\":\"full\",\"offload_modules\":[\"core_attn\"]}", R(OFFLOAD), "offload_modules core_attn go with recompute"},
        {"{\"recompute\":\"selective\",\"activation_offload_layers\":4}", 0, ""},
        {"{\"pp\":2,\"zero\":3}", R(ZERO_PP), "zero 3 does not go with pp 2"},
        {"{\"pp\":2,\"layers_per_stage\":[1,2,3]}", R(LAYERS_LIST), "layers_per_stage has 3 entries, pp 2 x vp 1 = 2 are needed"},
        {"{\"pp\":3,\"layers_per_stage\":[1,0,3]}", R(LAYERS_LIST), "gives chunk 1 no layer"},
        {"{\"pp\":2,\"layers_per_stage\":[1,2]}", 0, ""},
    };
    CHECK_ALL(NULL, NULL, table);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) { /* a model adds rules, and takes none away */
        struct plan plan = plan_of(table[i].plan);
        CHECK_INT(plan_broken_rules(&plan, &dense, NULL) & table[i].broken, table[i].broken);
    }
}

static void test_names(void)
{
    for (int i = 0; i < RULES; i++) {
        CHECK(plan_rule_names[i] != NULL);
        for (int j = 0; j < i; j++)
            CHECK(strcmp(plan_rule_names[i], plan_rule_names[j]) != 0);
    }
    CHECK(plan_rule_names[RULES] == NULL);
}

/* The search calls it for every plan: said, not judged, for machines differ. */
static void print_speed(void)
{
    enum { CALLS = 200000 };
    struct cluster cluster = cluster_of(256);
    struct plan plan =
        plan_of("{\"tp\":8,\"sequence_parallel\":true,\"pp\":4,\"dp\":8,\"ep\":16,\"global_batch\":1024}");
    struct timespec from, to;
    uint32_t all = 0;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < CALLS; i++) {
        plan.micro_batch = 1 << i % 4;
        all |= plan_broken_rules(&plan, &moe, &cluster);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    CHECK_INT(all, 0);
    printf("plan_broken_rules: %.0f ns\n",
           ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / CALLS);
}

int main(void)
{
    test_widths();
    test_sequence();
    test_layers();
    test_offered_splits();
    test_schedules();
    test_micro_batches();
    test_batch();
    test_zero();
    test_cluster_rules();
    test_rank_order();
    test_impossible_sizes();
    test_all_at_once();
    test_warnings();
    test_idle_fields();
    test_without_model();
    test_names();
    print_speed();
    return test_report();
}

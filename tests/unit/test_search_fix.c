/* --fix: every field of plan.json, alone and against others; the plans that are found have what was fixed. */
#include "tests/unit/answers.h"

static struct inputs in;

static void load(const char *model, const char *hw)
{
    test_question(&in, model, hw, "megatron");
}

static void test_fix(void)
{
    struct search_options o;
    struct err err = {0};
    search_defaults(&o);
    CHECK_INT(search_parse_fix("tp=8,zero=1,recompute=full,sp=on", NULL, &o, &err), 0);
    CHECK_INT(o.fix.tp, 8);
    CHECK_INT(o.fix.zero, 1);
    CHECK_INT(o.fix.recompute, RECOMPUTE_FULL);
    CHECK_INT(o.fix.sequence_parallel, 1);
    CHECK_INT(search_parse_fix("tpp=8,zero=9,pp", NULL, &o, &err), -1);
    CHECK_INT(err.count, 3);
    CHECK_CONTAINS(err.text, "zero");
}

static void refuses_fix(const char *text, const char *word)
{
    struct search_options o;
    struct err err = {0};
    search_defaults(&o);
    CHECK_INT(search_parse_fix(text, NULL, &o, &err), -1);
    CHECK_INT(err.count, 1);
    CHECK_CONTAINS(err.text, word);
    CHECK_INT(o.fix.tp, 0); /* untouched */
}

static void test_fix_contradictions(void)
{
    struct search_options o;
    struct err err = {0};
    refuses_fix("tp=8,tp=4", "twice");
    refuses_fix("mbs=1,micro_batch=1", "twice");
    refuses_fix("sp=on,tp=2,sequence_parallel=off", "twice");
    refuses_fix("recompute=none,recompute_layers=3", "recompute_layers");
    refuses_fix("recompute_layers=3,recompute=selective", "recompute_layers");
    search_defaults(&o);
    CHECK_INT(search_parse_fix(" tp = 4 ,\trecompute_layers=3 ", NULL, &o, &err), 0);
    CHECK_INT(o.fix.tp, 4);
    CHECK_INT(o.fix.recompute, RECOMPUTE_FULL);
    CHECK_INT(o.fix.recompute_layers, 3);
}

/* Any field of plan.json, as --fix writes it and as the file does; fields that plan_to_json writes cannot be forgotten. */
static const struct {
    const char *field, *fix, *value;
} fixes[] = {
    {"tp", "tp=2", "2"}, {"sequence_parallel", "sequence_parallel=off,tp=2", "false"}, {"cp", "cp=2", "2"}, {"context_parallel", "cp=2,context_parallel=ulysses", "\"ulysses\""},
    {"pp", "pp=2", "2"}, {"vp", "vp=2", "2"}, {"dp", "dp=4", "4"}, {"ep", "ep=4", "4"}, {"etp", "etp=2,tp=2", "2"}, {"zero", "zero=3", "3"},
    {"micro_batch", "mbs=2", "2"}, {"global_batch", "global_batch=32", "32"}, {"seq_len", "seq_len=2048", "2048"}, {"schedule", "schedule=1f1b", "\"1f1b\""},
    {"schedule_group", "schedule_group=4,pp=4", "4"}, {"recompute", "recompute=full", "\"full\""}, {"recompute_layers", "recompute_layers=3", "3"},
    {"precision", "precision=fp8", "\"fp8\""}, {"optimizer", "optimizer=sgd", "\"sgd\""}, {"grad_dtype", "grad_dtype=bf16", "\"bf16\""}, {"attention", "attention=unfused", "\"unfused\""},
    {"moe_dispatcher", "moe_dispatcher=alltoall", "\"alltoall\""}, {"overlap.dp_grad", "overlap.dp_grad=no", "false"}, {"overlap.dp_param", "overlap.dp_param=false", "false"},
    {"overlap.tp", "overlap.tp=1", "true"}, {"overlap.ep", "overlap.ep=off,ep=4", "false"}, {"overlap.p2p", "overlap.p2p=0", "false"},
    {"rank_order", "rank_order=tp-cp-ep-pp-dp", "\"tp-cp-ep-pp-dp\""}, {"stack", "stack=fsdp2", "\"fsdp2\""}, {"recompute_modules", "recompute_modules=mlp+moe_act", "[\"mlp\", \"moe_act\"]"},
    {"cuda_graph", "cuda_graph=partial", "\"partial\""}, {"vocab_parallel", "vocab_parallel=pipeline,pp=4", "\"pipeline\""}, {"dp_shard", "dp_shard=2", "2"},
    {"optimizer_offload", "optimizer_offload=0.25", "0.25"}, {"optimizer_state_dtype", "optimizer_state_dtype=bf16", "\"bf16\""}, {"cross_entropy", "cross_entropy=in-place", "\"in-place\""},
    {"dropout", "dropout=yes", "true"}, {"activation_offload_layers", "activation_offload_layers=2", "2"}, {"offload_modules", "offload_modules=core_attn", "[\"core_attn\"]"},
    {"lora_rank", "lora_rank=8", "8"}, {"lora_modules", "lora_rank=8,lora_modules=linear_qkv+linear_proj", "[\"linear_qkv\", \"linear_proj\"]"},
    {"fused_grouped_mlp", "fused_grouped_mlp=on", "true"}, {"fp8_attention", "fp8_attention=on,precision=fp8", "true"},
    {"fp8_param_gather", "fp8_param_gather=off,precision=fp8", "false"},
};
static const uint32_t few_schedules = 1u << SCHEDULE_1F1B | 1u << SCHEDULE_INTERLEAVED | 1u << SCHEDULE_ZB_V;
enum { FIXES = sizeof fixes / sizeof *fixes };

static const struct json *field_of(const struct json *plan, const char *field)
{
    return strncmp(field, "overlap.", 8) == 0 ? json_get(json_get(plan, "overlap"), field + 8) : json_get(plan, field);
}

/* The value as text: a document that holds it alone, without blanks around it. */
static void print_field(const struct plan *plan, const char *field, char *text, size_t size)
{
    struct json *root = plan_to_json(plan);
    const struct json *node = field_of(root, field);
    size_t used = 0;
    text[0] = '\0';
    if (node && json_type(node) == JSON_ARRAY) {
        for (const struct json *item = json_first(node); item; item = json_next(item))
            used += (size_t)snprintf(text + used, size - used, "%s\"%s\"", used ? ", " : "[", json_text(item));
        snprintf(text + used, size - used, "]");
    } else if (node && json_type(node) == JSON_STRING) {
        snprintf(text, size, "\"%s\"", json_text(node));
    } else if (node && json_type(node) == JSON_NUMBER) {
        snprintf(text, size, "%g", json_double(node));
    } else if (node && json_type(node) == JSON_BOOL) {
        snprintf(text, size, "%s", json_true(node) ? "true" : "false");
    }
    json_free(root);
}

static void check_fix(int i)
{
    struct search_options o;
    struct search_result r;
    struct err err = {0};
    char text[128];
    search_defaults(&o);
    o.base.global_batch = 16;
    o.base.seq_len = 4096;
    o.top = 3;
    o.schedules = few_schedules;
    CHECK_INT(search_parse_fix(fixes[i].fix, NULL, &o, &err), 0);
    CHECK_INT(inputs_add_stack(&in, o.base.stack, &err), 0);
    CHECK_INT(search_run(&in.question, &o, &r, &err), 0);
    CHECK_STR(err.text, "");
    if (r.n == 0)
        printf("--fix %s: no plan\n", fixes[i].fix);
    CHECK(r.n > 0);
    for (int k = 0; k < r.n; k++) {
        print_field(&r.plans[k].plan, fixes[i].field, text, sizeof text);
        CHECK_STR(text, fixes[i].value);
        CHECK_INT(plan_check(&r.plans[k].plan, &in.model, &in.cluster, NULL, &err), 0);
    }
    search_release(&r);
}

static void test_fix_any_field(void)
{
    struct plan plan;
    load("hwprofiles/models/qwen3-30b-a3b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 2}");
    plan_defaults(&plan);
    struct json *root = plan_to_json(&plan);
    for (const struct json *node = json_first(root); node; node = json_next(node)) {
        bool inner = json_type(node) == JSON_OBJECT;
        for (const struct json *child = inner ? json_first(node) : node; child; child = inner ? json_next(child) : NULL) {
            char name[64];
            int i = 0;
            snprintf(name, sizeof name, "%s%s%s", json_key(node), inner ? "." : "", inner ? json_key(child) : "");
            while (i < FIXES && strcmp(fixes[i].field, name) != 0)
                i++;
            bool known = i < FIXES || strcmp(name, "layers_per_stage") == 0;
            if (!known)
                printf("--fix is not tried with field '%s'\n", name);
            if (CHECK(known) && i < FIXES)
                check_fix(i);
        }
    }
    json_free(root);
    refuses_fix("layers_per_stage=3", "the search deals the layers");
    refuses_fix("cuda_graph=parial", "did you mean 'partial'");
    refuses_fix("recompute_modules=mlp+foo", "holds 'foo', which is none of core_attn");
    refuses_fix("recompute_modules=mlp,recompute_layers=2", "contradict");
    refuses_fix("recompute_modules=mlp,recompute=full", "goes only with recompute=selective");
    refuses_fix("tensor_parallel_size=2", "plan.json calls it 'tp'");
    refuses_fix("dropout=maybe", "must be true or false");
    refuses_fix("lora_rank=-1", "lora_rank");
    refuses_fix("cuda_graphs=full", "did you mean 'cuda_graph'");
    refuses_fix("overlap.xp=on", "overlap.ep");
    refuses_fix("overlap=on", "overlap");
}

/* Bounds hold with what is pinned, too. */
static void test_fix_bounds(void)
{
    static const char *const texts[] = {"activation_offload_layers=48", "offload_modules=core_attn+expert_fc1", "optimizer_offload=1", "lora_rank=16", "recompute_modules=mlp",
                                        "overlap.ep=off", "optimizer_state_dtype=fp8", "dp_shard=8", "cuda_graph=full", "vocab_parallel=pipeline"};
    load("hwprofiles/models/qwen3-30b-a3b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 2}");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct search_options bounded, all;
        struct err err = {0};
        search_defaults(&bounded);
        bounded.base.global_batch = 32;
        bounded.base.seq_len = 4096;
        bounded.schedules = few_schedules;
        CHECK_INT(search_parse_fix(texts[i], NULL, &bounded, &err), 0);
        all = bounded;
        all.exhaustive = true;
        same_answer(&in.question, &bounded, &all);
    }
}

/* The sizes that no layout can have are all named, each with the nearest that can be. */
static void fix_fails(const char *fix, int sentences, const char *word)
{
    struct search_options o;
    struct search_result r;
    struct err err = {0};
    search_defaults(&o);
    o.base.global_batch = 128;
    o.base.seq_len = 4096;
    CHECK_INT(search_parse_fix(fix, NULL, &o, &err), 0);
    CHECK_INT(search_run(&in.question, &o, &r, &err), -1);
    CHECK_INT(err.count, sentences);
    CHECK_CONTAINS(err.text, word);
    search_release(&r);
}

static void test_fix_without_layout(void)
{
    load("hwprofiles/models/llama-3.1-8b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 8}"); /* 64; 32 heads */
    fix_fails("tp=3", 1, "2 or 4");
    fix_fails("tp=64", 1, "nearest: 32");
    fix_fails("tp=3,pp=5,dp=7", 3, "pp=5");
    fix_fails("tp=3,pp=5,dp=7", 3, "4 or 8");
    fix_fails("pp=128", 1, "nearest: 64");
    fix_fails("tp=8,dp=64", 1, "product");
    fix_fails("tp=8,cp=1,pp=2,dp=2", 1, "product");
    struct search_options o;
    struct search_result r;
    struct err err = {0};
    search_defaults(&o);
    o.base.global_batch = 128;
    o.base.seq_len = 4096;
    CHECK_INT(search_parse_fix("vp=17,pp=2", NULL, &o, &err), 0); /* more chunks than are tried unasked */
    CHECK_INT(search_run(&in.question, &o, &r, &err), 0);
    CHECK(r.n > 0);
    for (int i = 0; i < r.n; i++)
        CHECK_INT(r.plans[i].plan.vp, 17);
    search_release(&r);
}

int main(void)
{
    test_fix();
    test_fix_contradictions();
    test_fix_any_field();
    test_fix_bounds();
    test_fix_without_layout();
    profile_close(in.profile);
    return test_report();
}

/* Activations that wait on the host: what leaves the accelerator, and what the way there costs. */
#include "tests/unit/question.h"

static struct inputs in;

static void load(const char *model)
{
    test_question(&in, model, "{\"accelerator\": \"gb200\", \"nodes\": 2}", "megatron");
}

static struct plan eight_ways(void)
{
    struct plan plan;
    plan_defaults(&plan);
    plan.dp = 8;
    plan.zero = 3;
    plan.global_batch = 16;
    plan.seq_len = 8192;
    return plan;
}

static struct prediction predicted(const struct plan *plan)
{
    static struct prediction p;
    struct err err = {0};
    CHECK_INT(predict_plan(&in.question, plan, &p, &err), 0);
    double sum = 0;
    for (int i = 0; i < TIME_PARTS; i++)
        sum += p.time_s[i];
    CHECK_DOUBLE(sum, p.step_time_s, 1e-9);
    return p;
}

/* Each layer more takes the same bytes away, but for the two that are under way. */
static void test_layers(void)
{
    load("hwprofiles/models/llama-3.1-8b.json");
    struct plan plan = eight_ways();
    double none = predicted(&plan).stage[0].bytes[MEMORY_ACTIVATIONS];
    plan.offload_layers = 8;
    struct prediction eight = predicted(&plan);
    plan.offload_layers = 16;
    struct prediction sixteen = predicted(&plan);
    double first = none - eight.stage[0].bytes[MEMORY_ACTIVATIONS], second = eight.stage[0].bytes[MEMORY_ACTIVATIONS] - sixteen.stage[0].bytes[MEMORY_ACTIVATIONS];
    CHECK(first > 1e9);
    CHECK_DOUBLE(second, first, 1e-9);
    CHECK_DOUBLE(eight.stage[0].bytes[MEMORY_TEMPORARY], sixteen.stage[0].bytes[MEMORY_TEMPORARY], 1e-9);
    plan.offload_layers = 1000; /* no more than there are */
    CHECK(predicted(&plan).stage[0].bytes[MEMORY_ACTIVATIONS] >= 0);
}

/* Copies hide behind a layer's compute while the link is fast, and take their own time when it is slow. */
static void test_link(void)
{
    load("hwprofiles/models/llama-3.1-8b.json");
    struct plan plan = eight_ways();
    double without_s = predicted(&plan).step_time_s, kept = predicted(&plan).stage[0].bytes[MEMORY_ACTIVATIONS];
    plan.offload_layers = (int)in.model.layers;
    in.cluster.accelerator.host_bytes_per_s = 1e15;
    CHECK_DOUBLE(predicted(&plan).step_time_s, without_s, 1e-12);
    in.cluster.accelerator.host_bytes_per_s = 1e9;
    double slow_s = predicted(&plan).step_time_s, copies_s = 2 * kept / 1e9 * (double)plan_micro_batches(&plan);
    CHECK(slow_s > without_s && slow_s < without_s + copies_s);
    in.cluster.accelerator.host_bytes_per_s = 0.5e9; /* nothing is left to hide behind */
    CHECK(predicted(&plan).step_time_s > slow_s + 0.9 * copies_s);
}

static void test_modules(void)
{
    load("hwprofiles/models/qwen3-30b-a3b.json");
    struct plan plan = eight_ways();
    plan.zero = 1;
    plan.ep = 8;
    double none = predicted(&plan).stage[0].bytes[MEMORY_ACTIVATIONS], sum = 0;
    for (int i = 0; i < OFFLOAD_MODULES; i++) {
        plan.offload_modules = 1U << i;
        double less = none - predicted(&plan).stage[0].bytes[MEMORY_ACTIVATIONS];
        CHECK(less > 0);
        sum += less;
    }
    plan.offload_modules = (1U << OFFLOAD_MODULES) - 1;
    CHECK_DOUBLE(none - predicted(&plan).stage[0].bytes[MEMORY_ACTIVATIONS], sum, 1e-9);
    CHECK(sum < none);
    plan.offload_modules = 1U << OFFLOAD_EXPERT_FC1; /* a token for each of its experts, 16 bits, in every layer */
    CHECK_DOUBLE(none - predicted(&plan).stage[0].bytes[MEMORY_ACTIVATIONS], 8192.0 * 8 * 2048 * 2 * (double)in.model.layers, 1e-9);
}

/* The optimizer on the host: a rack of 72 has the memory of several hosts, not that of one. */
static void test_rack(void)
{
    static const char *const clusters[] = {"{\"accelerator\": \"gb200\", \"nodes\": 9, \"accelerators_per_node\": 8}",
                                           "{\"accelerator\": \"gb200\", \"nodes\": 1, \"accelerators_per_node\": 72}"};
    double optimizer_s[2];
    for (int i = 0; i < 2; i++) {
        struct plan plan = eight_ways();
        test_question(&in, "hwprofiles/models/llama-3.1-8b.json", clusters[i], "megatron");
        plan.dp = plan.global_batch = 72;
        plan.zero = 1;
        plan.optimizer_offload = 1;
        optimizer_s[i] = predicted(&plan).time_s[TIME_OPTIMIZER];
    }
    CHECK(optimizer_s[0] > 0);
    CHECK_DOUBLE(optimizer_s[1], optimizer_s[0], 1e-9);
}

static void test_json(void)
{
    static const struct { const char *text, *sentence; } rows[] = {
        {"{\"activation_offload_layers\": 4, \"offload_modules\": [\"core_attn\", \"moe_act\"]}", NULL},
        {"{\"activation_offload_layers\": -1}", "activation_offload_layers"},
        {"{\"offload_modules\": [\"mlp\"]}", "holds 'mlp', which is none of attn_norm"},
        {"{\"offload_modules\": \"moe_act\"}", "must be a list of attn_norm"},
        {"{\"cpu_offloading_num_layers\": 4}", "activation_offload_layers"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err = {0}, warn = {0};
        struct json *root = NULL;
        struct plan plan;
        CHECK_INT(json_parse(rows[i].text, strlen(rows[i].text), "plan.json", &root, &err), 0);
        CHECK_INT(plan_parse(root, "plan.json", &plan, &warn, &err), rows[i].sentence ? -1 : 0);
        CHECK_CONTAINS(err.text, rows[i].sentence ? rows[i].sentence : "");
        json_free(root);
        if (rows[i].sentence)
            continue;
        CHECK_INT(plan.offload_layers, 4);
        CHECK_INT(plan.offload_modules, 1U << OFFLOAD_CORE_ATTN | 1U << OFFLOAD_MOE_ACT);
        struct json *again = plan_to_json(&plan);
        struct plan copy;
        CHECK_INT(plan_parse(again, "plan.json", &copy, &warn, &err), 0);
        CHECK_INT(plan_compare(&plan, &copy), 0);
        json_free(again);
    }
}

int main(void)
{
    test_layers();
    test_link();
    test_modules();
    test_rack();
    test_json();
    profile_close(in.profile);
    return test_report();
}

/* Low-rank adapters: what no longer trains costs no gradient, no optimizer, no weight-gradient products; what is left does. */
#include "tests/unit/question.h"

#include "sim/search.h"

static struct inputs in;

static void load(const char *model)
{
    test_question(&in, model, "{\"accelerator\": \"h100-sxm\", \"nodes\": 1}", "megatron-2024");
}

static struct plan eight_ways(int rank, uint32_t modules)
{
    struct plan plan;
    plan_defaults(&plan);
    snprintf(plan.stack, sizeof plan.stack, "megatron-2024");
    plan.dp = 8;
    plan.global_batch = 32;
    plan.lora_rank = rank;
    plan.lora_modules = modules;
    return plan;
}

static struct prediction predicted(const struct plan *plan)
{
    static struct prediction p;
    struct err err = {0};
    CHECK_INT(predict_plan(&in.question, plan, &p, &err), 0);
    CHECK_STR(err.text, "");
    return p;
}

/* Llama-3.1-8B, 32 layers: adapters of rank r have r (in + out) parameters beside each linear. */
static void test_states(void)
{
    load("hwprofiles/models/llama-3.1-8b.json");
    struct plan plan = eight_ways(16, 0);
    struct prediction p = predicted(&plan);
    double adapters = 32.0 * 16 * ((4096 + 6144) + (4096 + 4096) + (4096 + 28672) + (14336 + 4096)), base = 8030261248;
    CHECK_DOUBLE(p.stage[0].bytes[MEMORY_WEIGHTS], 2 * (base + adapters), 1e-6);
    CHECK_DOUBLE(p.stage[0].bytes[MEMORY_GRADIENTS], 4 * adapters, 1e-9);
    CHECK_DOUBLE(p.stage[0].bytes[MEMORY_OPTIMIZER], 12 * adapters / 8, 1e-9);
    plan.lora_modules = 1U << LORA_LINEAR_QKV;
    CHECK_DOUBLE(predicted(&plan).stage[0].bytes[MEMORY_GRADIENTS], 4 * 32.0 * 16 * (4096 + 6144), 1e-9);
}

/* Between two thirds of the whole step (no products for weights) and the whole; fewer adapters cost less. */
static void test_time(void)
{
    load("hwprofiles/models/llama-3.1-8b.json");
    struct plan all = eight_ways(0, 0), many = eight_ways(16, 0), one = eight_ways(16, 1U << LORA_LINEAR_QKV), wide = eight_ways(256, 0);
    double all_s = predicted(&all).step_time_s, many_s = predicted(&many).step_time_s, one_s = predicted(&one).step_time_s;
    CHECK(one_s > 0.6 * all_s && one_s < 0.85 * all_s);
    CHECK(many_s > one_s && many_s < all_s);
    CHECK(predicted(&wide).step_time_s > many_s);
    CHECK(predicted(&one).stage[0].bytes[MEMORY_ACTIVATIONS] < predicted(&many).stage[0].bytes[MEMORY_ACTIVATIONS]);
    CHECK(predicted(&many).stage[0].bytes[MEMORY_ACTIVATIONS] <= predicted(&all).stage[0].bytes[MEMORY_ACTIVATIONS]);
    CHECK_DOUBLE(predicted(&one).model_flop_per_s_per_gpu * one_s, predicted(&all).model_flop_per_s_per_gpu * all_s * 2 / 3, 1e-9);
}

/* 70B trains on 8 accelerators with adapters, and not without; the search keeps the rank. */
static void test_search(void)
{
    struct search_options options;
    struct search_result result;
    struct err err = {0};
    load("hwprofiles/models/llama-3.1-70b.json");
    search_defaults(&options);
    snprintf(options.base.stack, sizeof options.base.stack, "megatron-2024");
    options.base.global_batch = 32;
    options.base.seq_len = 4096;
    CHECK_INT(search_run(&in.question, &options, &result, &err), 0);
    CHECK_INT(result.n, 0);
    search_release(&result);
    options.base.lora_rank = 16;
    CHECK_INT(search_run(&in.question, &options, &result, &err), 0);
    CHECK(result.n > 0 && result.plans[0].plan.lora_rank == 16 && result.plans[0].fits);
    struct prediction again = predicted(&result.plans[0].plan);
    CHECK_DOUBLE(again.step_time_s, result.plans[0].step_time_s, 1e-9);
    search_release(&result);
}

/* What cannot fit is left out by what adapters need, not by what training all weights would: as when everything is priced. */
static void test_bound(void)
{
    struct search_options options;
    struct search_result bounded, all;
    struct err err = {0};
    test_question(&in, "hwprofiles/models/qwen3-30b-a3b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 1}", "megatron");
    search_defaults(&options);
    options.base.global_batch = 32;
    options.base.seq_len = 2048;
    options.base.lora_rank = 16;
    options.fix.zero = 1;
    options.top = 1;
    CHECK_INT(search_run(&in.question, &options, &bounded, &err), 0);
    options.exhaustive = true;
    CHECK_INT(search_run(&in.question, &options, &all, &err), 0);
    if (CHECK(bounded.n == 1 && all.n == 1))
        CHECK_DOUBLE(bounded.plans[0].step_time_s, all.plans[0].step_time_s, 1e-12);
    search_release(&bounded);
    search_release(&all);
}

int main(void)
{
    test_states();
    test_time();
    test_search();
    test_bound();
    profile_close(in.profile);
    return test_report();
}

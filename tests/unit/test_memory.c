/* Bytes of one rank by kind: what each option moves, and what nothing may break. */
#include "tests/unit/test.h"

#include "cost/memory.h"
#include "cost/plan.h"
#include "cost/profile.h"

static const struct stack plain = {.main_grad_bytes = 4, .cross_entropy_copies = 1.5, .fragmentation = 0.1};
static const struct accelerator accelerator = {.context_bytes = 1e9};

static struct rank_load usual_load(void)
{
    return (struct rank_load){.dense_params = 1e9, .largest_layer_params = 1e8, .dp_ways = 8, .expert_dp_ways = 1, .copies = 1, .kept_bytes = 5e9};
}

static double part(const struct plan *plan, const struct stack *stack, const struct rank_load *load, enum memory_part which)
{
    double bytes[MEMORY_PARTS];
    memory_rank(plan, stack, &accelerator, load, bytes);
    return bytes[which];
}

/* 2 + 4 + 12 bytes per parameter, shared out by ZeRO (Rajbhandari et al. 2020, section 5). */
static void test_states(void)
{
    struct plan plan;
    struct rank_load load = usual_load();
    plan_defaults(&plan);
    static const struct { int zero; double weights, gradients, optimizer; } rows[] = {
        {0, 2e9, 4e9, 12e9}, {1, 2e9, 4e9, 1.5e9}, {2, 2e9, 0.5e9, 1.5e9}, {3, 0.25e9, 0.5e9, 1.5e9}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plan.zero = rows[i].zero;
        CHECK_DOUBLE(part(&plan, &plain, &load, MEMORY_WEIGHTS), rows[i].weights, 1e-12);
        CHECK_DOUBLE(part(&plan, &plain, &load, MEMORY_GRADIENTS), rows[i].gradients, 1e-12);
        CHECK_DOUBLE(part(&plan, &plain, &load, MEMORY_OPTIMIZER), rows[i].optimizer, 1e-12);
    }
}

/* Weights of a billion parameters of linears and 0.1 of edges in 8 and 4 bits, on tensor cores that take one layout and any. The
 * same Megatron-LM test (gpt3_weekly_mcore_tp4_cp2_current_scaling_native_fp8, 9,437,184 parameters of linears on a rank)
 * holds 9,438,208 bytes more on H100 than on GB200. */
static void test_low_weights(void)
{
    static const struct { enum precision precision; bool gathers; int zero; double hopper, blackwell; } rows[] = {
        {PRECISION_BF16, true, 1, 2, 2},        {PRECISION_FP8, true, 1, 2, 1},     {PRECISION_FP8, false, 1, 4, 3}, {PRECISION_FP8, true, 0, 4, 3},
        {PRECISION_FP8_BLOCK, true, 1, 2, 2},   {PRECISION_FP8_BLOCK, false, 1, 4, 4}, {PRECISION_MXFP8, true, 1, 2.0625, 2.0625},
        {PRECISION_NVFP4, true, 1, 3.125, 3.125}};
    struct accelerator hopper = accelerator, blackwell = accelerator;
    blackwell.peak_flop_per_s[RATE_FP4] = 9e15;
    struct rank_load load = usual_load();
    load.dense_params = 0.6e9;
    load.edge_params = 0.1e9;
    load.expert_params = 0.5e9;
    load.layers = 8;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct plan plan;
        double bytes[MEMORY_PARTS];
        plan_defaults(&plan);
        plan.precision = rows[i].precision;
        plan.fp8_param_gather = rows[i].gathers;
        plan.zero = rows[i].zero;
        memory_rank(&plan, &plain, &hopper, &load, bytes);
        CHECK_DOUBLE(bytes[MEMORY_WEIGHTS], 0.2e9 + rows[i].hopper * 1e9, 1e-12);
        memory_rank(&plan, &plain, &blackwell, &load, bytes);
        CHECK_DOUBLE(bytes[MEMORY_WEIGHTS], 0.2e9 + rows[i].blackwell * 1e9, 1e-12);
        load.layers = 0; /* a lower bound, whatever part the edges are */
        load.edge_params = 0;
        double exact = bytes[MEMORY_WEIGHTS];
        memory_rank(&plan, &plain, &blackwell, &load, bytes);
        CHECK(bytes[MEMORY_WEIGHTS] <= exact);
        load.layers = 8;
        load.edge_params = 0.1e9;
    }
}

static void test_options(void)
{
    struct plan plan;
    struct rank_load load = usual_load();
    plan_defaults(&plan);
    plan.precision = PRECISION_FP16; /* Megatron-LM accumulates fp16 gradients in 16 bit unless told otherwise */
    CHECK_DOUBLE(part(&plan, &plain, &load, MEMORY_GRADIENTS), 2e9, 1e-12);
    plan.grad_bytes = 4;
    CHECK_DOUBLE(part(&plan, &plain, &load, MEMORY_GRADIENTS), 4e9, 1e-12);
    plan.moment_bytes = 2;
    CHECK_DOUBLE(part(&plan, &plain, &load, MEMORY_OPTIMIZER), 1e9, 1e-12);
    plan.optimizer_offload = 0.75;
    CHECK_DOUBLE(part(&plan, &plain, &load, MEMORY_OPTIMIZER), 0.25e9, 1e-12);
    struct stack unfused = plain;
    unfused.optimizer_temporary_bytes = 8;
    plan.optimizer_offload = 0;
    CHECK_DOUBLE(part(&plan, &unfused, &load, MEMORY_TEMPORARY), 1e9, 1e-12);
}

static void test_logits(void)
{
    struct plan plan;
    struct rank_load load = usual_load();
    plan_defaults(&plan);
    load.logits = 1e9;
    load.working_bytes = 7e9;
    static const struct { enum cross_entropy how; double logits, temporary; } rows[] = {
        {CROSS_ENTROPY_STACK, 6e9, 1e9}, {CROSS_ENTROPY_UNFUSED, 6e9, 1e9}, {CROSS_ENTROPY_FUSED, 10e9, 0}, {CROSS_ENTROPY_IN_PLACE, 2e9, 5e9},
        {CROSS_ENTROPY_CHUNKED, 0, 7e9}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) { /* the larger of the two is there at the peak */
        plan.cross_entropy = rows[i].how;
        CHECK_DOUBLE(part(&plan, &plain, &load, MEMORY_LOGITS), rows[i].logits, 1e-12);
        CHECK_DOUBLE(part(&plan, &plain, &load, MEMORY_TEMPORARY), rows[i].temporary, 1e-12);
    }
    struct stack gathered = plain;
    gathered.gathered_logits = true;
    plan.tp = 4;
    plan.cross_entropy = CROSS_ENTROPY_UNFUSED;
    CHECK_DOUBLE(part(&plan, &gathered, &load, MEMORY_LOGITS), 24e9, 1e-12);
    CHECK_DOUBLE(part(&plan, &gathered, &load, MEMORY_TEMPORARY), 7e9, 1e-12);
}

/* The search extrapolates from two points (sim/search_unit.c). */
static void test_linear(void)
{
    struct plan plan;
    struct rank_load load = usual_load();
    double bytes[MEMORY_PARTS], total[3];
    plan_defaults(&plan);
    load.logits = 1e9;
    load.working_bytes = 9e9;
    for (int i = 0; i < 3; i++) {
        load.kept_bytes = i * 3e9;
        total[i] = memory_rank(&plan, &plain, &accelerator, &load, bytes);
        double sum = 0;
        for (int k = 0; k < MEMORY_PARTS; k++)
            sum += bytes[k];
        CHECK_DOUBLE(total[i], sum, 1e-12);
        CHECK(memory_allocated(bytes) <= memory_reserved(bytes) && memory_reserved(bytes) <= total[i]);
    }
    CHECK_DOUBLE(total[2] - total[1], total[1] - total[0], 1e-12);
}

/* FSDP: fp32 shards; a pipeline keeps gathered weights and whole gradients through the step. */
static void test_sharded(void)
{
    struct plan plan;
    struct stack fsdp = plain;
    struct rank_load load = usual_load();
    plan_defaults(&plan);
    fsdp.sharded_per_layer = true;
    plan.zero = 3;
    CHECK_DOUBLE(part(&plan, &fsdp, &load, MEMORY_WEIGHTS), 0.5e9, 1e-12);
    CHECK_DOUBLE(part(&plan, &fsdp, &load, MEMORY_GRADIENTS), 0.5e9, 1e-12);
    CHECK_DOUBLE(part(&plan, &fsdp, &load, MEMORY_OPTIMIZER), 1e9, 1e-12);
    plan.zero = 2;
    plan.pp = 2;
    CHECK_DOUBLE(part(&plan, &fsdp, &load, MEMORY_WEIGHTS), 2.5e9, 1e-12);
    CHECK_DOUBLE(part(&plan, &fsdp, &load, MEMORY_GRADIENTS), 4.5e9, 1e-12);
    plan.precision = PRECISION_FP32; /* gathered in fp32, but where nothing is sharded the weights are the masters */
    CHECK_DOUBLE(part(&plan, &fsdp, &load, MEMORY_WEIGHTS), 4.5e9, 1e-12);
    plan.zero = 0;
    CHECK_DOUBLE(part(&plan, &fsdp, &load, MEMORY_WEIGHTS), 4e9, 1e-12);
}

int main(void)
{
    test_states();
    test_low_weights();
    test_options();
    test_logits();
    test_linear();
    test_sharded();
    return test_report();
}

/* What a factor of a stack touches, and what it leaves alone. */
#include "tests/unit/question.h"

static struct inputs in;

static struct prediction predicted(const struct plan *plan)
{
    static struct prediction p;
    struct err err = {0};
    CHECK_INT(predict_plan(&in.question, plan, &p, &err), 0);
    return p;
}

/* Tensor- beside data-parallel traffic, neither hidden: each follows the factor that is its own, and 0 means the common one. */
static void test_collective_speeds(void)
{
    test_question(&in, "hwprofiles/models/llama-3.1-8b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 4}", "megatron");
    struct plan plan;
    plan_defaults(&plan);
    plan.tp = 8;
    plan.sequence_parallel = true;
    plan.dp = 4;
    plan.zero = 1;
    plan.global_batch = 4;
    plan.seq_len = 8192;
    plan.overlap.dp_grad = plan.overlap.dp_param = false;
    struct stack *stack = &in.stacks[0];
    stack->overlap_slowdown = 0;
    stack->collective_speed = 0.8;
    stack->dp_collective_speed = 0;
    struct prediction common = predicted(&plan);
    CHECK(common.time_s[TIME_TP] > 0 && common.time_s[TIME_DP] > 0);
    stack->dp_collective_speed = 0.8;
    CHECK(predicted(&plan).step_time_s == common.step_time_s);
    stack->dp_collective_speed = 0.4;
    struct prediction slow_dp = predicted(&plan);
    CHECK_DOUBLE(slow_dp.time_s[TIME_DP], 2 * common.time_s[TIME_DP], 1e-9);
    CHECK_DOUBLE(slow_dp.time_s[TIME_TP], common.time_s[TIME_TP], 1e-12);
    stack->collective_speed = 1.6;
    struct prediction fast_tp = predicted(&plan);
    CHECK_DOUBLE(fast_tp.time_s[TIME_DP], slow_dp.time_s[TIME_DP], 1e-12);
    CHECK(fast_tp.time_s[TIME_TP] < 0.7 * common.time_s[TIME_TP]);
}

int main(void)
{
    test_collective_speeds();
    profile_close(in.profile);
    return test_report();
}

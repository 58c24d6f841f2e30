/* What a training loop decides beside arithmetic: the learning rate of a step, steps that are left out, spikes. */
#include "tests/exec/one_rank.h"

#include <math.h>

#include "exec/check.h"
#include "exec/measure.h"
#include "kernels/kernels.h"

enum { BATCH = 4, LENGTH = 16 };

static struct step_result step_of(struct one_rank *one)
{
    struct step_result result;
    trainer_gradients(&one->trainer, &result);
    trainer_update(&one->trainer, &result);
    return result;
}

/* Three steps up, four along a cosine from 1e-3 to 1e-4: (1 + cos(i pi / 4)) / 2 = 1, 0.8535534, 0.5, 0.1464466, 0. */
static void test_schedule(void)
{
    static const double expected[] = {1e-3 / 3, 2e-3 / 3, 1e-3, 1e-3, 8.6819805153394639e-4, 5.5e-4,
                                      2.3180194846605361e-4, 1e-4, 1e-4, 1e-4};
    struct one_rank one;
    one_rank_open(&one, "llama-tiny", BATCH, LENGTH, &kernels_cpu);
    struct optimizer_state *o = &one.trainer.optimizer;
    o->learning_rate = 1e-3;
    o->min_learning_rate = 1e-4;
    o->warmup_steps = 3;
    o->decay_steps = 4;
    o->weight_decay = 0;
    const struct unit *unit = one.trainer.executor.params.unit[1];
    for (int i = 0; i < 10; i++) {
        float before = unit->owned_weight[5];
        struct step_result result = step_of(&one);
        CHECK_DOUBLE(result.optimizer.learning_rate, expected[i], 1e-12);
        if (i == 0) /* AdamW's first step is the rate itself, whatever the gradient */
            CHECK_DOUBLE(fabs((double)unit->owned_weight[5] - (double)before), expected[0], 1e-3);
    }
    CHECK_INT(o->step, 10);
    o->decay_steps = 0;
    CHECK_DOUBLE(step_of(&one).optimizer.learning_rate, 1e-3, 1e-12);
    one_rank_close(&one);
}

/* A gradient that is not finite changes nothing but the count. */
static void test_poison(float poison)
{
    struct one_rank one;
    struct step_result result;
    one_rank_open(&one, "llama-tiny", BATCH, LENGTH, &kernels_cpu);
    const struct unit *unit = one.trainer.executor.params.unit[1];
    step_of(&one);
    float weight = unit->owned_weight[7], m = unit->m[7];
    trainer_gradients(&one.trainer, &result);
    unit->owned_gradient[3] = poison;
    trainer_update(&one.trainer, &result);
    CHECK(result.optimizer.skipped);
    CHECK_INT(one.trainer.optimizer.skipped, 1);
    CHECK_INT(one.trainer.optimizer.step, 1);
    CHECK(memcmp(&weight, &unit->owned_weight[7], sizeof weight) == 0 && memcmp(&m, &unit->m[7], sizeof m) == 0);
    result = step_of(&one);
    CHECK(!result.optimizer.skipped && isfinite(result.loss));
    CHECK_INT(one.trainer.optimizer.skipped, 1);
    CHECK_INT(one.trainer.optimizer.step, 2);
    CHECK(unit->owned_weight[7] < weight || unit->owned_weight[7] > weight);
    one_rank_close(&one);
}

/* A weight that is not a number spoils the loss of every step until it is mended. */
static void test_bad_weight(void)
{
    struct one_rank one;
    one_rank_open(&one, "llama-tiny", BATCH, LENGTH, &kernels_cpu);
    const struct unit *unit = one.trainer.executor.params.unit[1];
    float good = unit->owned_weight[0];
    unit->owned_weight[0] = (float)NAN;
    for (int i = 0; i < 2; i++) {
        struct step_result result = step_of(&one);
        CHECK(result.optimizer.skipped && !isfinite(result.loss));
    }
    unit->owned_weight[0] = good;
    CHECK(!step_of(&one).optimizer.skipped);
    CHECK_INT(one.trainer.optimizer.skipped, 2);
    CHECK_INT(one.trainer.optimizer.step, 1);
    one_rank_close(&one);
}

static void feed(struct measurement *m, const struct trainer *trainer, double loss)
{
    struct step_result result = {.loss = loss};
    measure_step(m, trainer, &result);
}

/* Losses near 3 +- 0.02: 6 standard deviations are below 0.1, 10 % is 0.3. */
static void test_spikes(void)
{
    struct one_rank one;
    struct measurement m;
    one_rank_open(&one, "llama-tiny", BATCH, LENGTH, &kernels_cpu);
    measure_begin(&m, &one.trainer, 100);
    feed(&m, &one.trainer, 9); /* too early to say */
    for (int i = 0; i < 25; i++)
        feed(&m, &one.trainer, 3 + 0.02 * (i % 3 - 1));
    CHECK_INT(m.loss_spikes, 0);
    feed(&m, &one.trainer, 3.2); /* high, but not by a tenth */
    CHECK_INT(m.loss_spikes, 0);
    for (int i = 0; i < 20; i++)
        feed(&m, &one.trainer, 3 + 0.02 * (i % 3 - 1));
    feed(&m, &one.trainer, (double)NAN); /* skipped, not a spike, and does not blind for those to come */
    CHECK_INT(m.loss_spikes, 0);
    feed(&m, &one.trainer, 3.5);
    CHECK_INT(m.loss_spikes, 1);
    for (int i = 0; i < 20; i++)
        feed(&m, &one.trainer, 3);
    feed(&m, &one.trainer, 2); /* a fall is none */
    feed(&m, &one.trainer, 6);
    CHECK_INT(m.loss_spikes, 2);
    measure_release(&m);
    one_rank_close(&one);
}

/* The first weight's gradient of out x in that a step computes is off: by a part of itself, by so much everywhere. */
static struct {
    int out, in, left;
    float part, everywhere;
} fault;

static void faulty_gemm(void *queue, int n, const struct gemm *gemm)
{
    for (int i = 0; i < n; i++) {
        const struct gemm *g = &gemm[i];
        bool here = g->transpose_a && g->accumulate && g->m == fault.out && g->n == fault.in && fault.left > 0;
        kernels_cpu.gemm(queue, 1, g);
        if (!here)
            continue;
        fault.left--;
        for (int row = 0; row < g->m; row++)
            for (int column = 0; column < g->n; column++) {
                float *c = (float *)g->c + (int64_t)row * g->stride_c + column;
                *c += *c * fault.part + fault.everywhere;
            }
    }
}

/* Steps 1 and 2 against a run without fault, which is in step `faulty` alone. */
static void check_steps(int faulty, float part, float everywhere, bool *ret_passed, struct check_result *ret)
{
    struct one_rank one, reference;
    struct kernels kernels = kernels_cpu;
    kernels.gemm = faulty_gemm;
    fault.left = 0;
    one_rank_open(&one, "llama-tiny", 2, 32, &kernels);
    one_rank_open(&reference, "llama-tiny", 2, 32, &kernels_cpu);
    fault.out = (int)one.model.hidden;
    fault.in = (int)one.model.kinds[0].ffn;
    fault.part = part;
    fault.everywhere = everywhere;
    struct check_bounds *bounds = check_begin(&one.trainer, &reference.trainer);
    for (int step = 1; step <= 2; step++) {
        fault.left = step == faulty;
        check_step(bounds, &ret[step - 1]);
        ret_passed[step - 1] = check_passed(&ret[step - 1]);
        printf("fault in step %d: step %d, gradient %s at %g, weight %s at %g\n", faulty, step, ret[step - 1].gradient.name,
               ret[step - 1].gradient.ratio, ret[step - 1].weight.name, ret[step - 1].weight.ratio);
    }
    check_end(bounds);
    one_rank_close(&one);
    one_rank_close(&reference);
}

/* A gradient that is off by what rounding may do turns round where it is near zero, and AdamW makes whole updates of that: the
 * next step's gradients pass. One that is wrong by a hundredth does not, in any step. */
static void test_check(void)
{
    struct check_result r[2];
    bool passed[2];
    check_steps(1, 0, 0.9e-6f, passed, r);
    CHECK(passed[0] && passed[1]);
    CHECK(r[0].gradient.ratio > 0.1 && r[0].weight.ratio > 0.1);
    for (int step = 1; step <= 2; step++) {
        check_steps(step, 0.01f, 0, passed, r);
        CHECK(passed[0] == (step == 2) && !passed[step - 1]);
        CHECK(r[step - 1].gradient.ratio > 1);
        CHECK_CONTAINS(r[step - 1].gradient.name, "down.weight");
    }
}

int main(void)
{
    test_check();
    test_schedule();
    test_poison((float)NAN);
    test_poison((float)INFINITY);
    test_bad_weight();
    test_spikes();
    return test_report();
}

/* What a training loop decides beside arithmetic: the learning rate of a step, steps that are left out, spikes. */
#include "tests/exec/one_rank.h"

#include <math.h>

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

int main(void)
{
    test_schedule();
    test_poison((float)NAN);
    test_poison((float)INFINITY);
    test_bad_weight();
    test_spikes();
    return test_report();
}

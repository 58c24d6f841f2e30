/* Linears in 8 bits against linears in fp32: gradients, losses, what is refused. */
#include "tests/exec/one_rank.h"

#include <math.h>

#include "exec/fp8.h"

enum { BATCH = 4, LENGTH = 32 };

/* |a - b| / |b|, of matrices */
static double distance(const float *a, const float *b, int64_t n)
{
    double off = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        off += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(off / size);
}

static double worst_gradient(const struct one_rank *eight, const struct one_rank *full, double *ret_least)
{
    double worst = 0;
    *ret_least = INFINITY;
    for (int u = 0; u < full->trainer.executor.params.n; u++) {
        const struct unit *a = eight->trainer.executor.params.unit[u], *b = full->trainer.executor.params.unit[u];
        for (int p = 0; p < b->n_params; p++) {
            const struct param *param = &b->param[p];
            if (strstr(param->name, "k.bias")) /* zero but for rounding: a softmax does not see it */
                continue;
            double off = distance(a->owned_gradient + param->offset, b->owned_gradient + param->offset,
                                  (int64_t)param->rows * param->columns);
            worst = fmax(worst, off);
            *ret_least = fmin(*ret_least, off);
        }
    }
    return worst;
}

/* A run in 8 bits is off by what its own roundings are (exec/check.h, of one run instead of two): in the first step,
 * whose factors are powers of two, and in later ones. Weights are made the same before each, experts are taken in turn.
 * None is exact. */
static void test_gradients(const char *model, int layers)
{
    struct one_rank eight, full;
    struct step_result a, b;
    const double e4m3 = 0.0266, e5m2 = 0.0532, bound = sqrt((layers + 2) * (12 * e4m3 * e4m3 + 4 * e5m2 * e5m2));
    double least, forward = sqrt((layers + 2) * 8.0) * e4m3;
    one_rank_open_in(&eight, model, BATCH, LENGTH, &kernels_cpu, true);
    one_rank_open_in(&full, model, BATCH, LENGTH, &kernels_cpu, false);
    eight.trainer.executor.balanced = full.trainer.executor.balanced = true;
    for (int step = 0; step < 3; step++) {
        for (int u = 0; u < full.trainer.executor.params.n; u++) {
            struct unit *to = eight.trainer.executor.params.unit[u], *from = full.trainer.executor.params.unit[u];
            memcpy(to->owned_weight, from->owned_weight, (size_t)from->size * sizeof(float));
        }
        trainer_gradients(&eight.trainer, &a);
        trainer_gradients(&full.trainer, &b);
        double worst = worst_gradient(&eight, &full, &least);
        printf("%s, step %d: gradients are off by %.4f to %.4f of their norm (allowed %.4f), the loss by %.2g\n", model,
               step + 1, least, worst, bound, fabs(a.loss / b.loss - 1));
        CHECK(worst < bound && least > 1e-4);
        CHECK(fabs(a.loss / b.loss - 1) < forward / sqrt(BATCH * LENGTH) + forward * forward / 2);
        trainer_update(&eight.trainer, &a);
        trainer_update(&full.trainer, &b);
    }
    one_rank_close(&eight);
    one_rank_close(&full);
}

/* Experts share factors, and the first step has no history: of trained ones (--resume) some have larger weights than the
 * first. None may saturate. */
static void test_unlike_experts(void)
{
    struct one_rank eight, full;
    struct step_result a, b;
    double least;
    one_rank_open_in(&eight, "mixtral-tiny", BATCH, LENGTH, &kernels_cpu, true);
    one_rank_open_in(&full, "mixtral-tiny", BATCH, LENGTH, &kernels_cpu, false);
    eight.trainer.executor.balanced = full.trainer.executor.balanced = true;
    for (int u = 0; u < full.trainer.executor.params.n; u++) {
        struct unit *to = eight.trainer.executor.params.unit[u], *from = full.trainer.executor.params.unit[u];
        for (int p = 0; p < from->n_params; p++)
            for (int64_t i = 0; strstr(from->param[p].name, "experts.") && !strstr(from->param[p].name, "experts.0.") &&
                                i < (int64_t)from->param[p].rows * from->param[p].columns;
                 i++)
                from->owned_weight[from->param[p].offset + i] *= 16;
        memcpy(to->owned_weight, from->owned_weight, (size_t)from->size * sizeof(float));
    }
    trainer_gradients(&eight.trainer, &a);
    trainer_gradients(&full.trainer, &b);
    double worst = worst_gradient(&eight, &full, &least);
    printf("experts apart by 16: gradients are off by %.4f to %.4f of their norm\n", least, worst);
    CHECK(worst < 0.6);
    one_rank_close(&eight);
    one_rank_close(&full);
}

/* What is not a whole piece is named with the nearest that is. */
static void test_refusals(void)
{
    struct one_rank one;
    struct err err = {0};
    one_rank_open(&one, "llama-tiny", BATCH, LENGTH, &kernels_cpu);
    CHECK_INT(fp8_check(&one.model, &one.plan, &err), 0);
    struct plan plan = one.plan;
    plan.tp = 4; /* 160 / 4 = 40 */
    CHECK_INT(fp8_check(&one.model, &plan, &err), -1);
    CHECK_CONTAINS(err.text, "the MLP's width 160 / tp 4 = 40 is none; the nearest is 48");
    err = (struct err){0};
    plan = one.plan;
    plan.seq_len = 20;
    CHECK_INT(fp8_check(&one.model, &plan, &err), -1);
    CHECK_CONTAINS(err.text, "the tokens of a micro-batch 40 / cp 1 = 40 is none; the nearest is 48");
    CHECK_INT(err.count, 1);
    err = (struct err){0};
    struct model model = one.model;
    model.hidden = 70;
    CHECK_INT(fp8_check(&model, &one.plan, &err), -1);
    CHECK_CONTAINS(err.text, "hidden size 70 is none; the nearest is 64");
    one_rank_close(&one);
}

int main(void)
{
    test_gradients("llama-tiny", 4);
    test_gradients("gpt2-tiny", 3);
    test_gradients("routed-tiny", 3);
    test_unlike_experts();
    test_refusals();
    return test_report();
}

/* One-rank training against PyTorch autograd in double precision: golden/autograd.txt, by golden/make_golden.py.
 *
 * Tolerances, with u = 2^-24, n = 1024 > every sum's length, L = 4 layers: losses, norms and products of gradients
 * tol = 16 u sqrt(n) (L + 2), relative to the loss, the gradient's norm, norm x pattern's norm. An AdamW update of at
 * most 2 x rate may be wrong by 100 tol of itself (elements much smaller than the gradient's largest), which adds up
 * over the steps; gradients that are zero but for rounding (key biases: norm below 1e-9) say nothing about the update.
 * */
#include "tests/exec/one_rank.h"

#include <math.h>

#include "kernels/kernels.h"

static const double tolerance = 16 * 0x1p-24 * 32 * 6, rate = 1e-3;
enum { STEPS = 3, BATCH = 8, LENGTH = 32 };

struct probe {
    double norm, product, pattern, n;
};

static struct probe probe_of(const float *x, int64_t n)
{
    struct probe p = {.n = (double)n};
    for (int64_t i = 0; i < n; i++) {
        double pattern = (double)(i * 7919 % 1009) / 1009 - 0.5;
        p.norm += (double)x[i] * (double)x[i];
        p.product += (double)x[i] * pattern;
        p.pattern += pattern * pattern;
    }
    p.norm = sqrt(p.norm);
    p.pattern = sqrt(p.pattern);
    return p;
}

struct session {
    char name[64];
    struct one_rank one;
    int step;
    double gradient_norm[512]; /* of the golden lines, by order: weights come in the same order */
    int n_gradients, n_weights;
};

static void open_session(struct session *s, const char *name, const struct kernels *kernels)
{
    *s = (struct session){0};
    snprintf(s->name, sizeof s->name, "%s", name);
    one_rank_open(&s->one, name, BATCH, LENGTH, kernels);
}

static void close_session(struct session *s)
{
    if (!s->name[0])
        return;
    one_rank_close(&s->one);
    s->name[0] = '\0';
}

static const struct param *find(const struct session *s, const char *name, const struct unit **ret_unit)
{
    const struct params *params = &s->one.trainer.executor.params;
    for (int u = 0; u < params->n; u++)
        for (int p = 0; p < params->unit[u]->n_params; p++)
            if (strcmp(params->unit[u]->param[p].name, name) == 0) {
                *ret_unit = params->unit[u];
                return &params->unit[u]->param[p];
            }
    return NULL;
}

static void near(const char *what, const struct session *s, const char *name, double got, double expected,
                 double allowed)
{
    bool holds = fabs(got - expected) <= allowed;
    if (!holds)
        printf("%s %s %s: %.9g, PyTorch %.9g, allowed %.2g\n", s->name, name, what, got, expected, allowed);
    test_count(holds);
}

static void check_values(struct session *s, const char *what, const char *name, double norm, double product)
{
    const struct unit *unit = NULL;
    const struct param *param = find(s, name, &unit);
    bool gradient = strcmp(what, "gradient") == 0;
    if (!CHECK(param != NULL))
        return;
    const float *values = (gradient ? unit->owned_gradient : unit->owned_weight) + param->offset;
    int64_t n = param->all_rows * param->all_columns; /* padding of the vocabulary comes last */
    struct probe p = probe_of(values, n);
    double allowed = tolerance * norm + 1e-9;
    if (gradient) {
        s->gradient_norm[s->n_gradients++] = norm;
    } else {
        if (s->gradient_norm[s->n_weights++] < 1e-9)
            return;
        allowed = STEPS * 2 * rate * 100 * tolerance * sqrt(p.n) + 8 * 0x1p-24 * norm;
    }
    near(what, s, name, p.norm, norm, allowed);
    near(what, s, name, p.product, product, allowed * p.pattern);
}

static void check_loss(struct session *s, double loss, double norm)
{
    struct step_result result;
    if (s->step > 0)
        trainer_update(&s->one.trainer, &result);
    trainer_gradients(&s->one.trainer, &result);
    near("loss", s, "", result.loss, loss, tolerance * loss);
    near("gradient norm", s, "", optimizer_norm(&s->one.trainer.executor), norm, tolerance * norm * ++s->step);
}

static void check_file(const struct kernels *kernels)
{
    char path[TEST_PATH_MAX], line[512], name[64], what[32], part[128];
    double a, b;
    struct session s = {0};
    FILE *file = fopen(test_source_path(path, "tests/exec/golden/autograd.txt"), "r");
    if (!CHECK(file != NULL))
        return;
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#' || sscanf(line, "%63s | %31s | %127s | %lf | %lf", name, what, part, &a, &b) != 5)
            continue;
        if (strcmp(name, s.name) != 0) {
            close_session(&s);
            open_session(&s, name, kernels);
        }
        if (strncmp(what, "loss", 4) == 0) {
            check_loss(&s, a, b);
        } else {
            struct step_result result;
            if (strcmp(what, "weight") == 0 && s.n_weights == 0)
                trainer_update(&s.one.trainer, &result);
            check_values(&s, what, part, a, b);
        }
    }
    close_session(&s);
    fclose(file);
}

int main(void)
{
    check_file(&kernels_ref);
    check_file(&kernels_cpu);
    return test_report();
}

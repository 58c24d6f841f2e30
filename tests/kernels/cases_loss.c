/* Cases of the cross-entropy, the routers and the optimizer. */
#include <math.h>
#include <stdlib.h>

#include "tests/kernels/cases.h"
#include "tests/kernels/compare.h"

static void check_loss(int rows, int columns, int stride, float scale)
{
    enum { FIRST = 5 };
    int target[64];
    for (int r = 0; r < rows; r++)
        target[r] = r * 7 % (2 * columns + 1) + FIRST; /* some in the shard, some not */
    int64_t n = (int64_t)rows * stride;
    start_case("logits %d x %d, stride %d, scale %g", rows, columns, stride, (double)scale);
    int logits = elements(n, scale), targets = ints(rows, target), max = floats_unset(rows), sum = floats_unset(rows);
    int picked = floats_unset(rows);
    if (rows > 2 && columns > 0)
        set(logits, stride + columns / 2, NAN);
    FOR_SIDES
    {
        const struct kernels *k = table(side);
        k->logits_max(queue(side), rows, columns, stride, at(side, logits), at(side, max));
        k->logits_sum(queue(side), rows, columns, stride, at(side, logits), at(side, max), at(side, targets), FIRST,
                      at(side, sum), at(side, picked));
        k->logits_gradient(queue(side), rows, columns, stride, at(side, logits), at(side, max), at(side, sum),
                           at(side, targets), FIRST, 0.25f);
    }
    same(max, 0);
    same(sum, columns);
    same(picked, 1);
    same(logits, columns);
    end_case();
}

void check_losses(void)
{
    for (int shift = 0; shift < 2; shift++) {
        set_shift(shift);
        check_loss(1, 1, 1, 1);
        check_loss(13, 97, 128, 5);
        check_loss(7, 33, 33, 90);
        check_loss(5, 40, 40, 1e4f);
        check_loss(64, 257, 264, 1);
        check_loss(3, 12000, 12008, 8);
    }
    set_shift(0);
}

/* -- routers -------------------------------------------------------------------------------------------------------- */

/* Logits on a coarse grid: many ties, and no two that differ by less than an exponential's error. */
static void check_router(int rows, int experts, int k, bool renormalise)
{
    int64_t n = (int64_t)rows * experts;
    start_case("router %d x %d, top %d, renormalise %d", rows, experts, k, renormalise);
    int logits = floats(n, 0), choice = ints_unset((int64_t)rows * k), weight = floats_unset((int64_t)rows * k);
    int dweight = floats((int64_t)rows * k, 1), balance = floats(experts, 0.1f), dlogits = floats_unset(n);
    for (int64_t i = 0; i < n; i++)
        set(logits, i, roundf(uniform(32)) / 8);
    if (rows > 2)
        set(logits, experts + experts / 2, NAN);
    FOR_SIDES
    {
        table(side)->router_forward(queue(side), rows, experts, k, renormalise, at(side, logits), at(side, choice),
                                    at(side, weight));
        table(side)->router_backward(queue(side), rows, experts, k, renormalise, at(side, logits), at(side, choice),
                                     at(side, dweight), at(side, balance), at(side, dlogits));
    }
    same(logits, experts);
    same(choice, 0);
    same(weight, experts);
    same(dlogits, experts);
    end_case();
}

void check_routers(void)
{
    static const struct {
        int rows, experts, k;
    } sizes[] = {{1, 1, 1}, {5, 8, 2}, {33, 60, 4}, {9, 64, 6}, {100, 128, 8}, {7, 257, 8}, {3, 1500, 3}, {2, 9000, 2}};
    for (int i = 0; i < (int)(sizeof sizes / sizeof sizes[0]); i++)
        for (int renormalise = 0; renormalise < 2; renormalise++)
            check_router(sizes[i].rows, sizes[i].experts, sizes[i].k, renormalise);
}

/* -- optimizer ------------------------------------------------------------------------------------------------------ */

/* Parts of odd sizes with gaps between them, which nobody may touch. */
static int64_t make_parts(int parts, int64_t size, int gap, struct adamw_part *part)
{
    int64_t at = gap;
    for (int i = 0; i < parts; i++) {
        part[i] = (struct adamw_part){at, i % 5 == 4 ? 0 : size + i, i % 2 ? 0.1f : 0};
        at += part[i].n + gap;
    }
    return at;
}

static void check_optimizer(int parts, int64_t size, int gap)
{
    const struct adamw a = {.learning_rate = 0.01f,
                            .beta1 = 0.9f,
                            .beta2 = 0.95f,
                            .epsilon = 1e-8f,
                            .correction1 = 0.19f,
                            .correction2 = 0.0975f,
                            .gradient_scale = 0.5f};
    struct adamw_part *part = calloc((size_t)parts, sizeof *part);
    int64_t n = make_parts(parts, size, gap, part);
    start_case("adamw, sum_squares of %d parts of %lld, gap %d", parts, (long long)size, gap);
    int gradient = floats(n, 1), weight = floats(n, 1), m = floats(n, 1), v = floats(n, 1), copy = elements(n, 1);
    int sum = double_zero(), uncopied = floats(n, 1), m2 = floats(n, 0), v2 = floats(n, 0);
    for (int64_t i = 0; i < n; i++)
        set(v, i, get(v, i) * get(v, i)); /* not negative */
    FOR_SIDES
    {
        const struct kernels *k = table(side);
        k->sum_squares(queue(side), parts, part, at(side, gradient), at(side, sum));
        k->sum_squares(queue(side), 1, part, at(side, weight), at(side, sum));
        k->adamw(queue(side), &a, parts, part, at(side, gradient), at(side, weight), at(side, m), at(side, v),
                 at(side, copy));
        k->adamw(queue(side), &a, parts, part, at(side, gradient), at(side, uncopied), at(side, m2), at(side, v2),
                 NULL);
    }
    same(sum, (double)n);
    same(weight, 1);
    same(m, 1);
    same(v, 1);
    same(copy, 1);
    same(uncopied, 1);
    same(m2, 1);
    same(v2, 1);
    end_case();
    free(part);
}

void check_optimizers(void)
{
    for (int shift = 0; shift < 2; shift++) {
        set_shift(shift);
        check_optimizer(1, 1, 0);
        check_optimizer(1, 9000, 0);
        check_optimizer(3, 5000, 8);
        check_optimizer(7, 1024, 3);
        check_optimizer(300, 40, 1);
    }
    set_shift(0);
}

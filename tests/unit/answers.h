/* Two searches that must give one answer, byte for byte. */
#ifndef TESTS_UNIT_ANSWERS_H
#define TESTS_UNIT_ANSWERS_H

#include "sim/search.h"
#include "tests/unit/question.h"

static inline void same_answer(const struct question *question, const struct search_options *a, const struct search_options *b)
{
    struct search_result x, y;
    struct err err = {0};
    CHECK_INT(search_run(question, a, &x, &err), 0);
    CHECK_INT(search_run(question, b, &y, &err), 0);
    CHECK_INT(x.n, y.n);
    for (int i = 0; i < x.n && i < y.n; i++) {
        CHECK_INT(plan_compare(&x.plans[i].plan, &y.plans[i].plan), 0);
        CHECK(memcmp(&x.plans[i].step_time_s, &y.plans[i].step_time_s, sizeof(double)) == 0);
    }
    search_release(&x);
    search_release(&y);
}

#endif

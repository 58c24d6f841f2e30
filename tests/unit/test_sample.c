#include "tests/unit/test.h"

#include "cost/base/sample.h"

static void check_order(void)
{
    double x[] = {3, -1, 2, 2, 0};
    sample_sort(x, 5);
    for (int i = 1; i < 5; i++)
        CHECK(x[i - 1] <= x[i]);
    CHECK_DOUBLE(x[0], -1, 0);
    CHECK_DOUBLE(x[4], 3, 0);
    sample_sort(x, 0);
}

static void check_places(void)
{
    const double x[] = {1, 2, 4, 8};
    CHECK_DOUBLE(sample_quantile(x, 4, 0), 1, 0);
    CHECK_DOUBLE(sample_quantile(x, 4, 0.5), 3, 0);
    CHECK_DOUBLE(sample_quantile(x, 4, 1), 8, 0);
    CHECK_DOUBLE(sample_quantile(x, 4, 0.9), 4 + 0.7 * 4, 1e-15);
    CHECK_DOUBLE(sample_at(x, 4, 1.25), 2.5, 0);
    CHECK_DOUBLE(sample_at(x, 4, -3), 1, 0);
    CHECK_DOUBLE(sample_at(x, 4, 7), 8, 0);
    CHECK_DOUBLE(sample_quantile(x, 1, 0.9), 1, 0);
}

static void check_median(void)
{
    double odd[] = {9, 1, 5}, even[] = {8, 2, 1, 4};
    CHECK_DOUBLE(sample_median(odd, 3), 5, 0);
    CHECK_DOUBLE(sample_median(even, 4), 3, 0);
    CHECK_DOUBLE(sample_median(odd, 0), 0, 0);
}

int main(void)
{
    check_order();
    check_places();
    check_median();
    return test_report();
}

/* A table of fast kernels against the plain ones (compare.h): odd sizes, strides, unaligned rows, extremes, NaN, guard
 * bands, two runs with the same bits. Usage: check_kernels [SEED [KIND]...], KIND of the list below; without any, all.
 * Where the table's device is not there: exit 77. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/cases.h"
#include "tests/kernels/compare.h"
#include "tests/unit/test.h"

static const struct {
    const char *name;
    void (*check)(void);
} kinds[] = {
    {"flat", check_flat},        {"rows", check_rows},
    {"rotary", check_rotary},    {"activation", check_activations},
    {"norm", check_norms},       {"loss", check_losses},
    {"router", check_routers},   {"optimizer", check_optimizers},
    {"product", check_products}, {"attention", check_attentions},
    {"fp8", check_fp8},
};

static bool asked(const char *name, int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc <= 2;
}

int main(int argc, char **argv)
{
    uint32_t seed = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1;
    const char *why = NULL;
    struct place place;
    if (!place_open(&place, &why)) {
        test_skip(why);
        return test_report();
    }
    printf("table %s, seed %u\n", place.kernels->name, (unsigned)seed);
    compare_open(&place, seed);
    for (int i = 0; i < (int)(sizeof kinds / sizeof kinds[0]); i++)
        if (asked(kinds[i].name, argc, argv))
            kinds[i].check();
    place_close(&place);
    return compare_report();
}

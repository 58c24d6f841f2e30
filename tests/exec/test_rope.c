/* Rotary frequencies against transformers: golden/rope.txt, by golden/make_rope_golden.py. It computes in fp32 (2^-24
 * each, a few operations, and powers of the base up to ln(theta) off): 1e-5 relative. */
#include "tests/unit/test.h"

#include <math.h>
#include <stdlib.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "exec/rope.h"

static const double tolerance = 1e-5;

static int read_text(const char *text, struct rope *ret, struct err *err)
{
    struct json *root = NULL;
    if (json_parse(text, strlen(text), "config.json", &root, err) < 0)
        return -1;
    int result = rope_read(root, "config.json", ret, err);
    json_free(root);
    return result;
}

static void check_line(char *line)
{
    struct rope rope;
    struct err err = {0};
    char *config = line, *dim = strstr(line, " | "), *factor = strstr(dim + 3, " | "), *values = strstr(factor + 3, " | ");
    *dim = *factor = *values = '\0';
    int head_dim = atoi(dim + 3);
    double frequency[128];
    if (!CHECK_INT(read_text(config, &rope, &err), 0)) {
        printf("%s\n", err.text);
        return;
    }
    CHECK_DOUBLE(rope.attention_factor, strtod(factor + 3, NULL), tolerance);
    rope_frequencies(&rope, head_dim, frequency);
    char *at = values + 3;
    for (int i = 0; i < head_dim / 2; i++)
        CHECK_DOUBLE(frequency[i], strtod(at, &at), tolerance);
    CHECK_INT(*at == '\n' || *at == '\0', 1);
}

static void test_golden(void)
{
    char path[TEST_PATH_MAX];
    static char line[16384];
    int cases = 0;
    FILE *file = fopen(test_source_path(path, "tests/exec/golden/rope.txt"), "r");
    if (!CHECK(file != NULL))
        return;
    while (fgets(line, sizeof line, file))
        if (*line != '#') {
            check_line(line);
            cases++;
        }
    fclose(file);
    CHECK_INT(cases, 8);
}

static void test_default(void)
{
    struct rope rope;
    struct err err = {0};
    double frequency[4];
    CHECK_INT(read_text("{}", &rope, &err), 0);
    rope_frequencies(&rope, 8, frequency);
    CHECK_DOUBLE(frequency[1], 0.1, 1e-12);
    CHECK_DOUBLE(rope.attention_factor, 1, 0);
    CHECK_INT(read_text("{\"rope_scaling\": null, \"rope_theta\": 16}", &rope, &err), 0);
    rope_frequencies(&rope, 8, frequency);
    CHECK_DOUBLE(frequency[2], 0.25, 1e-12);
    CHECK_INT(read_text("{\"rope_parameters\": {\"rope_theta\": 16, \"rope_type\": \"default\"}}", &rope, &err), 0);
    rope_frequencies(&rope, 8, frequency);
    CHECK_DOUBLE(frequency[2], 0.25, 1e-12);
}

static void refused(const char *text, const char *sentence)
{
    struct rope rope;
    struct err err = {0};
    CHECK(read_text(text, &rope, &err) < 0);
    CHECK_INT(err.count, 1);
    CHECK_CONTAINS(err.text, sentence);
}

static void test_refused(void)
{
    refused("{\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}", "does not know the rope_type 'dynamic'");
    refused("{\"rope_scaling\": {\"rope_type\": \"longrope\", \"long_factor\": [1, 2]}}", "rope_type 'longrope'");
    refused("{\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}}}", "from layer to layer");
    refused("{\"partial_rotary_factor\": 0.5}", "parts of heads");
    refused("{\"rope_parameters\": {\"rope_type\": \"default\", \"partial_rotary_factor\": 0.25}}", "parts of heads");
    refused("{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 0}}", "no factor above 0");
}

int main(void)
{
    test_golden();
    test_default();
    test_refused();
    return test_report();
}

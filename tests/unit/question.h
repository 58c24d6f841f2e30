/* One question for predict and search, from a model file of the source tree and a cluster as text. */
#ifndef TESTS_UNIT_QUESTION_H
#define TESTS_UNIT_QUESTION_H

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/profile.h"
#include "sim/inputs.h"
#include "tests/unit/test.h"

/* in: zero, or loaded before (its profile is kept; the last user closes it). */
static inline void test_question(struct inputs *in, const char *model, const char *hw, const char *stack)
{
    struct err err = {0};
    struct json *root = NULL;
    char path[TEST_PATH_MAX];
    struct profile *profile = in->profile;
    if (!profile && profile_open(NULL, &profile, &err) < 0) {
        printf("%s\n", err.text);
        exit(1);
    }
    memset(in, 0, sizeof *in);
    in->profile = profile;
    CHECK_INT(model_load(test_source_path(path, model), &in->model, &in->warnings, &err), 0);
    CHECK_INT(json_parse(hw, strlen(hw), "hw.json", &root, &err), 0);
    CHECK_INT(cluster_parse(root, "hw.json", profile, &in->cluster, &in->warnings, &err), 0);
    json_free(root);
    in->question = (struct question){.model = &in->model, .cluster = &in->cluster, .profile = profile, .stacks = in->stacks,
                                     .memory_limit_bytes = in->cluster.accelerator.memory_bytes * in->cluster.usable_memory};
    CHECK_INT(inputs_add_stack(in, stack, &err), 0);
    CHECK_STR(err.text, "");
}

#endif

/* search --launch: what is found can be exported, and nothing faster could. */
#include "tests/unit/answers.h"

#include "sim/writers/export.h"

static struct inputs in;

static void load(const char *model, const char *hw)
{
    test_question(&in, model, hw, "megatron");
}

/* --launch: every plan of the answer can be written for the framework, with and without bounds; where another answer would
 * be faster, it is one that the framework refuses. */
static void check_launch(const char *model, enum export_target target, bool pareto)
{
    static const struct model_words words = {.activation = "silu"};
    struct search_options o, all, any;
    struct search_result r, x;
    struct err err = {0};
    load(model, "{\"accelerator\": \"h100-sxm\", \"nodes\": 2}");
    search_defaults(&o);
    snprintf(o.base.stack, sizeof o.base.stack, "%s", export_target_names[target]);
    CHECK_INT(inputs_add_stack(&in, o.base.stack, &err), 0);
    o.base.global_batch = 64;
    o.base.seq_len = 2048;
    o.pareto = pareto;
    o.launch = target;
    o.schedules = 1u << SCHEDULE_1F1B | 1u << SCHEDULE_INTERLEAVED | 1u << SCHEDULE_ZB_V;
    all = any = o;
    all.exhaustive = true;
    any.launch = -1;
    any.top = 1;
    same_answer(&in.question, &o, &all);
    CHECK_INT(search_run(&in.question, &o, &r, &err), 0);
    CHECK_INT(search_run(&in.question, &any, &x, &err), 0);
    CHECK(r.n > 0 && x.n > 0);
    CHECK(r.rejected[REASON_LAUNCH] > 0);
    for (int i = 0; i < r.n; i++) {
        const struct export_request request = {.plan = &r.plans[i].plan, .model = &in.model, .words = &words};
        char *text = NULL;
        CHECK_INT(export_plan(target, &request, &text, NULL, &err), 0);
        CHECK_STR(err.text, "");
        free(text);
    }
    if (r.n > 0 && x.n > 0 && x.plans[0].step_time_s < r.plans[0].step_time_s) {
        const struct export_request request = {.plan = &x.plans[0].plan, .model = &in.model, .words = &words};
        char *text = NULL;
        CHECK_INT(export_plan(target, &request, &text, NULL, NULL), -1);
        free(text);
    }
    search_release(&r);
    search_release(&x);
}

static void test_launch(void)
{
    for (int target = 0; target < EXPORT_TARGETS; target++) {
        check_launch("hwprofiles/models/llama-3.1-8b.json", (enum export_target)target, false);
        check_launch("hwprofiles/models/qwen3-30b-a3b.json", (enum export_target)target, target == EXPORT_MEGATRON);
    }
}

int main(void)
{
    test_launch();
    profile_close(in.profile);
    return test_report();
}

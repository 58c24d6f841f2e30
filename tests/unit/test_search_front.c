/* search --pareto: the front is one, by the prices that predict gives. */
#include "tests/unit/answers.h"

static struct inputs in;

static void load(const char *model, const char *hw)
{
    test_question(&in, model, hw, "megatron");
}

/* The front holds nothing that another of it, or any plan of the other searches, beats in both time and memory. */
static void test_pareto(void)
{
    struct search_options o, three, fastest, least;
    struct search_result r, x;
    struct err err = {0};
    load("hwprofiles/models/llama-3.1-8b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 2}");
    search_defaults(&o);
    o.base.global_batch = 64;
    o.base.seq_len = 4096;
    fastest = least = o;
    fastest.top = least.top = 1;
    least.objective = OBJECTIVE_MEMORY;
    o.pareto = true;
    three = o;
    three.threads = 3;
    same_answer(&in.question, &o, &three);
    three.exhaustive = true;
    same_answer(&in.question, &o, &three);
    CHECK_INT(search_run(&in.question, &o, &r, &err), 0);
    CHECK_INT(r.n, 10);
    for (int i = 1; i < r.n; i++) {
        CHECK(r.plans[i].step_time_s >= r.plans[i - 1].step_time_s);
        CHECK(r.plans[i].peak_bytes < r.plans[i - 1].peak_bytes);
    }
    CHECK_INT(search_run(&in.question, &fastest, &x, &err), 0);
    CHECK(r.plans[0].step_time_s <= x.plans[0].step_time_s * (1 + 1e-9));
    search_release(&x);
    CHECK_INT(search_run(&in.question, &least, &x, &err), 0);
    CHECK(r.plans[r.n - 1].peak_bytes <= x.plans[0].peak_bytes * (1 + 1e-9));
    search_release(&x);
    search_release(&r);
    CHECK_STR(err.text, "");
}

static bool covers(const struct search_result *front, const struct prediction *p)
{
    for (int i = 0; i < front->n; i++)
        if (front->plans[i].step_time_s <= p->step_time_s * (1 + 1e-9) && front->plans[i].peak_bytes <= p->peak_bytes * (1 + 1e-9))
            return true;
    return false;
}

/* Models and clusters of all kinds: no point of a front is beaten by another of it, or by one of the fastest plans, and every
 * one has the price that predict gives its plan. */
static void check_front(const char *model, const char *hw, int64_t batch, uint32_t schedules)
{
    struct search_options o;
    struct search_result r;
    struct err err = {0};
    static struct prediction p;
    load(model, hw);
    search_defaults(&o);
    o.base.global_batch = batch;
    o.base.seq_len = 2048;
    o.pareto = true;
    o.top = 1000;
    o.schedules = schedules;
    CHECK_INT(search_run(&in.question, &o, &r, &err), 0);
    CHECK(r.n > 1);
    for (int i = 0; i < r.n; i++) {
        for (int j = 0; j < r.n; j++)
            CHECK(i == j || r.plans[j].step_time_s > r.plans[i].step_time_s || r.plans[j].peak_bytes > r.plans[i].peak_bytes);
        CHECK_INT(predict_plan(&in.question, &r.plans[i].plan, &p, &err), 0);
        CHECK(memcmp(&p.step_time_s, &r.plans[i].step_time_s, sizeof p.step_time_s) == 0);
        CHECK(memcmp(&p.peak_bytes, &r.plans[i].peak_bytes, sizeof p.peak_bytes) == 0);
        CHECK(p.fits);
    }
    struct search_result fastest;
    o.pareto = false;
    o.top = 60;
    CHECK_INT(search_run(&in.question, &o, &fastest, &err), 0);
    for (int i = 0; i < fastest.n; i++)
        CHECK(covers(&r, &fastest.plans[i]));
    search_release(&fastest);
    search_release(&r);
    CHECK_STR(err.text, "");
}

static void test_fronts(void)
{
    static const char *const models[] = {"hwprofiles/models/llama-3.1-8b.json", "hwprofiles/models/qwen3-30b-a3b.json", "hwprofiles/models/mixtral-8x7b.json"};
    static const char *const clusters[] = {"{\"accelerator\": \"h100-sxm\", \"nodes\": 2}", "{\"accelerator\": \"l40s\", \"nodes\": 4}",
                                           "{\"accelerator\": \"gb200\", \"nodes\": 1, \"accelerators_per_node\": 16}"};
    for (int m = 0; m < 3; m++)
        for (int c = 0; c < 3; c++)
            check_front(models[m], clusters[c], 64 << m, m == 0 ? (1u << SCHEDULES) - 1 : 1u << SCHEDULE_1F1B | 1u << SCHEDULE_INTERLEAVED | 1u << SCHEDULE_V_HALF);
}

/* Estimates may hide the fastest plan behind one that the engine then prices higher: the front has it all the same. */
static void test_front_has_fastest(void)
{
    struct search_options o;
    struct search_result front, fastest;
    struct err err = {0};
    load("hwprofiles/models/mixtral-8x7b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 2}");
    search_defaults(&o);
    o.base.global_batch = 64;
    o.base.seq_len = 2048;
    o.top = 3;
    CHECK_INT(search_run(&in.question, &o, &fastest, &err), 0);
    o.pareto = true;
    CHECK_INT(search_run(&in.question, &o, &front, &err), 0);
    if (CHECK(front.n == 3 && fastest.n == 3))
        CHECK_DOUBLE(front.plans[0].step_time_s, fastest.plans[0].step_time_s, 1e-12);
    search_release(&front);
    search_release(&fastest);
}

int main(void)
{
    test_pareto();
    test_fronts();
    test_front_has_fastest();
    profile_close(in.profile);
    return test_report();
}

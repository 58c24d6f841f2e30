/* The search: same answer for any number of threads and without bounds; the
 * answer agrees with the launch rules, the memory limit and predict. */
#include "cost/base/unit.h"
#include "tests/unit/answers.h"

static struct inputs in;

static void load(const char *model, const char *hw)
{
    test_question(&in, model, hw, "megatron");
}

static void test_threads_and_bounds(void)
{
    load("hwprofiles/models/llama-3.1-8b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 4}");
    struct search_options one, three, all;
    search_defaults(&one);
    one.base.global_batch = 128;
    one.base.seq_len = 8192;
    three = all = one;
    three.threads = 3;
    all.exhaustive = true;
    same_answer(&in.question, &one, &three);
    same_answer(&in.question, &one, &all);
    load("hwprofiles/models/qwen3-30b-a3b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 2}");
    same_answer(&in.question, &one, &three);
    same_answer(&in.question, &one, &all);
    one.objective = three.objective = OBJECTIVE_MEMORY;
    same_answer(&in.question, &one, &three);
}

/* Every plan of the answer keeps the rules and fits; predict says the same of it. */
static void test_answer_holds(void)
{
    struct search_options o;
    struct search_result r;
    struct err err = {0};
    static struct prediction p;
    load("hwprofiles/models/llama-3.1-70b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 8}");
    search_defaults(&o);
    o.base.global_batch = 256;
    o.base.seq_len = 4096;
    CHECK_INT(search_run(&in.question, &o, &r, &err), 0);
    CHECK_INT(r.n, 10);
    int64_t rejected = 0;
    for (int i = 0; i < REASONS; i++)
        rejected += r.rejected[i];
    CHECK_INT(r.candidates, rejected + r.feasible);
    for (int i = 0; i < r.n; i++) {
        CHECK_INT(plan_broken_rules(&r.plans[i].plan, &in.model, &in.cluster), 0);
        CHECK(r.plans[i].peak_bytes <= in.question.memory_limit_bytes);
        CHECK_INT(predict_plan(&in.question, &r.plans[i].plan, &p, &err), 0);
        CHECK_DOUBLE(p.step_time_s, r.plans[i].step_time_s, 1e-12);
        double sum = 0;
        for (int part = 0; part < TIME_PARTS; part++)
            sum += p.time_s[part];
        CHECK_DOUBLE(sum, p.step_time_s, 1e-9);
        CHECK(i == 0 || r.plans[i].step_time_s >= r.plans[i - 1].step_time_s);
    }
    search_release(&r);
}

static void test_nothing_fits(void)
{
    struct search_options o;
    struct search_result r;
    struct err err = {0};
    load("hwprofiles/models/llama-3.1-405b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 1}");
    search_defaults(&o);
    o.base.global_batch = 8;
    o.base.seq_len = 4096;
    CHECK_INT(search_run(&in.question, &o, &r, &err), 0);
    CHECK_INT(r.n, 0);
    CHECK(r.has_nearest);
    CHECK(r.nearest.peak_bytes > in.question.memory_limit_bytes);
    CHECK(r.rejected[REASON_MEMORY] > 0);
    search_release(&r);
}

static void parse_plan(const char *text, struct plan *ret)
{
    struct err err = {0};
    struct json *root = NULL;
    CHECK_INT(json_parse(text, strlen(text), "plan.json", &root, &err), 0);
    CHECK_INT(plan_parse(root, "plan.json", ret, NULL, &err), 0);
    CHECK_STR(err.text, "");
    json_free(root);
}

/* The answer is no slower than a published plan that the search may give: one that fits. */
static void beats(const struct plan *published, enum precision precision, uint32_t schedules, const char *name)
{
    struct search_options o;
    struct search_result r;
    struct err err = {0};
    static struct prediction p;
    search_defaults(&o);
    o.base.global_batch = published->global_batch;
    o.base.seq_len = published->seq_len;
    o.base.precision = precision;
    o.schedules = schedules;
    CHECK_INT(search_run(&in.question, &o, &r, &err), 0);
    CHECK_INT(predict_plan(&in.question, published, &p, &err), 0);
    CHECK_STR(err.text, "");
    if (CHECK(r.n > 0)) {
        char text[2][256];
        printf("%s: published plan %.2f s (%.1f GiB), found %.2f s (%.1f GiB): %s\n", name, p.step_time_s, p.peak_bytes / 1073741824.0,
               r.plans[0].step_time_s, r.plans[0].peak_bytes / 1073741824.0, plan_format(&r.plans[0].plan, text[0], sizeof text[0]));
        CHECK(r.plans[0].step_time_s <= p.step_time_s || !p.fits);
    }
    search_release(&r);
}

/* Llama team 2024 (arXiv 2407.21783) Table 4: 16,384 H100, TP8 PP16 DP128, batch 16 M tokens at 8,192;
 * DeepSeek-AI 2024 (arXiv 2412.19437) section 3.2: 2,048 H800, PP16 EP64 ZeRO-1, 15,360 sequences of 4,096. */
static void test_published_plans(void)
{
    static struct plan plan;
    load("hwprofiles/models/llama-3.1-405b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 2048, \"inter_node\": {\"fabric\": \"roce\"}}");
    parse_plan("{\"tp\": 8, \"sequence_parallel\": true, \"pp\": 16, \"vp\": 8, \"dp\": 128, \"zero\": 2, \"global_batch\": 2048,"
               " \"seq_len\": 8192, \"schedule\": \"interleaved\"}", &plan);
    plan.n_layers_per_stage = 128; /* one layer per chunk; the first holds the embedding alone, the last the head */
    for (int i = 0; i < 128; i++)
        plan.layers_per_stage[i] = i > 0 && i < 127;
    uint32_t three = 1u << SCHEDULE_GPIPE | 1u << SCHEDULE_1F1B | 1u << SCHEDULE_INTERLEAVED;
    beats(&plan, PRECISION_BF16, three, "Llama-3.1-405B on 16,384 H100");
    load("hwprofiles/models/deepseek-v3.json", "{\"accelerator\": \"h800-sxm\", \"nodes\": 256}");
    parse_plan("{\"pp\": 16, \"dp\": 128, \"ep\": 64, \"global_batch\": 15360, \"seq_len\": 4096, \"precision\": \"fp8-block\","
               " \"recompute\": \"selective\", \"layers_per_stage\": [4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,1]}", &plan);
    beats(&plan, PRECISION_FP8_BLOCK, three, "DeepSeek-V3 on 2,048 H800, 1F1B");
    plan.schedule = SCHEDULE_DUALPIPE;
    beats(&plan, PRECISION_FP8_BLOCK, (1u << SCHEDULES) - 1, "DeepSeek-V3 on 2,048 H800, DualPipe");
}

static int sum_layers(const uint16_t *layers, int chunks)
{
    int sum = 0;
    for (int i = 0; i < chunks; i++)
        sum += layers[i];
    return sum;
}

static void test_split(void)
{
    uint16_t layers[PLAN_CHUNKS_MAX];
    /* Llama-3 405B (Llama team 2024, section 3.3.2): 126 layers on 16 stages, first and last one fewer */
    CHECK(search_balanced_split(126, 16, 0.01, 0.5, layers));
    CHECK_INT(layers[0], 7);
    CHECK_INT(layers[1], 8);
    CHECK_INT(layers[15], 7);
    CHECK_INT(sum_layers(layers, 16), 126);
    for (int n = 2; n < 40; n++) {
        for (int l = n; l < 130; l += 7) {
            if (search_balanced_split(l, n, 0.3, 1.7, layers))
                CHECK_INT(sum_layers(layers, n), l);
        }
    }
}

/* However many micro-batches: no part of the time is negative, and all add up. */
static void test_large_batches(void)
{
    struct search_options o;
    struct search_result r;
    struct err err = {0};
    load("hwprofiles/models/llama-3.1-8b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 2}");
    search_defaults(&o);
    o.base.seq_len = 4096;
    for (int64_t batch = 1 << 20; batch <= 1000000000; batch *= 31) {
        o.base.global_batch = batch;
        CHECK_INT(search_run(&in.question, &o, &r, &err), 0);
        CHECK(r.n > 0);
        for (int i = 0; i < r.n; i++) {
            double sum = 0;
            for (int part = 0; part < TIME_PARTS; part++) {
                CHECK(r.plans[i].time_s[part] >= 0);
                sum += r.plans[i].time_s[part];
            }
            CHECK_DOUBLE(sum, r.plans[i].step_time_s, 1e-9);
            CHECK(r.plans[i].bubble_fraction >= 0 && r.plans[i].bubble_fraction < 1);
        }
        search_release(&r);
    }
    CHECK_STR(err.text, "");
}

/* A batch too long to simulate is extended: time and activations go on as between two that are simulated. */
static void test_extended(void)
{
    static const int vp_of[SCHEDULES] = {[SCHEDULE_LOOPED_BFS] = 2, [SCHEDULE_INTERLEAVED] = 2, [SCHEDULE_INTERLEAVED_ZB] = 2, [SCHEDULE_ZB_V] = 2,
                                         [SCHEDULE_ZB_V_AUTO] = 2,  [SCHEDULE_V_HALF] = 2,      [SCHEDULE_V_MIN] = 2,         [SCHEDULE_1F1B_V] = 2,
                                         [SCHEDULE_DUALPIPE_V] = 2};
    static const int64_t batch[] = {2000, 4000, 40000};
    load("hwprofiles/models/llama-3.1-8b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 1, \"accelerators_per_node\": 4}");
    struct prediction *p = calloc(3, sizeof *p);
    for (int schedule = 0; p && schedule < SCHEDULES; schedule++) {
        struct plan plan;
        plan_defaults(&plan);
        plan.pp = 4;
        plan.vp = vp_of[schedule] > 0 ? vp_of[schedule] : 1;
        plan.schedule = schedule;
        plan.seq_len = 1024;
        plan.micro_batch = 1;
        for (int i = 0; i < 3; i++) {
            struct err err = {0};
            plan.global_batch = batch[i];
            CHECK_INT(predict_plan(&in.question, &plan, &p[i], &err), 0);
            CHECK_STR(err.text, "");
        }
        CHECK_DOUBLE(p[2].step_time_s, p[1].step_time_s + 18 * (p[1].step_time_s - p[0].step_time_s), 1e-6);
        for (int r = 0; r < plan.pp; r++) {
            double a[3];
            for (int i = 0; i < 3; i++)
                a[i] = p[i].stage[r].bytes[MEMORY_ACTIVATIONS];
            CHECK_DOUBLE(a[2], a[1] + 18 * (a[1] - a[0]), 1e-9);
        }
    }
    free(p);
}

/* Gradients that a pipeline holds in shards are reduced again and again: ZeRO-2 there takes less memory and more time. */
static void test_sharded_gradients(void)
{
    static const struct { enum plan_schedule schedule; int vp, reductions; } rows[] = {
        {SCHEDULE_1F1B, 1, 32}, {SCHEDULE_INTERLEAVED, 2, 8}, {SCHEDULE_GPIPE, 1, 1}, {SCHEDULE_LOOPED_BFS, 2, 1}, {SCHEDULE_ZB_V, 2, 32}};
    load("hwprofiles/models/llama-3.1-8b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 2}");
    struct prediction *p = calloc(2, sizeof *p);
    for (size_t r = 0; p && r < sizeof rows / sizeof *rows; r++) {
        for (int i = 0; i < 2; i++) { /* ZeRO-1, ZeRO-2 */
            struct err err = {0};
            struct plan plan;
            plan_defaults(&plan);
            plan.pp = 4, plan.dp = 4, plan.vp = rows[r].vp, plan.micro_batch = 1, plan.seq_len = 4096, plan.global_batch = 4 * 32;
            plan.schedule = rows[r].schedule;
            plan.zero = i == 1 ? 2 : 1;
            plan.overlap.dp_grad = false;
            CHECK_INT(predict_plan(&in.question, &plan, &p[i], &err), 0);
            CHECK_STR(err.text, "");
        }
        CHECK(p[1].peak_bytes < p[0].peak_bytes);
        double optimizer = p[1].time_s[TIME_OPTIMIZER] - p[0].time_s[TIME_OPTIMIZER]; /* reads less */
        double all = p[0].reduction_s + p[1].step_time_s - p[0].step_time_s - optimizer;
        CHECK_DOUBLE(all, rows[r].reductions * p[0].reduction_s, 1e-9);
    }
    free(p);
}

static void predict_text(const char *text, struct prediction *ret)
{
    static struct plan plan;
    struct err err = {0};
    parse_plan(text, &plan);
    CHECK_INT(predict_plan(&in.question, &plan, ret, &err), 0);
    CHECK_STR(err.text, "");
}

/* dp_shard: four copies of what eight ranks share hold what the eight would alone, experts too. */
static void test_copies_of_shards(void)
{
    struct prediction *p = calloc(2, sizeof *p);
    for (int zero = 1; p && zero <= 3; zero++) {
        char text[200];
        load("hwprofiles/models/qwen3-30b-a3b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 1}");
        snprintf(text, sizeof text, "{\"dp\": 8, \"ep\": 2, \"global_batch\": 64, \"seq_len\": 4096, \"zero\": %d}", zero);
        predict_text(text, &p[0]);
        load("hwprofiles/models/qwen3-30b-a3b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 4}");
        snprintf(text, sizeof text, "{\"dp\": 32, \"ep\": 2, \"dp_shard\": 8, \"global_batch\": 256, \"seq_len\": 4096, \"zero\": %d}", zero);
        predict_text(text, &p[1]);
        CHECK_DOUBLE(p[1].stage[0].bytes[MEMORY_OPTIMIZER], p[0].stage[0].bytes[MEMORY_OPTIMIZER], 1e-9);
        CHECK_DOUBLE(p[1].stage[0].bytes[MEMORY_GRADIENTS], p[0].stage[0].bytes[MEMORY_GRADIENTS], 1e-9);
        CHECK_DOUBLE(p[1].time_s[TIME_OPTIMIZER], p[0].time_s[TIME_OPTIMIZER], 1e-9);
    }
    free(p);
}

/* Whatever computes attention, context parallelism moves the same keys, values and heads. */
static void test_context_traffic(void)
{
    static const char *const kinds[] = {"flash", "unfused", "eager"};
    struct prediction *p = calloc(3, sizeof *p);
    load("hwprofiles/models/llama-3.1-8b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 2}");
    for (int i = 0; p && i < 3; i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"cp\": 8, \"dp\": 2, \"context_parallel\": \"ulysses\", \"attention\": \"%s\", \"global_batch\": 16, \"seq_len\": 8192}", kinds[i]);
        predict_text(text, &p[i]);
        CHECK(p[i].time_s[TIME_CP] > 0);
        CHECK_DOUBLE(p[i].time_s[TIME_CP], p[0].time_s[TIME_CP], 1e-9);
    }
    free(p);
}

/* Interleaved chunks repeat themselves group by group: beyond what is simulated a step goes on as within it, messages between
 * slow nodes included. */
static void test_extended_groups(void)
{
    static const int group[] = {0, 13, 16, 64};
    load("hwprofiles/models/llama-3.1-8b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 8, \"accelerators_per_node\": 1, \"inter_node\": {\"fabric\": "
                                                "\"ethernet-tcp\", \"nics_per_node\": 1, \"nic_gbps\": 10, \"rdma\": false}}");
    struct prediction *p = calloc(3, sizeof *p);
    for (size_t g = 0; p && g < sizeof group / sizeof *group; g++) {
        struct plan plan;
        plan_defaults(&plan);
        plan.pp = 8;
        plan.vp = 4;
        plan.micro_batch = 1;
        plan.seq_len = 1024;
        plan.schedule = SCHEDULE_INTERLEAVED;
        plan.schedule_group = group[g];
        int64_t unit = group[g] == 0 ? 8 : group[g];
        for (int i = 0; i < 3; i++) { /* up to 682 micro-batches are simulated */
            struct err err = {0};
            plan.global_batch = unit * (320 / unit) << i;
            CHECK_INT(predict_plan(&in.question, &plan, &p[i], &err), 0);
            CHECK_STR(err.text, "");
        }
        CHECK_DOUBLE(p[2].step_time_s - p[1].step_time_s, 2 * (p[1].step_time_s - p[0].step_time_s), 1e-3);
    }
    free(p);
}

/* A schedule that is hard to estimate must not hide another: no schedule alone gives a faster plan than all together. */
static void no_schedule_hides(const char *model, const char *hw, int64_t global_batch, int pp)
{
    struct search_options o;
    struct search_result all, alone;
    struct err err = {0};
    load(model, hw);
    search_defaults(&o);
    o.base.global_batch = global_batch;
    o.base.seq_len = 4096;
    o.fix.pp = pp;
    o.top = 1;
    CHECK_INT(search_run(&in.question, &o, &all, &err), 0);
    CHECK_INT(all.n, 1);
    for (int s = 0; s < SCHEDULES; s++) {
        o.schedules = 1u << s;
        CHECK_INT(search_run(&in.question, &o, &alone, &err), 0);
        if (alone.n > 0 && alone.plans[0].step_time_s < all.plans[0].step_time_s) {
            printf("%s, pp %d: %s alone %.6g s, all %.6g s\n", model, pp, schedule_names[s], alone.plans[0].step_time_s, all.plans[0].step_time_s);
            CHECK(false);
        }
        search_release(&alone);
    }
    search_release(&all);
}

static void test_no_schedule_hides(void)
{
    no_schedule_hides("hwprofiles/models/qwen3-235b-a22b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 16}", 512, 8); /* DualPipeV's overlap */
    no_schedule_hides("hwprofiles/models/llama-3.1-8b.json", "{\"accelerator\": \"l40s\", \"accelerators_per_node\": 8, \"nodes\": 2}", 64, 8); /* DualPipe's halves */
    no_schedule_hides("hwprofiles/models/mixtral-8x7b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 4}", 128, 4);
    no_schedule_hides("hwprofiles/models/llama-3.1-70b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 4}", 32, 8); /* few micro-batches */
    /* Messages between slow nodes, of which a closed form knows little: V schedules hid ZB-H2. */
    no_schedule_hides("hwprofiles/models/mixtral-8x7b.json",
                      "{\"accelerator\": \"h100-sxm\", \"accelerators_per_node\": 8, \"groups\": [{\"nodes\": 4}, {\"nodes\": 2, \"inter_node\": "
                      "{\"fabric\": \"ethernet-tcp\", \"nics_per_node\": 1, \"nic_gbps\": 100, \"rdma\": false}}]}",
                      1008, 6);
}

/* The first plan is the same however many are asked for, and none that a narrower search finds is faster. */
static double first_s(const struct search_options *o)
{
    struct search_result r;
    struct err err = {0};
    CHECK_INT(search_run(&in.question, o, &r, &err), 0);
    CHECK_STR(err.text, "");
    double ret = CHECK(r.n > 0) ? r.plans[0].step_time_s : 0;
    search_release(&r);
    return ret;
}

static void test_first_of_many(void)
{
    static const char far_nodes[] = "{\"accelerator\": \"h100-sxm\", \"nodes\": 2048, \"inter_node\": {\"fabric\": \"roce\", \"nodes_per_leaf\": 384, "
                                    "\"oversubscription\": 7}}";
    static const char a100[] = "{\"accelerator\": \"a100-sxm-80gb\", \"nodes\": 2, \"inter_node\": {\"fabric\": \"ib-hdr\", \"nics_per_node\": 8, \"nic_gbps\": 200}}";
    static const char slow[] = "{\"accelerator\": \"h100-sxm\", \"nodes\": 4, \"inter_node\": {\"fabric\": \"ethernet-tcp\", \"nics_per_node\": 1, \"nic_gbps\": 25, "
                               "\"rdma\": false}}";
    static const char l40s[] = "{\"accelerator\": \"l40s\", \"nodes\": 2, \"inter_node\": {\"nics_per_node\": 1, \"nic_gbps\": 100, \"rdma\": false}}";
    static const uint32_t some = 1u << SCHEDULE_LOOPED_BFS | 1u << SCHEDULE_1F1B | 1u << SCHEDULE_V_MIN | 1u << SCHEDULE_1F1B_V | 1u << SCHEDULE_ZB_V_AUTO;
    static const struct {
        const char *model, *hw;
        int layers, few; /* layers 0: the model's */
        int64_t batch, seq_len;
        double limit_gib; /* 0: the cluster's */
        uint32_t schedules;
    } cases[] = {
        {"hwprofiles/models/llama-3.1-70b.json", far_nodes, 0, 10, 1024, 4096, 0, (1u << SCHEDULES) - 1}, /* an order of ranks, priced too low */
        {"hwprofiles/models/llama-3.1-8b.json", a100, 30, 1, 256, 4096, 18, (1u << SCHEDULES) - 1},       /* the only leader does not fit */
        {"hwprofiles/models/llama-3.1-8b.json", slow, 0, 1, 64, 4096, 30, (1u << SCHEDULES) - 1},
        {"hwprofiles/models/llama-3.1-8b.json", l40s, 37, 1, 64, 2048, 0, some}, /* an automatic schedule without those that it begins with */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct search_options o;
        load(cases[i].model, cases[i].hw);
        if (cases[i].layers > 0)
            in.model.layers = in.model.kinds[0].layers = cases[i].layers;
        if (cases[i].limit_gib > 0)
            in.question.memory_limit_bytes = cases[i].limit_gib * UNIT_GIB;
        search_defaults(&o);
        o.base.global_batch = cases[i].batch;
        o.base.seq_len = cases[i].seq_len;
        o.schedules = cases[i].schedules;
        o.top = cases[i].few;
        double few_s = first_s(&o);
        o.top = 200;
        CHECK_DOUBLE(few_s, first_s(&o), 1e-12);
    }
}

/* The number of chunks that is fastest by closed form does not fit: another takes its place. */
static void test_other_chunks(void)
{
    struct search_options o;
    test_question(&in, "hwprofiles/models/llama-3.1-8b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 2, \"inter_node\": {\"fabric\": \"ib-ndr\", "
                                                              "\"nics_per_node\": 8, \"nic_gbps\": 400}}", "fsdp2");
    in.model.layers = in.model.kinds[0].layers = 30;
    in.question.memory_limit_bytes = 24 * UNIT_GIB;
    search_defaults(&o);
    snprintf(o.base.stack, sizeof o.base.stack, "fsdp2");
    o.base.global_batch = 64;
    o.base.seq_len = 4096;
    double free_s = first_s(&o);
    for (o.fix.vp = 1; o.fix.vp <= 4; o.fix.vp++)
        CHECK(first_s(&o) >= free_s * (1 - 1e-12));
}

/* Slices of a tied embedding and head, or both ends of a V, are one table: it is held once, and what then fits is found. */
static void test_tied_table(void)
{
    static const struct { const char *fix; uint32_t schedules; double tables; } rows[] = { /* that rank 0 has less of than untied */
        {"pp=4,tp=1,zero=0,vocab_parallel=pipeline", 1u << SCHEDULE_1F1B, 0.25}, {"pp=4,tp=1,zero=0", 1u << SCHEDULE_ZB_V, 1},
        {"pp=4,tp=1,zero=0", 1u << SCHEDULE_DUALPIPE, 1}, {"pp=4,tp=1,zero=0", 1u << SCHEDULE_1F1B, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct search_options o;
        struct search_result r;
        struct err err = {0};
        static struct prediction tied, apart;
        load("hwprofiles/models/llama-3.1-8b.json", "{\"accelerator\": \"h100-sxm\", \"nodes\": 1}");
        in.model.vocab = 1 << 20;
        in.question.memory_limit_bytes = 1e15;
        search_defaults(&o);
        CHECK_INT(search_parse_fix(rows[i].fix, NULL, &o, &err), 0);
        o.base.global_batch = 16;
        o.base.seq_len = 512;
        o.schedules = rows[i].schedules;
        CHECK_INT(search_run(&in.question, &o, &r, &err), 0);
        if (!CHECK(r.n > 0))
            continue;
        struct plan plan = r.plans[0].plan;
        search_release(&r);
        CHECK_INT(predict_plan(&in.question, &plan, &apart, &err), 0);
        in.model.tied = true;
        CHECK_INT(predict_plan(&in.question, &plan, &tied, &err), 0);
        double table = (double)in.model.vocab * (double)in.model.hidden;
        CHECK_DOUBLE(apart.stage[0].bytes[MEMORY_WEIGHTS] - tied.stage[0].bytes[MEMORY_WEIGHTS], 2 * rows[i].tables * table, 1e-9);
        in.question.memory_limit_bytes = tied.peak_bytes * 1.001;
        CHECK_INT(search_run(&in.question, &o, &r, &err), 0);
        CHECK(r.n > 0);
        search_release(&r);
    }
}

int main(void)
{
    test_split();
    test_answer_holds();
    test_threads_and_bounds();
    test_nothing_fits();
    test_large_batches();
    test_extended();
    test_extended_groups();
    test_sharded_gradients();
    test_copies_of_shards();
    test_context_traffic();
    test_no_schedule_hides();
    test_first_of_many();
    test_other_chunks();
    test_tied_table();
    test_published_plans();
    profile_close(in.profile);
    return test_report();
}

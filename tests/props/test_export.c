/* Properties of exported plans.
 *
 *   - what is written says the plan: read back by a reader of its own (a table of flags and keys), a random plan that was
 *     not refused is the plan that was exported;
 *   - no field of plan.json is dropped in silence: another value changes the text, is refused by its name, or named in a
 *     warning. The fields are those that plan_to_json writes, so a new one cannot be forgotten here;
 *   - a refusal writes nothing, and says field, framework and nearest valid value in every sentence.
 * --seed N repeats a run (the seed is printed). */
#include <ctype.h>
#include <math.h>
#include <stddef.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/base/names.h"
#include "cost/plan.h"
#include "sim/writers/export.h"
#include "tests/unit/test.h"

enum { RUNS = 3000 };

static uint64_t seed = 20250914;

static uint64_t random_bits(void)
{
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return seed * 2685821657736338717u;
}

static int pick(int n)
{
    return (int)(random_bits() % (uint64_t)n);
}

/* 0 or 1, the former more often. */
static bool sometimes(void)
{
    return pick(4) == 0;
}

/* --- plans ----------------------------------------------------------------- */

static void onto(struct plan *plan, const char *text)
{
    struct err err = {0};
    struct json *root = NULL;
    CHECK_INT(json_parse(text, strlen(text), "plan.json", &root, &err), 0);
    CHECK_INT(plan_parse_onto(root, "plan.json", plan, NULL, &err), 0);
    CHECK_STR(err.text, "");
    json_free(root);
}

static void random_layers(struct plan *p)
{
    int n = p->pp * p->vp;
    if (n == 1 || !sometimes())
        return;
    p->n_layers_per_stage = n;
    for (int i = 0; i < n; i++)
        p->layers_per_stage[i] = (uint16_t)(i == 0 || i == n - 1 ? pick(4) : 1 + (sometimes() ? pick(3) : 2));
}

/* Any plan that keeps the rules; most of what can be set is set now and then. */
static struct plan random_plan(void)
{
    static const enum axis inside[AXES] = {AXIS_TP, AXIS_CP, AXIS_EP, AXIS_PP, AXIS_DP};
    struct plan p;
    do {
        plan_defaults(&p);
        p.tp = 1 << pick(3), p.cp = sometimes() ? 2 : 1, p.pp = 1 << pick(3), p.dp = 1 << pick(4);
        p.ep = sometimes() ? 1 << pick(3) : 1, p.etp = sometimes() ? p.tp : 1;
        p.vp = p.pp > 1 ? 1 + pick(3) : 1;
        p.sequence_parallel = p.tp > 1 && pick(4) > 0;
        p.context_parallel = p.cp > 1 && sometimes() ? CP_ULYSSES : CP_RING;
        p.zero = pick(4), p.micro_batch = 1 + pick(3), p.global_batch = (int64_t)p.micro_batch * p.dp * p.pp * (1 + pick(4)), p.seq_len = 1024 << pick(4);
        p.schedule = p.pp == 1 ? SCHEDULE_1F1B : pick(3) > 0 ? (p.vp > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B) : (enum plan_schedule)pick(SCHEDULES);
        p.recompute = (enum recompute)pick(3);
        p.recompute_layers = p.recompute == RECOMPUTE_FULL && sometimes() ? 1 + pick(4) : -1;
        p.recompute_modules = p.recompute == RECOMPUTE_SELECTIVE && sometimes() ? (uint32_t)(1 + pick((1 << RECOMPUTE_MODULES) - 1)) : 0;
        p.precision = sometimes() ? (enum precision)pick(PRECISIONS) : PRECISION_BF16;
        p.grad_bytes = sometimes() ? 2 << pick(2) : 0;
        p.optimizer = pick(12) == 0 ? OPTIMIZER_SGD : OPTIMIZER_ADAMW;
        p.optimizer_offload = sometimes() ? pick(5) / 4.0 : 0;
        p.moment_bytes = sometimes() ? 1 << pick(3) : 4;
        p.attention = pick(8) == 0 ? ATTENTION_UNFUSED : ATTENTION_FLASH;
        p.moe_dispatcher = (enum moe_dispatcher)pick(3);
        p.overlap.dp_grad = !sometimes(), p.overlap.dp_param = !sometimes(), p.overlap.tp = sometimes(), p.overlap.ep = sometimes(), p.overlap.p2p = !sometimes();
        p.cuda_graph = sometimes() ? (enum cuda_graph)pick(4) : CUDA_GRAPH_NONE;
        p.cross_entropy = sometimes() ? (enum cross_entropy)pick(5) : CROSS_ENTROPY_STACK;
        p.dropout = sometimes();
        p.dp_shard = sometimes() ? 1 << pick(3) : 0;
        p.offload_layers = pick(8) == 0 ? 1 + pick(4) : 0;
        p.offload_modules = pick(8) == 0 ? (uint32_t)pick(1 << OFFLOAD_MODULES) : 0;
        p.fused_grouped_mlp = pick(8) == 0;
        p.fp8_attention = pick(8) == 0;
        p.fp8_param_gather = !sometimes();
        if (sometimes())
            memcpy(p.rank_order, inside, sizeof inside);
        random_layers(&p);
    } while (plan_broken_rules(&p, NULL, NULL));
    return p;
}

/* --- Megatron-LM's command line, read ------------------------------------------ */

struct words {
    const struct json *at; /* the argument that comes next */
};

static const char *peek(const struct words *w)
{
    return w->at ? json_text(w->at) : "--";
}

static const char *take(struct words *w)
{
    const char *text = peek(w);
    w->at = w->at ? json_next(w->at) : NULL;
    return text;
}

static uint32_t take_bits(struct words *w, const char *const *names)
{
    uint32_t bits = 0;
    while (strncmp(peek(w), "--", 2) != 0) {
        int i = names_find(names, take(w));
        CHECK(i >= 0);
        bits |= i >= 0 ? 1U << i : 0;
    }
    return bits;
}

static int64_t take_int(struct words *w)
{
    return strtoll(take(w), NULL, 10);
}

/* "Et*9|t|mL": layers between the bars. */
static void read_layout(struct plan *p, const char *text)
{
    CHECK_INT(text[0], 'E');
    CHECK_INT(text[strlen(text) - 1], 'L');
    p->n_layers_per_stage = 1;
    for (const char *c = text; *c; c++) {
        if (*c == '|')
            p->n_layers_per_stage++;
        else if (*c == 't')
            p->layers_per_stage[p->n_layers_per_stage - 1] = (uint16_t)(c[1] == '*' ? strtol(c + 2, NULL, 10) : 1);
    }
    p->vp = p->n_layers_per_stage / p->pp;
}

struct megatron {
    struct plan plan;
    int instances, first, last;
    bool rope, fp8, hybridep;
};

/* One flag; true when it is known. */
static bool read_number_flag(struct megatron *m, const char *flag, struct words *w)
{
    struct plan *p = &m->plan;
    const struct {
        const char *flag;
        int *target;
    } flags[] = {{"--tensor-model-parallel-size", &p->tp}, {"--pipeline-model-parallel-size", &p->pp}, {"--context-parallel-size", &p->cp},
                 {"--expert-model-parallel-size", &p->ep}, {"--expert-tensor-parallel-size", &p->etp}, {"--num-virtual-stages-per-pipeline-rank", &p->vp},
                 {"--micro-batch-size", &p->micro_batch}, {"--decoder-first-pipeline-num-layers", &m->first}, {"--decoder-last-pipeline-num-layers", &m->last},
                 {"--num-distributed-optimizer-instances", &m->instances}, {"--cpu-offloading-num-layers", &p->offload_layers}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (strcmp(flag, flags[i].flag) != 0)
            continue;
        *flags[i].target = (int)take_int(w);
        return true;
    }
    if (strcmp(flag, "--global-batch-size") == 0)
        p->global_batch = take_int(w);
    else if (strcmp(flag, "--seq-length") == 0)
        p->seq_len = take_int(w);
    else if (strcmp(flag, "--optimizer-offload-fraction") == 0)
        p->optimizer_offload = strtod(take(w), NULL);
    else
        return false;
    return true;
}

static bool read_switch(struct megatron *m, const char *flag)
{
    struct plan *p = &m->plan;
    const struct {
        const char *flag;
        bool *target;
        bool value;
    } flags[] = {{"--sequence-parallel", &p->sequence_parallel, true}, {"--overlap-grad-reduce", &p->overlap.dp_grad, true},
                 {"--overlap-param-gather", &p->overlap.dp_param, true}, {"--tp-comm-overlap", &p->overlap.tp, true},
                 {"--overlap-moe-expert-parallel-comm", &p->overlap.ep, true}, {"--no-overlap-p2p-communication", &p->overlap.p2p, false},
                 {"--fp8-dot-product-attention", &p->fp8_attention, true}, {"--fp8-param-gather", &p->fp8_param_gather, true}, {"--use-transformer-engine-op-fuser", &p->fused_grouped_mlp, true}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (strcmp(flag, flags[i].flag) != 0)
            continue;
        *flags[i].target = flags[i].value;
        return true;
    }
    return false;
}

static bool read_memory_flag(struct megatron *m, const char *flag, struct words *w)
{
    struct plan *p = &m->plan;
    if (strcmp(flag, "--use-distributed-optimizer") == 0)
        p->zero = 1;
    else if (strcmp(flag, "--data-parallel-sharding-strategy") == 0)
        p->zero = strcmp(take(w), "optim_grads") == 0 ? 2 : 3;
    else if (strcmp(flag, "--recompute-granularity") == 0)
        p->recompute = strcmp(take(w), "full") == 0 ? RECOMPUTE_FULL : RECOMPUTE_SELECTIVE;
    else if (strcmp(flag, "--recompute-method") == 0)
        p->recompute_layers = strcmp(take(w), "block") == 0 ? 0 : -1;
    else if (strcmp(flag, "--recompute-num-layers") == 0)
        p->recompute_layers = p->recompute_layers < 0 ? take_int(w) == 1 ? -1 : 99 : (int)take_int(w);
    else if (strcmp(flag, "--recompute-modules") == 0)
        p->recompute_modules = take_bits(w, recompute_module_names);
    else if (strcmp(flag, "--offload-modules") == 0)
        p->offload_modules = take_bits(w, offload_module_names);
    else if (strcmp(flag, "--exp-avg-dtype") == 0)
        p->moment_bytes = strcmp(take(w), "fp8") == 0 ? 1 : 2;
    else if (strcmp(flag, "--accumulate-allreduce-grads-in-fp32") == 0)
        p->grad_bytes = 4;
    else if (strcmp(flag, "--grad-reduce-in-bf16") == 0)
        p->grad_bytes = 2;
    else
        return false;
    return true;
}

static bool read_kernel_flag(struct megatron *m, const char *flag, struct words *w)
{
    static const struct {
        const char *recipe;
        enum precision precision;
    } recipes[] = {{"delayed", PRECISION_FP8}, {"blockwise", PRECISION_FP8_BLOCK}, {"mxfp8", PRECISION_MXFP8}, {"nvfp4", PRECISION_NVFP4}};
    struct plan *p = &m->plan;
    if (strcmp(flag, "--bf16") == 0 || strcmp(flag, "--fp16") == 0)
        p->precision = flag[2] == 'b' ? PRECISION_BF16 : PRECISION_FP16;
    else if (strcmp(flag, "--fp8-recipe") == 0 || strcmp(flag, "--fp4-recipe") == 0) {
        const char *recipe = take(w);
        for (int i = 0; i < 4; i++)
            p->precision = strcmp(recipe, recipes[i].recipe) == 0 ? recipes[i].precision : p->precision;
    } else if (strcmp(flag, "--optimizer") == 0)
        p->optimizer = strcmp(take(w), "sgd") == 0 ? OPTIMIZER_SGD : OPTIMIZER_ADAMW;
    else if (strcmp(flag, "--attention-backend") == 0)
        p->attention = strcmp(take(w), "unfused") == 0 ? ATTENTION_UNFUSED : ATTENTION_FLASH;
    else if (strcmp(flag, "--cross-entropy-fusion-impl") == 0)
        p->cross_entropy = strcmp(take(w), "te") == 0 ? CROSS_ENTROPY_IN_PLACE : CROSS_ENTROPY_FUSED;
    else if (strcmp(flag, "--hidden-dropout") == 0)
        p->dropout = strcmp(take(w), "0.0") != 0;
    else if (strcmp(flag, "--cp-comm-type") == 0)
        p->context_parallel = strcmp(take(w), "a2a") == 0 ? CP_ULYSSES : CP_RING;
    else if (strcmp(flag, "--moe-token-dispatcher-type") == 0)
        p->moe_dispatcher = strcmp(take(w), "flex") == 0 ? DISPATCHER_FLEX : DISPATCHER_ALL_TO_ALL;
    else if (strcmp(flag, "--moe-flex-dispatcher-backend") == 0)
        p->moe_dispatcher = strcmp(take(w), "hybridep") == 0 ? DISPATCHER_HYBRIDEP : DISPATCHER_FLEX;
    else if (strcmp(flag, "--cuda-graph-scope") == 0) {
        const char *first = take(w);
        p->cuda_graph = strcmp(first, "full_iteration") == 0 ? CUDA_GRAPH_FULL : strcmp(first, "attn") == 0 ? CUDA_GRAPH_PARTIAL : CUDA_GRAPH_ROUTER;
        while (strncmp(peek(w), "--", 2) != 0)
            take(w);
    } else if (strcmp(flag, "--pipeline-model-parallel-layout") == 0)
        read_layout(p, take(w));
    else if (strcmp(flag, "--use-tp-pp-dp-mapping") == 0)
        p->rank_order[3] = AXIS_PP, p->rank_order[4] = AXIS_DP;
    else
        return false;
    return true;
}

static void read_megatron(const char *text, int64_t layers, struct plan *ret)
{
    struct err err = {0};
    struct json *root = NULL;
    struct megatron m = {.instances = 1};
    CHECK_INT(json_parse(text, strlen(text), "export", &root, &err), 0);
    plan_defaults(&m.plan);
    m.plan.overlap.dp_grad = m.plan.overlap.dp_param = m.plan.fp8_param_gather = false;
    m.plan.zero = 0;
    m.plan.precision = PRECISION_FP32;
    m.plan.cross_entropy = CROSS_ENTROPY_UNFUSED;
    struct words w = {json_first(json_get(root, "arguments"))};
    while (w.at) {
        const char *flag = take(&w);
        CHECK(strncmp(flag, "--", 2) == 0);
        if (!read_number_flag(&m, flag, &w) && !read_switch(&m, flag) && !read_memory_flag(&m, flag, &w) && !read_kernel_flag(&m, flag, &w))
            while (strncmp(peek(&w), "--", 2) != 0)
                take(&w);
    }
    struct plan *p = &m.plan;
    p->dp = (int)(json_double(json_get(root, "world_size")) / (p->tp * p->cp * p->pp));
    p->dp_shard = m.instances > 1 ? p->dp * p->cp / m.instances : 0;
    p->schedule = p->vp > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B;
    if (m.last > 0) {
        p->n_layers_per_stage = p->pp;
        for (int i = 0; i < p->pp; i++)
            p->layers_per_stage[i] = (uint16_t)(i == 0 ? m.first : i == p->pp - 1 ? m.last : (layers - m.first - m.last) / (p->pp - 2));
    }
    *ret = *p;
    json_free(root);
}

/* What cannot be told apart because it is the same. */
static struct plan same_plan(struct plan p)
{
    int64_t ranks = (int64_t)p.dp * p.cp;
    bool routed = p.ep * p.etp > 1;
    if (p.dp_shard == ranks || p.zero == 0)
        p.dp_shard = 0;
    if (p.zero == 0)
        p.overlap.dp_param = false;
    if (p.recompute == RECOMPUTE_SELECTIVE && p.recompute_modules == 0)
        p.recompute_modules = p.attention == ATTENTION_UNFUSED ? 1U << MODULE_CORE_ATTN
                                                               : 1U << MODULE_LAYERNORM | (p.ep * p.etp > 1 ? 1U << MODULE_MOE_ACT : 0);
    if (p.cross_entropy == CROSS_ENTROPY_STACK) /* of stack megatron */
        p.cross_entropy = CROSS_ENTROPY_IN_PLACE;
    if (p.tp == 1)
        p.overlap.tp = false;
    if (p.ep == 1)
        p.overlap.ep = false;
    if (p.vp == 1)
        p.overlap.p2p = true;
    if (!routed)
        p.moe_dispatcher = DISPATCHER_FLEX, p.fused_grouped_mlp = false;
    if (!precision_is_fp8(p.precision))
        p.fp8_attention = false;
    p.fp8_param_gather = plan_keeps_low_weights(&p);
    if (p.optimizer == OPTIMIZER_SGD)
        p.moment_bytes = 4;
    if (p.pp == 1 || (p.dp == 1 && !routed))
        for (int i = 0; i < AXES; i++)
            p.rank_order[i] = (enum axis)i;
    return p;
}

static void differ(const struct plan *p, const struct plan *q, const char *text)
{
    struct json *a = plan_to_json(p), *b = plan_to_json(q);
    char *x = json_print(a), *y = json_print(b);
    printf("exported %s\nread %s\nfrom %s\n", x, y, text);
    free(x);
    free(y);
    json_free(a);
    json_free(b);
}

/* Sentences of a refusal: field, framework, nearest value. */
static void check_sentences(const struct err *err, const char *framework)
{
    char text[ERR_TEXT_MAX];
    snprintf(text, sizeof text, "%s", err->text);
    CHECK(err->count > 0);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        bool whole = strncmp(line, "field '", 7) == 0 && strstr(line, framework) && strstr(line, "; nearest valid: ");
        if (!whole)
            printf("%s\n", line);
        CHECK(whole);
    }
}

static void test_megatron(void)
{
    int written = 0;
    for (int run = 0; run < RUNS; run++) {
        struct plan p = random_plan(), q;
        struct export_request request = {.plan = &p, .json = true};
        struct err err = {0};
        char *text = NULL;
        int64_t layers = 0;
        if (export_plan(EXPORT_MEGATRON, &request, &text, NULL, &err) < 0) {
            CHECK(text == NULL);
            check_sentences(&err, "Megatron-LM");
            continue;
        }
        written++;
        for (int i = 0; i < p.n_layers_per_stage; i++)
            layers += p.layers_per_stage[i];
        read_megatron(text, layers, &q);
        p = same_plan(p);
        q = same_plan(q);
        if (!test_count(plan_compare(&p, &q) == 0))
            differ(&p, &q, text);
        free(text);
    }
    printf("Megatron-LM: %d of %d plans written\n", written, RUNS);
    CHECK(written > RUNS / 20);
}

/* --- DeepSpeed ---------------------------------------------------------------- */

static double number_at(const struct json *root, const char *object, const char *key, double otherwise)
{
    const struct json *at = object ? json_get(root, object) : root, *node = at ? json_get(at, key) : NULL;
    return node && json_type(node) == JSON_NUMBER ? json_double(node) : otherwise;
}

static void test_deepspeed(void)
{
    int written = 0;
    for (int run = 0; run < 4 * RUNS; run++) {
        struct plan p = random_plan();
        struct export_request request = {.plan = &p};
        struct err err = {0};
        struct json *root = NULL;
        char *text = NULL;
        if (export_plan(EXPORT_DEEPSPEED, &request, &text, NULL, &err) < 0) {
            CHECK(text == NULL);
            check_sentences(&err, "DeepSpeed");
            continue;
        }
        written++;
        CHECK_INT(json_parse(text, strlen(text), "ds_config.json", &root, &err), 0);
        double micro = number_at(root, NULL, "train_micro_batch_size_per_gpu", 0), steps = number_at(root, NULL, "gradient_accumulation_steps", 0);
        CHECK_INT((int64_t)number_at(root, NULL, "train_batch_size", 0), p.global_batch);
        CHECK_INT((int64_t)(micro * steps) * p.dp, p.global_batch);
        CHECK_INT((int)micro, p.micro_batch);
        CHECK_INT((int)number_at(root, "zero_optimization", "stage", -1), p.zero);
        CHECK_INT((int)number_at(root, "tensor_parallel", "autotp_size", 1), p.tp);
        CHECK_INT((int)number_at(root, NULL, "sequence_parallel_size", 1), p.cp);
        CHECK_INT(json_has(root, "bf16"), p.precision == PRECISION_BF16);
        CHECK_INT(json_has(root, "fp16"), p.precision == PRECISION_FP16);
        CHECK_INT(json_has(root, "activation_checkpointing"), p.recompute == RECOMPUTE_FULL);
        const struct json *zero = json_get(root, "zero_optimization");
        CHECK_INT(json_has(zero, "offload_optimizer"), p.optimizer_offload > 0);
        if (p.zero == 3 && p.optimizer_offload > 0)
            CHECK_DOUBLE(number_at(zero, "offload_optimizer", "ratio", 0), p.optimizer_offload, 0);
        int whole = p.dp * p.cp, shard = (int)number_at(root, "zero_optimization", "mics_shard_size", whole);
        CHECK_INT(shard, p.zero > 0 && p.dp_shard > 0 ? p.dp_shard : whole);
        CHECK_INT(p.pp * p.ep * p.etp, 1);
        json_free(root);
        free(text);
    }
    printf("DeepSpeed: %d of %d plans written\n", written, 4 * RUNS);
    CHECK(written > RUNS / 20);
}

/* --- torchtitan --------------------------------------------------------------- */

/* The value behind "key = " in TOML, "" when it is not there. */
static const char *toml(const char *text, const char *key)
{
    static char value[64];
    size_t n = strlen(key);
    value[0] = '\0';
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, key, n) == 0 && strncmp(line + n, " = ", 3) == 0)
            snprintf(value, sizeof value, "%.*s", (int)strcspn(line + n + 3, "\n"), line + n + 3);
    return value;
}

static int64_t toml_int(const char *text, const char *key, int64_t otherwise)
{
    const char *value = toml(text, key);
    return *value ? strtoll(value, NULL, 10) : otherwise;
}

static void check_toml(const struct plan *p, const char *text)
{
    int64_t replicas = toml_int(text, "data_parallel_replicate_degree", 0), shard = toml_int(text, "data_parallel_shard_degree", 0);
    CHECK_INT(replicas * shard, p->dp);
    if (p->zero > 0)
        CHECK_INT(shard * p->cp, p->dp_shard > 0 ? p->dp_shard : p->dp * p->cp);
    CHECK_INT(toml_int(text, "tensor_parallel_degree", 0), p->tp);
    CHECK_INT(toml_int(text, "context_parallel_degree", 0), p->cp);
    CHECK_INT(toml_int(text, "pipeline_parallel_degree", 0), p->pp);
    CHECK_INT(toml_int(text, "expert_parallel_degree", 1), p->ep);
    CHECK_INT(toml_int(text, "global_batch_size", 0), p->global_batch);
    CHECK_INT(toml_int(text, "seq_len", 0), p->seq_len);
    int64_t local = toml_int(text, "local_batch_size", 0), micro = p->pp > 1 ? toml_int(text, "pipeline_parallel_microbatch_size", 0) : local;
    CHECK_INT(micro, p->micro_batch);
    CHECK_INT(p->global_batch % (local * p->dp), 0);
    if (p->pp > 1)
        CHECK_INT(local / micro, plan_micro_batches(p));
    if (p->dp * p->cp > 1 && p->zero >= 2)
        CHECK_STR(toml(text, "fsdp_reshard_after_forward"), p->zero == 3 ? "\"always\"" : "\"never\"");
    char mode[32];
    snprintf(mode, sizeof mode, "\"%s\"", recompute_names[p->recompute]);
    CHECK_STR(toml(text, "mode"), mode);
    int chunks = 0, layers = 0, sum = 0;
    for (const char *line = strstr(text, "module_fqns_per_model_part"); line && *line != ']'; line = strchr(line, '\n') + 1)
        chunks += strncmp(line, "  [", 3) == 0;
    for (const char *at = text; (at = strstr(at, "\"layers.")) != NULL; at++)
        layers++;
    for (int i = 0; i < p->n_layers_per_stage; i++)
        sum += p->layers_per_stage[i];
    CHECK_INT(chunks, p->pp > 1 ? p->n_layers_per_stage : 0);
    CHECK_INT(layers, p->pp > 1 ? sum : 0);
}

static void test_torchtitan(void)
{
    int written = 0;
    for (int run = 0; run < 4 * RUNS; run++) {
        struct plan p = random_plan();
        struct export_request request = {.plan = &p};
        struct err err = {0};
        char *text = NULL;
        if (export_plan(EXPORT_TORCHTITAN, &request, &text, NULL, &err) < 0) {
            CHECK(text == NULL);
            check_sentences(&err, "torchtitan");
            continue;
        }
        written++;
        check_toml(&p, text);
        free(text);
    }
    printf("torchtitan: %d of %d plans written\n", written, 4 * RUNS);
    CHECK(written > RUNS / 40);
}

/* --- no field in silence -------------------------------------------------------- */

/* Another value of every field, as seen from the plans below. */
static const struct {
    const char *field, *json;
} others[] = {
    {"tp", "{\"tp\":4}"}, {"sequence_parallel", "{\"sequence_parallel\":null,\"tp\":2}"}, {"cp", "{\"cp\":4}"}, {"context_parallel", "{\"context_parallel\":\"ulysses\"}"},
    {"pp", "{\"pp\":4}"}, {"vp", "{\"vp\":3}"}, {"dp", "{\"dp\":16}"}, {"ep", "{\"ep\":4}"}, {"etp", "{\"etp\":2}"}, {"zero", "{\"zero\":0}"},
    {"micro_batch", "{\"micro_batch\":2}"}, {"global_batch", "{\"global_batch\":256}"}, {"seq_len", "{\"seq_len\":8192}"}, {"schedule", "{\"schedule\":\"looped-bfs\"}"},
    {"schedule_group", "{\"schedule_group\":4}"}, {"recompute", "{\"recompute\":\"none\"}"}, {"recompute_layers", "{\"recompute\":\"full\",\"recompute_layers\":2}"},
    {"precision", "{\"precision\":\"bf16\"}"}, {"optimizer", "{\"optimizer\":\"sgd\"}"}, {"grad_dtype", "{\"grad_dtype\":\"bf16\"}"}, {"attention", "{\"attention\":\"unfused\"}"},
    {"moe_dispatcher", "{\"moe_dispatcher\":\"alltoall\"}"}, {"layers_per_stage", "{\"layers_per_stage\":[1,2,2,3]}"}, {"overlap.dp_grad", "{\"overlap\":{\"dp_grad\":false}}"},
    {"overlap.dp_param", "{\"overlap\":{\"dp_param\":false}}"}, {"overlap.tp", "{\"overlap\":{\"tp\":true}}"}, {"overlap.ep", "{\"overlap\":{\"ep\":true}}"},
    {"overlap.p2p", "{\"overlap\":{\"p2p\":false}}"}, {"rank_order", "{\"rank_order\":\"tp-cp-ep-pp-dp\"}"}, {"stack", "{\"stack\":\"nanotron\"}"},
    {"recompute_modules", "{\"recompute_modules\":[\"mlp\"]}"}, {"cuda_graph", "{\"cuda_graph\":\"router\"}"}, {"vocab_parallel", "{\"vocab_parallel\":\"pipeline\"}"},
    {"dp_shard", "{\"dp_shard\":4}"}, {"optimizer_offload", "{\"optimizer_offload\":1}"}, {"optimizer_state_dtype", "{\"optimizer_state_dtype\":\"bf16\"}"},
    {"cross_entropy", "{\"cross_entropy\":\"fused\"}"}, {"dropout", "{\"dropout\":true}"}, {"activation_offload_layers", "{\"activation_offload_layers\":1}"},
    {"offload_modules", "{\"offload_modules\":[\"core_attn\"]}"}, {"lora_rank", "{\"lora_rank\":16}"}, {"lora_modules", "{\"lora_modules\":[\"linear_qkv\"]}"},
    {"fused_grouped_mlp", "{\"fused_grouped_mlp\":true}"}, {"fp8_attention", "{\"fp8_attention\":true}"}, {"fp8_param_gather", "{\"fp8_param_gather\":false}"},
};
enum { OTHERS = sizeof others / sizeof *others };

/* Plans that each framework takes; what a pipeline or experts need is left to where there are some. */
static const struct {
    enum export_target target;
    const char *plan, *without; /* fields that mean nothing in it */
} bases[] = {
    {EXPORT_MEGATRON, "{\"tp\":2,\"sequence_parallel\":true,\"cp\":2,\"pp\":2,\"vp\":2,\"schedule\":\"interleaved\",\"dp\":4,\"ep\":2,\"zero\":1,\"recompute\":\"selective\","
                      "\"precision\":\"fp8-block\",\"grad_dtype\":\"fp32\"}", ""},
    {EXPORT_DEEPSPEED, "{\"tp\":2,\"dp\":8,\"zero\":2,\"grad_dtype\":\"fp32\",\"recompute\":\"full\",\"stack\":\"deepspeed\",\"precision\":\"fp16\"}",
     " context_parallel schedule schedule_group vp layers_per_stage rank_order moe_dispatcher overlap.p2p "},
    {EXPORT_TORCHTITAN, "{\"tp\":2,\"sequence_parallel\":true,\"cp\":2,\"pp\":2,\"vp\":2,\"schedule\":\"interleaved\",\"dp\":8,\"ep\":8,\"zero\":3,\"recompute\":\"selective\","
                        "\"precision\":\"fp8\",\"grad_dtype\":\"fp32\",\"stack\":\"torchtitan\"}", ""},
};

static bool listed(const char *list, const char *word)
{
    char padded[80];
    snprintf(padded, sizeof padded, " %s ", word);
    return strstr(list, padded) != NULL;
}

static void check_field(int base, int other)
{
    struct plan plan;
    struct export_request request = {.plan = &plan};
    struct err warn = {0}, changed_warn = {0}, err = {0};
    char *text = NULL, *changed = NULL;
    plan_defaults(&plan);
    onto(&plan, bases[base].plan);
    CHECK_INT(export_plan(bases[base].target, &request, &text, &warn, &err), 0);
    CHECK_STR(err.text, "");
    onto(&plan, others[other].json);
    if (strcmp(others[other].field, "sequence_parallel") == 0)
        plan.sequence_parallel = !plan.sequence_parallel;
    int result = export_plan(bases[base].target, &request, &changed, &changed_warn, &err);
    const char *leaf = strchr(others[other].field, '.') ? strchr(others[other].field, '.') + 1 : others[other].field;
    bool named = strstr(err.text, leaf) != NULL || (strcmp(warn.text, changed_warn.text) != 0 && (strstr(changed_warn.text, leaf) || strstr(warn.text, leaf)));
    bool told = result < 0 ? named : named || (text && changed && strcmp(text, changed) != 0);
    if (!told)
        printf("%s drops field %s in silence: %s%s\n", export_target_names[bases[base].target], others[other].field, err.text, changed_warn.text);
    CHECK(told);
    free(text);
    free(changed);
}

static int other_of(const char *field)
{
    for (int i = 0; i < OTHERS; i++)
        if (strcmp(others[i].field, field) == 0)
            return i;
    printf("no other value of field '%s' is tried here\n", field);
    CHECK(false);
    return -1;
}

static void test_fields(void)
{
    struct plan plan;
    plan_defaults(&plan);
    struct json *root = plan_to_json(&plan);
    for (size_t base = 0; base < sizeof bases / sizeof *bases; base++) {
        for (const struct json *node = json_first(root); node; node = json_next(node)) {
            char name[64];
            bool inner = json_type(node) == JSON_OBJECT;
            for (const struct json *child = inner ? json_first(node) : node; child; child = inner ? json_next(child) : NULL) {
                snprintf(name, sizeof name, "%s%s%s", json_key(node), inner ? "." : "", inner ? json_key(child) : "");
                int other = other_of(name);
                if (other >= 0 && !listed(bases[base].without, name))
                    check_field((int)base, other);
            }
        }
    }
    json_free(root);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--seed") == 0)
        seed = strtoull(argv[2], NULL, 10);
    printf("--seed %llu\n", (unsigned long long)seed);
    test_fields();
    test_megatron();
    test_deepspeed();
    test_torchtitan();
    return test_report();
}

/* Allocated bytes of Megatron-LM's own functional tests, predicted from their arguments.
 *
 * golden/megatron_ci.csv holds cited rows (NVIDIA/Megatron-LM, tests/functional_tests/
 * test_cases, golden values): each within its own tolerance. The whole table is read
 * where the shared data lies; its medians by feature are printed and asserted. Two
 * counters, both of the last pipeline rank: the peak of a run (mem_max_allocated_bytes)
 * and what stays between steps (mem_allocated_bytes_steady). Not predicted: encoders,
 * state-space and vision models, knowledge distillation. */
#include "tests/unit/test.h"

#include <math.h>

#include "cost/base/csv.h"
#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/profile.h"
#include "sim/predict.h"

static const char all_rows[] = "data/megatron-ci/runs.csv", cited_rows[] = "tests/golden/megatron_ci.csv";

struct row {
    const struct csv *csv;
    size_t at;
    struct json *args;
    char reason[200];
    struct model model;
    struct plan plan;
    int gpus;
    double peak_bytes, steady_bytes; /* measured */
};

static const char *cell(const struct row *row, const char *column)
{
    return csv_cell(row->csv, row->at, csv_column(row->csv, column));
}

static int64_t cell_int(const struct row *row, const char *column, int64_t otherwise)
{
    const char *text = cell(row, column);
    return *text ? atoll(text) : otherwise;
}

static double number(const struct row *row, const char *key, double otherwise)
{
    const struct json *value = json_get(row->args, key);
    return value && json_type(value) == JSON_NUMBER ? json_double(value) : value && json_type(value) == JSON_STRING ? atof(json_text(value)) : otherwise;
}

static bool flag(const struct row *row, const char *key)
{
    const struct json *value = json_get(row->args, key);
    return value && json_type(value) == JSON_BOOL && json_true(value);
}

static const char *word(const struct row *row, const char *key)
{
    const struct json *value = json_get(row->args, key);
    return value && json_type(value) == JSON_STRING ? json_text(value) : "";
}

/* "([0]*3+[1]*11)": the number of leading dense layers. */
static int64_t dense_layers(const char *pattern)
{
    const char *zeros = strstr(pattern, "[0]*");
    return zeros ? atoll(zeros + 4) : 0;
}

static void set_layers(struct row *row, int64_t ffn)
{
    struct model *m = &row->model;
    int64_t experts = (int64_t)number(row, "num_experts", 0), dense = experts > 0 ? dense_layers(word(row, "moe_layer_freq")) : m->layers;
    struct layer_kind mlp = {.ffn = ffn, .layers = dense};
    struct layer_kind moe = {.moe = true, .ffn = (int64_t)number(row, "moe_ffn_hidden_size", (double)ffn),
                             .shared_ffn = (int64_t)number(row, "moe_shared_expert_intermediate_size", 0), .layers = m->layers - dense};
    m->experts = experts;
    m->experts_per_token = (int64_t)number(row, "moe_router_topk", 2);
    if (dense > 0)
        m->kinds[m->n_kinds++] = mlp;
    if (experts > 0)
        m->kinds[m->n_kinds++] = moe;
    for (int64_t i = dense; i < m->layers; i++)
        m->kind_of_layer[i] = (uint8_t)(m->n_kinds - 1);
    m->n_mtp_layers = 1;
    m->mtp_kind[0] = m->kind_of_layer[m->layers - 1];
}

static void set_model(struct row *row)
{
    struct model *m = &row->model;
    bool bias = !flag(row, "disable_bias_linear");
    m->hidden = cell_int(row, "hidden_size", 0);
    m->layers = cell_int(row, "num_layers", 0);
    m->heads = cell_int(row, "heads", 1);
    m->kv_heads = cell_int(row, "kv_groups", m->heads);
    m->head_dim = m->v_head_dim = (int64_t)number(row, "kv_channels", (double)(m->hidden / m->heads));
    m->gated = flag(row, "swiglu");
    m->vocab = (int64_t)number(row, "vocab_size", 50257);
    m->norm = strcmp(word(row, "normalization"), "RMSNorm") == 0 ? MODEL_RMS_NORM : MODEL_LAYER_NORM;
    m->norm_bias = m->norm == MODEL_LAYER_NORM;
    m->norms_per_layer = 2;
    m->final_norm = true;
    m->qk_norm = flag(row, "qk_layernorm");
    m->qkv_bias = m->out_bias = m->mlp_bias = m->expert_bias = bias;
    m->tied = !flag(row, "untie_embeddings_and_output_weights");
    m->max_positions = m->position_rows = (int64_t)number(row, "max_position_embeddings", 0);
    m->learned_positions = !*word(row, "position_embedding_type");
    m->mtp_modules = (int64_t)number(row, "mtp_num_layers", 0);
    m->n_group = m->topk_group = 1;
    if (flag(row, "multi_latent_attention")) {
        m->mla = true;
        m->kv_heads = m->heads;
        m->q_lora = (int64_t)number(row, "q_lora_rank", 0);
        m->kv_lora = (int64_t)number(row, "kv_lora_rank", 512);
        m->qk_nope = (int64_t)number(row, "qk_head_dim", 128);
        m->qk_rope = (int64_t)number(row, "qk_pos_emb_head_dim", 64);
        m->head_dim = m->qk_nope + m->qk_rope;
        m->v_head_dim = (int64_t)number(row, "v_head_dim", 128);
        m->qk_norm = false;
    }
    double usual = m->gated ? (double)((int64_t)((double)(4 * m->hidden) * 2 / 3) / 64 * 64) : (double)(4 * m->hidden);
    set_layers(row, (int64_t)number(row, "ffn_hidden_size", usual));
}

static void set_uneven(struct row *row)
{
    struct plan *p = &row->plan;
    int stages = p->pp * p->vp;
    int64_t first = (int64_t)number(row, "decoder_first_pipeline_num_layers", 0), last = (int64_t)number(row, "decoder_last_pipeline_num_layers", 0);
    int embedding = flag(row, "account_for_embedding_in_pipeline_split"), loss = flag(row, "account_for_loss_in_pipeline_split");
    if (stages < 2 || (first == 0 && last == 0 && !embedding && !loss))
        return;
    for (int i = 0; i < stages; i++)
        p->layers_per_stage[i] = (uint16_t)((row->model.layers + embedding + loss) / stages);
    p->layers_per_stage[0] = (uint16_t)(p->layers_per_stage[0] - embedding);
    p->layers_per_stage[stages - 1] = (uint16_t)(p->layers_per_stage[stages - 1] - loss);
    if (first > 0 && last > 0) { /* of the first and the last rank, all chunks together */
        for (int i = 0; i < stages; i++)
            p->layers_per_stage[i] = (uint16_t)((row->model.layers - first - last) / (p->pp - 2) / p->vp);
        for (int i = 0; i < p->vp; i++) {
            p->layers_per_stage[i * p->pp] = (uint16_t)(first / p->vp);
            p->layers_per_stage[(i + 1) * p->pp - 1] = (uint16_t)(last / p->vp);
        }
    }
    p->n_layers_per_stage = stages;
}

static void set_recompute(struct row *row)
{
    struct plan *p = &row->plan;
    const struct json *modules = json_get(row->args, "recompute_modules");
    const char *granularity = word(row, "recompute_granularity");
    p->recompute = strcmp(granularity, "full") == 0 ? RECOMPUTE_FULL : strcmp(granularity, "selective") == 0 ? RECOMPUTE_SELECTIVE : RECOMPUTE_NONE;
    const char *list = modules && json_type(modules) == JSON_STRING ? json_text(modules) : cell(row, "recompute");
    for (int i = 0; p->recompute == RECOMPUTE_SELECTIVE && i < RECOMPUTE_MODULES; i++)
        if (i != MODULE_MOE && strstr(list, recompute_module_names[i]))
            p->recompute_modules |= 1U << i;
}

static void set_kernels(struct row *row)
{
    struct plan *p = &row->plan;
    const char *backend = word(row, "attention_backend");
    /* the containers of one cluster, now gone, had no flash attention that is deterministic */
    bool early = !*backend && strstr(cell(row, "golden"), "dracooci") && flag(row, "deterministic_mode");
    bool local = strcmp(word(row, "transformer_impl"), "local") == 0 && !flag(row, "use_flash_attn");
    if (strcmp(backend, "unfused") == 0 || strcmp(backend, "local") == 0 || local || early)
        p->attention = ATTENTION_UNFUSED;
    p->cross_entropy = !flag(row, "cross_entropy_loss_fusion") ? CROSS_ENTROPY_UNFUSED :
                       strcmp(word(row, "cross_entropy_fusion_impl"), "te") == 0 ? CROSS_ENTROPY_IN_PLACE : CROSS_ENTROPY_FUSED;
    p->dropout = number(row, "hidden_dropout", 0.1) > 0;
    p->moe_dispatcher = strcmp(word(row, "moe_token_dispatcher_type"), "flex") == 0 ? DISPATCHER_FLEX : DISPATCHER_ALL_TO_ALL;
    p->overlap.ep = flag(row, "overlap_moe_expert_parallel_comm");
    p->overlap.tp = flag(row, "tp_comm_overlap");
}

static void set_plan(struct row *row)
{
    struct plan *p = &row->plan;
    plan_defaults(p);
    p->tp = (int)cell_int(row, "tp", 1);
    p->pp = (int)cell_int(row, "pp", 1);
    p->cp = (int)cell_int(row, "cp", 1);
    p->ep = (int)cell_int(row, "ep", 1);
    p->etp = row->model.experts > 0 ? (int)cell_int(row, "etp", p->tp) : 1;
    p->vp = (int)cell_int(row, "vp", 1);
    int64_t per_chunk = cell_int(row, "layers_per_vstage", 0);
    if (per_chunk > 0 && p->pp > 1)
        p->vp = (int)(row->model.layers / p->pp / per_chunk);
    if (p->vp > 1)
        p->schedule = SCHEDULE_INTERLEAVED;
    row->gpus = (int)cell_int(row, "gpus", 8);
    p->dp = row->gpus / (p->tp * p->pp * p->cp);
    p->sequence_parallel = flag(row, "sequence_parallel") && p->tp > 1;
    p->micro_batch = (int)cell_int(row, "mbs", 1);
    p->global_batch = cell_int(row, "gbs", (int64_t)p->dp * p->micro_batch * p->pp);
    p->seq_len = cell_int(row, "seq_len", 1024);
    p->zero = flag(row, "use_megatron_fsdp") ? 3 : flag(row, "use_distributed_optimizer") ? 1 : 0;
    const char *precision = cell(row, "precision");
    p->precision = strcmp(precision, "fp16") == 0 ? PRECISION_FP16 : strcmp(precision, "fp8") == 0 ? PRECISION_FP8 :
                   strcmp(precision, "fp32") == 0 ? PRECISION_FP32 : PRECISION_BF16;
    p->fp8_param_gather = flag(row, "fp8_param_gather");
    p->grad_bytes = flag(row, "accumulate_allreduce_grads_in_fp32") ? 4 : flag(row, "grad_reduce_in_bf16") ? 2 : 0;
    int64_t instances = (int64_t)number(row, "num_distributed_optimizer_instances", 1);
    if (instances > 1)
        p->dp_shard = (int)(p->dp * p->cp / instances);
    set_uneven(row);
    set_recompute(row);
    set_kernels(row);
}

static bool refused(struct row *row)
{
    static const char *const groups[] = {"t5/", "bert/", "hybrid/", "multimodal", "mimo/", "nemotron/"};
    const char *why = NULL, *test = cell(row, "test");
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (strncmp(test, groups[i], strlen(groups[i])) == 0)
            why = "encoder, state-space or vision model";
    if (*word(row, "export_kd_cfg"))
        why = "two models";
    else if (*word(row, "pipeline_model_parallel_layout") && row->model.mtp_modules > 0)
        why = "layout with MTP";
    else if (strcmp(word(row, "optimizer"), "muon") == 0)
        why = "Muon";
    else if (flag(row, "fine_grained_activation_offloading"))
        why = "activation offload";
    else if (strcmp(cell(row, "offload"), "True") == 0)
        why = "offload";
    else if (flag(row, "defer_embedding_wgrad_compute"))
        why = "deferred gradient of the embedding";
    else if (strstr(test, "fsdp2"))
        why = "FSDP of PyTorch";
    else if (strstr(test, "release") && !*cell(row, "gpus"))
        why = "number of accelerators not stated";
    if (why)
        snprintf(row->reason, sizeof row->reason, "%s", why);
    return why != NULL;
}

struct world {
    struct profile *profile;
    struct stack stack;
    struct prediction prediction;
};

/* Peak and what stays between the steps: states, the framework's own, fp32 copies of 16-bit gradients until they are zeroed. */
static int predict(struct world *world, struct row *row, double *ret_peak, double *ret_steady)
{
    static const struct { const char *theirs, *ours; } platforms[] = {{"dgx_a100", "a100-sxm-80gb"}, {"dgx_h100", "h100-sxm"}, {"dgx_gb200", "gb200"}};
    struct err err = {0}, warn = {0};
    struct cluster cluster;
    const char *accelerator = "a100-sxm-80gb";
    for (size_t i = 0; i < sizeof platforms / sizeof *platforms; i++)
        if (strcmp(cell(row, "platform"), platforms[i].theirs) == 0)
            accelerator = platforms[i].ours;
    struct json *hw = json_new_object();
    json_put_string(hw, "accelerator", accelerator);
    json_put_int(hw, "nodes", row->gpus > 8 ? row->gpus / 8 : 1);
    json_put_int(hw, "accelerators_per_node", row->gpus > 8 ? 8 : row->gpus);
    int result = cluster_parse(hw, "cluster of the row", world->profile, &cluster, &warn, &err);
    world->stack.wgrad_stand_in = !flag(row, "no_gradient_accumulation_fusion") && strcmp(word(row, "transformer_impl"), "local") != 0;
    if (flag(row, "deterministic_mode")) /* CUBLAS_WORKSPACE_CONFIG=:4096:8 on two streams, TransformerEngine's beside them */
        cluster.accelerator.gemm_workspace_bytes = fmax(cluster.accelerator.gemm_workspace_bytes, 68 * 1048576.0);
    struct question question = {.model = &row->model, .cluster = &cluster, .profile = world->profile, .stacks = &world->stack, .n_stacks = 1,
                                .memory_limit_bytes = 1e15};
    if (result == 0)
        result = predict_plan(&question, &row->plan, &world->prediction, &err);
    json_free(hw);
    if (result < 0) {
        snprintf(row->reason, sizeof row->reason, "%.*s", (int)strcspn(err.text, "\n"), err.text);
        return -1;
    }
    const double *bytes = world->prediction.stage[world->prediction.n_stages - 1].bytes;
    *ret_peak = memory_allocated(bytes);
    *ret_steady = bytes[MEMORY_WEIGHTS] + bytes[MEMORY_GRADIENTS] + bytes[MEMORY_OPTIMIZER] + cluster.accelerator.gemm_workspace_bytes +
                  (row->plan.precision == PRECISION_FP16 ? bytes[MEMORY_OPTIMIZER] / 3 : 0);
    return 0;
}

static int read_row(const struct csv *csv, size_t at, struct row *row)
{
    struct err err = {0};
    *row = (struct row){.csv = csv, .at = at};
    const char *args = cell(row, "args_json");
    if (json_parse(args, strlen(args), "args_json", &row->args, &err) < 0) {
        snprintf(row->reason, sizeof row->reason, "arguments unreadable");
        return -1;
    }
    row->peak_bytes = atof(cell(row, "mem_max_allocated_bytes"));
    row->steady_bytes = atof(cell(row, "mem_allocated_bytes_steady"));
    set_model(row);
    if (refused(row))
        return -1;
    set_plan(row);
    return 0;
}

/* --- errors by feature ----------------------------------------------------- */

enum { FEATURES = 18, ROWS_MAX = 2000 };
static struct feature {
    const char *name;
    int n;
    double peak[ROWS_MAX], steady[ROWS_MAX];
} features[FEATURES];

static void add(const char *name, bool has, double peak, double steady)
{
    for (int i = 0; has && i < FEATURES; i++) {
        struct feature *f = &features[i];
        if (!f->name)
            f->name = name;
        if (strcmp(f->name, name) == 0) {
            f->peak[f->n] = peak;
            f->steady[f->n++] = steady;
            return;
        }
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *errors, int n, double q, bool absolute)
{
    static double sorted[ROWS_MAX];
    for (int i = 0; i < n; i++)
        sorted[i] = absolute ? fabs(errors[i]) : errors[i];
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    return n > 0 ? sorted[(int)(q * (n - 1))] : 0;
}

static void add_features(const struct row *row, double peak, double steady)
{
    const struct plan *p = &row->plan;
    const struct model *m = &row->model;
    add("all", true, peak, steady);
    add("dense", m->experts == 0, peak, steady);
    add("experts", m->experts > 0, peak, steady);
    add("hidden > 512", m->hidden > 512, peak, steady);
    add("pp > 1", p->pp > 1, peak, steady);
    add("interleaved", p->vp > 1, peak, steady);
    add("tp > 1", p->tp > 1, peak, steady);
    add("sequence parallel", p->sequence_parallel, peak, steady);
    add("cp > 1", p->cp > 1, peak, steady);
    add("distributed optimizer", p->zero == 1, peak, steady);
    add("fsdp", p->zero == 3, peak, steady);
    add("unfused attention", p->attention == ATTENTION_UNFUSED, peak, steady);
    add("fp16", p->precision == PRECISION_FP16, peak, steady);
    add("fp8", p->precision == PRECISION_FP8, peak, steady);
    add("full recompute", p->recompute == RECOMPUTE_FULL, peak, steady);
    add("fused loss", p->cross_entropy == CROSS_ENTROPY_FUSED, peak, steady);
    add("mla", m->mla, peak, steady);
    add("mtp", m->mtp_modules > 0, peak, steady);
}

static void print_features(void)
{
    printf("%-22s %4s %8s %8s %8s   %8s %8s\n", "", "n", "peak", "median", "p90", "steady", "median");
    for (int i = 0; i < FEATURES && features[i].name; i++) {
        const struct feature *f = &features[i];
        printf("%-22s %4d %+7.1f%% %7.1f%% %7.1f%%   %+7.1f%% %7.1f%%\n", f->name, f->n, 100 * quantile(f->peak, f->n, 0.5, false),
               100 * quantile(f->peak, f->n, 0.5, true), 100 * quantile(f->peak, f->n, 0.9, true), 100 * quantile(f->steady, f->n, 0.5, false),
               100 * quantile(f->steady, f->n, 0.5, true));
    }
}

/* --- the two tables ---------------------------------------------------------- */

static void test_table(struct world *world, const char *path, bool each)
{
    struct csv csv;
    struct err err = {0};
    int unread = 0;
    if (!CHECK_INT(csv_load(path, &csv, &err), 0)) {
        printf("%s\n", err.text);
        return;
    }
    memset(features, 0, sizeof features);
    for (size_t i = 0; i < csv.n_rows; i++) {
        static struct row row;
        double peak, steady;
        if (read_row(&csv, i, &row) == 0 && predict(world, &row, &peak, &steady) == 0) {
            double error = peak / row.peak_bytes - 1, steady_error = steady / row.steady_bytes - 1;
            add_features(&row, error, steady_error);
            if (getenv("MEGATRON_CI_ROWS"))
                printf("%s %s: peak %.1f MB measured %.1f, %+.1f %%; steady %.1f measured %.1f, %+.1f %%\n", cell(&row, "test"), cell(&row, "golden"),
                       peak / 1e6, row.peak_bytes / 1e6, 100 * error, steady / 1e6, row.steady_bytes / 1e6, 100 * steady_error);
            if (each && !CHECK(fabs(error) <= atof(cell(&row, "tolerance"))))
                printf("  %s %s: peak off by %+.1f %%\n", cell(&row, "test"), cell(&row, "golden"), 100 * error);
        } else {
            unread++;
            if (getenv("MEGATRON_CI_ROWS"))
                printf("%s: %s\n", cell(&row, "test"), row.reason);
            if (each)
                CHECK_STR(row.reason, "");
        }
        json_free(row.args);
    }
    printf("%s: %zu rows, %d not predicted\n", path, csv.n_rows, unread);
    print_features();
    csv_release(&csv);
}

int main(void)
{
    struct world *world = calloc(1, sizeof *world);
    struct err err = {0};
    char path[TEST_PATH_MAX];
    if (!CHECK(world != NULL) || !CHECK_INT(profile_open(NULL, &world->profile, &err), 0) ||
        !CHECK_INT(profile_stack(world->profile, "megatron", &world->stack, &err), 0))
        return test_report();
    test_table(world, test_source_path(path, cited_rows), true);
    if (test_shared_path(path, all_rows)) {
        test_table(world, path, false);
        CHECK(quantile(features[0].peak, features[0].n, 0.5, true) <= 0.02);
    } else {
        test_skip("the shared data is not there");
    }
    profile_close(world->profile);
    free(world);
    return test_report();
}

/* What an op list takes beside its largest GEMMs: rows that are not whole pieces, a host about as fast as the device, kinds
 * of attention, gathers of 8 and 4 bits, norms of every head. Expected values follow from the formulas at the head of
 * cost/ops.c and from the constants beside them, on a stack whose factors are all 1. */
#include "tests/unit/test.h"

#include <math.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/cluster.h"
#include "cost/ops.h"
#include "cost/profile.h"

static struct cluster cluster;
static struct stack stack;

enum { LINES_MAX = 64 };
static struct op_line lines[LINES_MAX];
static struct op_log op_log = {.max = LINES_MAX, .line = lines};

static struct model usual_model(void)
{
    struct model m = {.hidden = 4096, .layers = 1, .heads = 32, .kv_heads = 32, .head_dim = 128, .v_head_dim = 128, .vocab = 50304,
                      .norms_per_layer = 2, .n_kinds = 1, .n_group = 1, .topk_group = 1};
    m.kinds[0] = (struct layer_kind){.ffn = 4 * m.hidden, .layers = 1};
    return m;
}

static struct plan usual_plan(int tp)
{
    struct plan plan;
    plan_defaults(&plan);
    plan.tp = tp;
    plan.dp = 8 / tp;
    plan.sequence_parallel = tp > 1;
    plan.seq_len = 4096;
    snprintf(plan.stack, sizeof plan.stack, "fsdp1"); /* cuts the vocabulary as it is */
    return plan;
}

static struct layer_price price(const struct model *model, const struct plan *plan, bool head)
{
    struct ops_context context;
    struct layer_price ret;
    op_log.n = 0;
    ops_context_init(&context, model, &cluster, plan, &stack, &op_log);
    if (head)
        ops_price_head(&context, &ret);
    else
        ops_price_layer(&context, 0, &ret);
    return ret;
}

/* Seconds of all lines of this name in a phase. */
static double line_s(const char *name, enum phase phase)
{
    double sum = 0;
    for (int i = 0; i < op_log.n; i++)
        if (strcmp(lines[i].name, name) == 0 && lines[i].phase == phase)
            sum += lines[i].seconds;
    return sum;
}

static void test_unaligned_vocabulary(void)
{
    static const struct { int64_t vocab; double slower; } cases[] = {{50304, 1}, {50308, 1.75}, {50306, 2}, {50305, 3.4}};
    struct plan plan = usual_plan(1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model m = usual_model();
        price(&m, &plan, true);
        double whole = line_s("head", PHASE_F), backward = line_s("head", PHASE_W);
        m.vocab = cases[i].vocab;
        price(&m, &plan, true);
        CHECK_DOUBLE(line_s("head", PHASE_F) / whole, cases[i].slower, 1e-3);
        CHECK_DOUBLE(line_s("head", PHASE_W) / backward, cases[i].slower, 1e-3);
    }
}

static void test_host(void)
{
    struct model m = usual_model();
    for (int tp = 1; tp <= 2; tp++) {
        struct plan plan = usual_plan(tp);
        stack.host_launch_s = 0;
        struct layer_price device = price(&m, &plan, false);
        double busy = device.compute_s[PHASE_F] + device.tp_s[PHASE_F], exponent = tp > 1 ? 2 : 4;
        stack.host_launch_s = 1; /* the device's time vanishes beside the host's: its launches */
        struct layer_price host = price(&m, &plan, false);
        double launches = host.compute_s[PHASE_F] + host.tp_s[PHASE_F];
        CHECK_DOUBLE(launches, floor(launches + 0.5), 1e-6);
        stack.host_launch_s = busy / launches; /* alike */
        struct layer_price alike = price(&m, &plan, false);
        CHECK_DOUBLE((alike.compute_s[PHASE_F] + alike.tp_s[PHASE_F]) / busy, pow(2, 1 / exponent), 1e-6);
        plan.cuda_graph = CUDA_GRAPH_FULL;
        struct layer_price graphed = price(&m, &plan, false);
        CHECK_DOUBLE(graphed.compute_s[PHASE_F], device.compute_s[PHASE_F], 1e-12);
    }
    stack.host_launch_s = 0;
}

static double core_s(enum attention_kernel kind, bool dropout, int heads)
{
    struct model m = usual_model();
    struct plan plan = usual_plan(1);
    m.heads = m.kv_heads = heads;
    plan.attention = kind;
    plan.dropout = dropout;
    price(&m, &plan, false);
    return line_s("attention core", PHASE_F);
}

static void test_attention(void)
{
    const struct accelerator *a = &cluster.accelerator;
    double pass = 4096.0 * 4096 * 32 / (a->mem_eff * a->hbm_bytes_per_s); /* a byte of every score */
    stack.flash2 = false;
    CHECK_DOUBLE(core_s(ATTENTION_FLASH1, false, 32) / core_s(ATTENTION_FLASH, false, 32), 2 / a->flash2_speed, 1e-9);
    double newest = core_s(ATTENTION_FLASH, false, 32);
    stack.flash2 = true;
    CHECK_DOUBLE(core_s(ATTENTION_FLASH, false, 32) / newest, 1 / a->flash2_speed, 1e-9);
    CHECK(a->flash2_speed < 1);
    stack.flash2 = false;
    /* fused softmax: half of the scores read, all written; dropout reads and writes them and writes a mask */
    CHECK_DOUBLE(core_s(ATTENTION_UNFUSED, true, 32) - core_s(ATTENTION_UNFUSED, false, 32), 5 * pass, 1e-6);
    CHECK_DOUBLE(core_s(ATTENTION_EAGER, false, 32) - core_s(ATTENTION_UNFUSED, false, 32), (33 - 3) * pass, 1e-3);
    CHECK_DOUBLE(core_s(ATTENTION_EAGER, false, 30), core_s(ATTENTION_UNFUSED, false, 30), 1e-9); /* 30 heads are no multiple of 4 */
}

static double forward_tp_s(enum precision precision)
{
    struct model m = usual_model();
    struct plan plan = usual_plan(8);
    plan.seq_len = 65536; /* long enough for bandwidth alone */
    plan.precision = precision;
    price(&m, &plan, false);
    return line_s("tp enter", PHASE_F);
}

static void test_gathers(void)
{
    double bf16 = forward_tp_s(PRECISION_BF16);
    CHECK_DOUBLE(forward_tp_s(PRECISION_FP8) / bf16, 0.5, 0.03);
    CHECK_DOUBLE(forward_tp_s(PRECISION_NVFP4) / bf16, 0.5625 / 2, 0.1);
}

static double backward_tp_s(enum recompute recompute)
{
    struct model m = usual_model();
    struct plan plan = usual_plan(8);
    plan.seq_len = 65536;
    plan.recompute = recompute;
    price(&m, &plan, false);
    return line_s("tp enter", PHASE_B);
}

/* Nothing hides: backward gathers the input and scatters its gradient. Where the gathered input is kept, the gather is
 * left out, but not beside per-op checkpointing. */
static void test_kept_gathers(void)
{
    stack.sharded_per_layer = true;
    double both = backward_tp_s(RECOMPUTE_NONE);
    CHECK_DOUBLE(backward_tp_s(RECOMPUTE_FULL), both, 1e-12);
    stack.keeps_gathered = true;
    CHECK_DOUBLE(backward_tp_s(RECOMPUTE_NONE), both / 2, 0.1);
    CHECK_DOUBLE(backward_tp_s(RECOMPUTE_FULL), both / 2, 0.1);
    CHECK_DOUBLE(backward_tp_s(RECOMPUTE_SELECTIVE), both, 1e-12);
    stack.keeps_gathered = stack.sharded_per_layer = false;
}

/* What is computed in fp32 is so everywhere: tensor cores at half the rate, attention and head too. */
static void test_fp32(void)
{
    struct model m = usual_model();
    struct plan half = usual_plan(1), full = usual_plan(1);
    full.precision = PRECISION_FP32;
    price(&m, &half, false);
    double attention = line_s("attention core", PHASE_F), mlp = line_s("down", PHASE_F);
    price(&m, &full, false);
    CHECK_DOUBLE(line_s("attention core", PHASE_F) / attention, 2, 0.02);
    CHECK_DOUBLE(line_s("down", PHASE_F) / mlp, 2, 0.15);
    price(&m, &half, true);
    double head = line_s("head", PHASE_F);
    price(&m, &full, true);
    CHECK_DOUBLE(line_s("head", PHASE_F) / head, 2, 0.15);
}

static void test_head_norms(void)
{
    struct model m = usual_model();
    struct plan plan = usual_plan(1);
    m.qk_norm = true;
    price(&m, &plan, false);
    double latency = cluster.accelerator.kernel_latency_s, one = (line_s("norm", PHASE_F) - 2 * latency) / 2;
    CHECK_DOUBLE((line_s("q/k norm", PHASE_F) - latency) / (2 * one), 4, 1e-9); /* q and k are as wide as the hidden size */
}

int main(void)
{
    struct profile *profile = NULL;
    struct err err = {0}, warn = {0};
    struct json *hw = json_new_object();
    json_put_string(hw, "accelerator", "h100-sxm");
    json_put_int(hw, "nodes", 1);
    if (CHECK_INT(profile_open(NULL, &profile, &err), 0) && CHECK_INT(profile_stack(profile, "megatron", &stack, &err), 0) &&
        CHECK_INT(cluster_parse(hw, "hw", profile, &cluster, &warn, &err), 0)) {
        stack.host_launch_s = 0;
        stack.pointwise = stack.norm_passes = stack.attention_speed = stack.gemm_speed = stack.collective_speed = 1;
        test_unaligned_vocabulary();
        test_host();
        test_attention();
        test_gathers();
        test_kept_gathers();
        test_fp32();
        test_head_norms();
    }
    json_free(hw);
    profile_close(profile);
    return test_report();
}

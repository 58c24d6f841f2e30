/* Kernels and collectives: monotone, additive where they must be, and what users
 * have seen of them. */
#include "tests/unit/test.h"

#include <math.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/cluster.h"
#include "cost/collective.h"
#include "cost/kernel.h"
#include "cost/plan.h"

static struct profile *profile;

static void load_cluster(const char *text, struct cluster *ret)
{
    struct err err = {0};
    struct json *root = NULL;
    CHECK_INT(json_parse(text, strlen(text), "hw.json", &root, &err), 0);
    CHECK_INT(cluster_parse(root, "hw.json", profile, ret, NULL, &err), 0);
    CHECK_STR(err.text, "");
    json_free(root);
}

static struct span span_of(const struct cluster *cluster, int64_t size, int64_t stride)
{
    struct rank_group group = {.n_dims = 1, .dim = {{size, stride}}};
    struct span span;
    cluster_span(cluster, &group, cluster->accelerators, &span);
    return span;
}

/* More work never takes less time, for every accelerator and rate it has. */
static void test_kernels_monotone(const char *name)
{
    struct accelerator a;
    struct err err = {0};
    if (!CHECK_INT(profile_accelerator(profile, name, &a, &err), 0))
        return;
    for (int rate = 0; rate < RATES; rate++) {
        for (double m = 128; m <= 65536; m *= 2) {
            double t = kernel_gemm_s(&a, rate, m, 4096, 4096);
            CHECK(t > 0 && kernel_gemm_s(&a, rate, 2 * m, 4096, 4096) > t && kernel_gemm_s(&a, rate, m, 4097, 4096) >= t);
            CHECK(t >= 2 * m * 4096 * 4096 / (a.peak_flop_per_s[rate] > 0 ? a.peak_flop_per_s[rate] : a.peak_flop_per_s[RATE_16BIT]));
            double g = kernel_grouped_gemm_s(&a, rate, 8, m, 4096, 2048);
            CHECK(kernel_grouped_gemm_s(&a, rate, 8, 2 * m, 4096, 2048) > g);
            double w = kernel_grouped_wgrad_s(&a, rate, 8, m, 4096, 2048, 2);
            CHECK(kernel_grouped_wgrad_s(&a, rate, 8, 2 * m, 4096, 2048, 2) > w && kernel_grouped_wgrad_s(&a, rate, 8, m, 4096, 2048, 4) > w);
        }
    }
    struct attention_shape s = {.batch = 1, .heads = 32, .kv_heads = 8, .queries = 4096, .keys = 4096, .span = 2048.5, .qk_dim = 128, .v_dim = 128};
    double t = kernel_attention_s(&a, &s);
    s.batch = 2;
    CHECK(kernel_attention_s(&a, &s) > t);
    CHECK_DOUBLE(kernel_gemm_s(&a, RATE_16BIT, 0, 5, 5), 0, 0);
}

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

/* Any form, fitted or written by hand, on any machine: a row, column or term more never takes less time. */
static void test_forms_monotone(void)
{
    uint64_t state = 20261130;
    int faster = 0;
    for (int i = 0; i < 200000; i++) {
        struct gemm_form f = {.eff = 0.1 + uniform(&state), .t0_s = 1e-5 * uniform(&state), .pad_m = 200 * uniform(&state), .pad_n = 1200 * uniform(&state),
                              .pad_k = 200 * uniform(&state), .round_m = uniform(&state), .tail = uniform(&state)};
        double m = floor(pow(65536, uniform(&state))), n = floor(pow(65536, uniform(&state))), k = floor(pow(65536, uniform(&state))), units = 1 + floor(300 * uniform(&state));
        if (i % 2)
            m = 128 * ceil(m / 128); /* where the next row begins a tile */
        double t = kernel_form_s(&f, 1e15, units, m, n, k) * (1 - 1e-12);
        faster += kernel_form_s(&f, 1e15, units, m + 1, n, k) < t || kernel_form_s(&f, 1e15, units, m, n + 1, k) < t || kernel_form_s(&f, 1e15, units, m, n, k + 1) < t;
    }
    CHECK_INT(faster, 0);
}

/* The time of each operation grows with the bytes, and a faster network is never slower. */
static void test_collectives_monotone(void)
{
    static struct cluster slow, fast;
    load_cluster("{\"accelerator\": \"h100-sxm\", \"nodes\": 16, \"inter_node\": {\"fabric\": \"ib-ndr\", \"nic_gbps\": 100}}", &slow);
    load_cluster("{\"accelerator\": \"h100-sxm\", \"nodes\": 16, \"inter_node\": {\"fabric\": \"ib-ndr\", \"nic_gbps\": 400}}", &fast);
    const int64_t shapes[][2] = {{2, 1}, {8, 1}, {16, 1}, {128, 1}, {16, 8}, {32, 4}, {2, 64}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct span a = span_of(&slow, shapes[i][0], shapes[i][1]), b = span_of(&fast, shapes[i][0], shapes[i][1]);
        for (int op = 0; op < COLLECTIVE_OPS; op++) {
            double before = 0;
            for (double bytes = 1024; bytes < 1e11; bytes *= 4) {
                double t = collective_s(&slow, &a, op, bytes);
                CHECK(t >= before);
                CHECK(collective_s(&fast, &b, op, bytes) <= t * (1 + 1e-12));
                before = t;
            }
        }
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) { /* whole gradients in fp32 travel no faster than shares in 16 bit; small sums go by trees */
        struct span a = span_of(&slow, shapes[i][0], shapes[i][1]);
        for (double bytes = 1 << 20; bytes < 1e11; bytes *= 4)
            CHECK(collective_s(&slow, &a, COLLECTIVE_ALL_REDUCE, 2 * bytes) >= collective_s(&slow, &a, COLLECTIVE_REDUCE_SCATTER, bytes));
    }
    struct span one = span_of(&fast, 1, 1);
    CHECK_DOUBLE(collective_s(&fast, &one, COLLECTIVE_ALL_REDUCE, 1e9), 0, 0);
}

/* A user doubles the nodes and the tensor-parallel all-reduce does not change: it stays in a node (P24). */
static void test_group_stays_in_node(void)
{
    static struct cluster four, eight;
    load_cluster("{\"accelerator\": \"h100-sxm\", \"nodes\": 4}", &four);
    load_cluster("{\"accelerator\": \"h100-sxm\", \"nodes\": 8}", &eight);
    struct span a = span_of(&four, 8, 1), b = span_of(&eight, 8, 1);
    CHECK_DOUBLE(collective_s(&four, &a, COLLECTIVE_ALL_REDUCE, 1e8), collective_s(&eight, &b, COLLECTIVE_ALL_REDUCE, 1e8), 0);
}

/* Lines that say from which size on they hold: the last that has begun, however slow. */
static void test_lines_in_turn(void)
{
    static struct cluster c;
    load_cluster("{\"accelerator\": \"h100-sxm\", \"nodes\": 1}", &c);
    struct alpha_beta *curve = c.group[0].intra.curve[COLLECTIVE_P2P];
    c.group[0].intra.n_curves[COLLECTIVE_P2P] = 1;
    *curve = (struct alpha_beta){.ranks = 2, .n_lines = 2, .line = {{.alpha_s = 5e-6, .bytes_per_s = 10e9}, {.bytes_per_s = 2e9, .from_bytes = 1e6}}};
    struct span pair = span_of(&c, 2, 1);
    CHECK_DOUBLE(collective_s(&c, &pair, COLLECTIVE_P2P, 1000), 5.1e-6, 1e-12);
    CHECK_DOUBLE(collective_s(&c, &pair, COLLECTIVE_P2P, 0.999e6), 5e-6 + 0.999e-4, 1e-12);
    CHECK_DOUBLE(collective_s(&c, &pair, COLLECTIVE_P2P, 1e6), 5e-4, 1e-12);
    CHECK_DOUBLE(collective_s(&c, &pair, COLLECTIVE_P2P, 1e8), 5e-2, 1e-12);
    curve->line[1].from_bytes = 0; /* else the least of them */
    CHECK_DOUBLE(collective_s(&c, &pair, COLLECTIVE_P2P, 1e8), 5e-6 + 1e-2, 1e-12);
    CHECK_DOUBLE(collective_s(&c, &pair, COLLECTIVE_P2P, 1000), 5e-7, 1e-12);
}

/* A curve measured over nodes is the price of groups of that shape, and scales with others as the formulas do. */
static void test_measured_network(void)
{
    static struct cluster plain, c;
    load_cluster("{\"accelerator\": \"h100-sxm\", \"nodes\": 32}", &plain);
    c = plain;
    struct fabric_profile *f = &c.group[0].fabric;
    f->n_curves[COLLECTIVE_ALL_REDUCE] = 1;
    f->curve[COLLECTIVE_ALL_REDUCE][0] = (struct alpha_beta){.ranks = 16, .nodes = 2, .n_lines = 1, .line = {{.alpha_s = 200e-6, .bytes_per_s = 20e9}}};
    struct span two = span_of(&c, 16, 1), four = span_of(&c, 32, 1), sixteen = span_of(&c, 128, 1), rail = span_of(&c, 2, 8), node = span_of(&c, 8, 1);
    const enum collective_op op = COLLECTIVE_ALL_REDUCE;
    for (double bytes = 1024; bytes < 1e10; bytes *= 8) {
        double measured = 200e-6 + bytes * 2 * 15 / 16 / 20e9;
        CHECK_DOUBLE(collective_s(&c, &two, op, bytes), measured, 1e-12);
        CHECK_DOUBLE(collective_s(&c, &four, op, bytes), measured * collective_s(&plain, &four, op, bytes) / collective_s(&plain, &two, op, bytes), 1e-12);
        CHECK(collective_s(&c, &sixteen, op, bytes) == collective_s(&plain, &sixteen, op, bytes)); /* too far */
        CHECK(collective_s(&c, &rail, op, bytes) == collective_s(&plain, &rail, op, bytes));
        CHECK(collective_s(&c, &node, op, bytes) == collective_s(&plain, &node, op, bytes));
        CHECK(collective_s(&c, &two, COLLECTIVE_ALL_GATHER, bytes) == collective_s(&plain, &two, COLLECTIVE_ALL_GATHER, bytes));
    }
    c.link_quality = 0.5; /* below what was measured on sound links */
    CHECK(collective_s(&c, &two, op, 1e9) > 1.3 * (200e-6 + 1e9 * 2 * 15 / 16 / 20e9));
    c.link_quality = 1;
    f->n_curves[op] = 2; /* a nearer one; of whole nodes */
    f->curve[op][1] = (struct alpha_beta){.ranks = 64, .n_lines = 1, .line = {{.bytes_per_s = 10e9}}};
    struct span eight = span_of(&c, 64, 1);
    CHECK_DOUBLE(collective_s(&c, &eight, op, 1e9), 1e9 * 2 * 63 / 64 / 10e9, 1e-12);
    CHECK_DOUBLE(collective_s(&c, &two, op, 1e9), 200e-6 + 1e9 * 2 * 15 / 16 / 20e9, 1e-12);
    f->curve[op][0] = (struct alpha_beta){.ranks = 4, .nodes = 2, .n_lines = 1, .line = {{.bytes_per_s = 10e9}}}; /* had the NICs alone */
    struct span half = span_of(&c, 4, 4);
    CHECK_INT(half.ranks_per_node, 2);
    CHECK_DOUBLE(collective_s(&c, &half, op, 1e9), 1e9 * 2 * 3 / 4 / 10e9, 1e-12); /* a NIC for each rank: nothing is shared */
}

/* One copy per rank or node is never slower than one per expert. */
static void test_dispatch(void)
{
    static struct cluster c;
    load_cluster("{\"accelerator\": \"h100-sxm\", \"nodes\": 16}", &c);
    for (int64_t ep = 2; ep <= 128; ep *= 2) {
        struct span span = span_of(&c, ep, 1);
        for (int k = 1; k <= 8; k++) {
            double flex = collective_dispatch_s(&c, &span, 4096, 14336, &(struct routing){.chosen = k, .groups = 1}, 1);
            double all = collective_s(&c, &span, COLLECTIVE_ALL_TO_ALL, 4096.0 * 14336 * k);
            CHECK(flex > 0);
            if (span.nodes > 1 && k > 1)
                CHECK(flex <= all);
            CHECK(collective_dispatch_s(&c, &span, 8192, 14336, &(struct routing){.chosen = k, .groups = 1}, 1) >= flex);
        }
    }
}

/* Grouped GEMMs of TransformerEngine on B200, 128 to 9832 tokens per expert (SimuMax 4dcaae5, b200_bf16_ceperm.json). */
static void test_grouped_measured(void)
{
    static const struct { double experts, tokens, n, k, forward_us, dgrad_us, wgrad_us; } points[] = {
        {256, 128, 4096, 7168, 4109, 3778, 11035}, {64, 512, 4096, 7168, 2330, 2113, 3902}, {32, 1024, 4096, 7168, 1871, 1964, 2961},
        {40, 9832, 3072, 5120, 11563, 13136, 11585}};
    struct accelerator a;
    struct err err = {0};
    if (!CHECK_INT(profile_accelerator(profile, "b200-sxm", &a, &err), 0))
        return;
    a.sustained = 0.77; /* of that loop, whatever training makes of it */
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        double experts = points[i].experts, tokens = points[i].tokens, n = points[i].n, k = points[i].k;
        double both = points[i].forward_us + points[i].dgrad_us;
        double predicted = kernel_grouped_gemm_s(&a, RATE_16BIT, experts, tokens, k, n) + kernel_grouped_gemm_s(&a, RATE_16BIT, experts, tokens, n, k);
        CHECK_DOUBLE(predicted * 1e6 / both, 1, 0.17);
        CHECK_DOUBLE(kernel_grouped_wgrad_s(&a, RATE_16BIT, experts, tokens, k, n, 4) * 1e6 / points[i].wgrad_us, 1, 0.15);
    }
}

/* Ranks that hold a token's experts: all different at most, group-limited fewer. */
static void test_routing(void)
{
    struct routing free8 = {.chosen = 8, .groups = 1}, limited = {.chosen = 8, .groups = 8, .limit = 4};
    CHECK_DOUBLE(routing_places(&free8, 1), 1, 1e-12);
    CHECK_DOUBLE(routing_places(&free8, 8), 8 * (1 - pow(7.0 / 8, 8)), 1e-9);
    CHECK_DOUBLE(routing_places(&limited, 8), 4, 1e-9); /* a group to a rank */
    for (double places = 2; places <= 256; places *= 2) {
        CHECK(routing_places(&limited, places) <= fmin(places, 8) && routing_places(&limited, places) >= 1);
        CHECK(routing_places(&limited, places) <= routing_places(&limited, 2 * places) + 1e-9);
    }
}

/* fp32 runs on tf32 tensor cores where there are some, else on the fp32 cores, which are several times slower. */
static void test_fp32(void)
{
    static const struct {
        const char *name;
        double slower, faster;
    } cases[] = {{"v100-sxm-32gb", 6, 9}, {"t4", 5, 9}, {"a100-sxm-80gb", 1.8, 2.3}, {"h100-sxm", 1.8, 2.3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct accelerator a;
        struct err err = {0};
        CHECK_INT(profile_accelerator(profile, cases[i].name, &a, &err), 0);
        double ratio = kernel_gemm_s(&a, RATE_TF32, 8192, 8192, 8192) / kernel_gemm_s(&a, RATE_16BIT, 8192, 8192, 8192);
        CHECK(ratio > cases[i].slower && ratio < cases[i].faster);
    }
}

int main(void)
{
    struct err err = {0};
    if (profile_open(NULL, &profile, &err) < 0) {
        printf("%s\n", err.text);
        return 1;
    }
    static const char *const accelerators[] = {"v100-sxm-32gb", "a100-sxm-80gb", "a100-pcie-80gb", "a800-sxm", "h100-sxm", "h800-sxm", "h200-sxm",
                                               "l40s", "b200-sxm", "b300", "gb200", "gb300", "mi300x"};
    for (size_t i = 0; i < sizeof accelerators / sizeof *accelerators; i++)
        test_kernels_monotone(accelerators[i]);
    test_forms_monotone();
    test_collectives_monotone();
    test_lines_in_turn();
    test_group_stays_in_node();
    test_measured_network();
    test_dispatch();
    test_grouped_measured();
    test_routing();
    test_fp32();
    profile_close(profile);
    return test_report();
}

/* The fields of every section of a profile, and the units they come in. */
#include "cost/profile_fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cost/base/names.h"
#include "cost/profile.h"

const char *const profile_section_names[] = {"accelerator", "gemm",  "attention",    "expert",   "link", "alpha_beta",
                                             "fabric",      "stack", "kernel_point", "residual", NULL};
const char *const profile_rate_names[] = {"fp32", "tf32", "16bit", "fp8", "fp4", NULL};
_Static_assert(sizeof(profile_section_names) / sizeof(profile_section_names[0]) == SECTIONS + 1, "one name per section");
_Static_assert(sizeof(profile_rate_names) / sizeof(profile_rate_names[0]) == RATES + 1, "one name per rate class");

#define MEMBER(type, member) offsetof(struct type, member)
#define WORD(name_, offset_, required_, help_) {name_, FIELD_TEXT, DIMENSION_NAME, offset_, 0, 0, required_, 0, 0, help_}
#define LINK_CLASS(offset_) \
    {"link_class", FIELD_LINK_CLASS, DIMENSION_NAME, offset_, 0, 0, true, 0, 0, "what kind of link it is"}
/* A number: type of measure, where, range, what stands in (REQUIRED: nothing), slower direction, meaning. */
#define NUMBER(name_, dimension_, offset_, min_, max_, fallback_, slower_, help_) \
    {name_, FIELD_DOUBLE, DIMENSION_##dimension_, offset_, min_, max_, false, fallback_, slower_, help_}
#define NEEDED(name_, dimension_, offset_, min_, max_, slower_, help_) \
    {name_, FIELD_DOUBLE, DIMENSION_##dimension_, offset_, min_, max_, true, 0, slower_, help_}
#define COUNT(name_, offset_, min_, max_, fallback_, slower_, help_) \
    {name_, FIELD_INT, DIMENSION_ONE, offset_, min_, max_, false, fallback_, slower_, help_}
#define SWITCH(name_, offset_, fallback_, slower_, help_) \
    {name_, FIELD_BOOL, DIMENSION_ONE, offset_, 0, 1, false, fallback_, slower_, help_}
#define LAST {NULL, FIELD_DOUBLE, DIMENSION_ONE, 0, 0, 0, false, 0, 0, NULL}

/* `base` names another entry of the same table whose values stand in for absent ones; it has no member. */
#define BASE WORD("base", SIZE_MAX, false, "entry whose values are taken where this one has none")

#define A(member) MEMBER(accelerator, member)
static const struct profile_field accelerator_fields[] = {
    BASE,
    NUMBER("peak_fp32_flop_per_s", FLOP_PER_S, A(peak_flop_per_s[RATE_FP32]), 0, 1e18, 0, -1, "dense peak, fp32"),
    NUMBER("peak_tf32_flop_per_s", FLOP_PER_S, A(peak_flop_per_s[RATE_TF32]), 0, 1e18, 0, -1, "dense peak, tf32 tensor"),
    NEEDED("peak_16bit_flop_per_s", FLOP_PER_S, A(peak_flop_per_s[RATE_16BIT]), 1e9, 1e18, -1, "dense peak, bf16/fp16"),
    NUMBER("peak_fp8_flop_per_s", FLOP_PER_S, A(peak_flop_per_s[RATE_FP8]), 0, 1e18, 0, -1, "dense peak, 8 bit"),
    NUMBER("peak_fp4_flop_per_s", FLOP_PER_S, A(peak_flop_per_s[RATE_FP4]), 0, 1e18, 0, -1, "dense peak, 4 bit"),
    NEEDED("hbm_bytes_per_s", BYTES_PER_S, A(hbm_bytes_per_s), 1e8, 1e15, -1, "memory bandwidth"),
    NEEDED("memory_bytes", BYTES, A(memory_bytes), 1e8, 1e13, -1, "memory a program can see"),
    {"sm_count", FIELD_INT, DIMENSION_ONE, A(sm_count), 1, 100000, true, 0, -1, "streaming multiprocessors or compute units"},
    COUNT("default_per_node", A(default_per_node), 1, 100000, 8, 0, "accelerators per node when hw.json does not say"),
    NUMBER("sustained", ONE, A(sustained), 0.01, 1.5, 0.85, -1, "speed of long GEMMs in training / in a short burst"),
    NUMBER("sustained_low", ONE, A(sustained_low), 0, 1.5, 0, -1, "the same for 8- and 4-bit GEMMs; 0 = sustained"),
    NUMBER("mem_eff", ONE, A(mem_eff), 0.01, 1.5, 0.8, -1, "share of memory bandwidth that pointwise kernels reach"),
    NUMBER("kernel_latency_s", SECONDS, A(kernel_latency_s), 0, 1, 3e-6, +1, "shortest kernel on the device"),
    NUMBER("flash2_speed", ONE, A(flash2_speed), 0.05, 2, 1, -1, "FlashAttention-2 achieved / attention forms"),
    NUMBER("attention_mla_backward", ONE, A(attention_mla_backward), 0.1, 100, 3.3, +1,
           "attention backward / forward time, multi-head latent attention"),
    NUMBER("fp8_cast", ONE, A(fp8_cast), 0, 100, 0, +1, "extra bytes of fp8 linears for casts; 0 = in the GEMM form"),
    NUMBER("calibrated_runs", ONE, A(calibrated_runs), 0, 1e9, 0, 0, "runs that the numbers were fitted to"),
    NUMBER("context_bytes", BYTES, A(context_bytes), 0, 1e12, 0, +1, "taken by the driver's context"),
    NUMBER("gemm_workspace_bytes", BYTES, A(gemm_workspace_bytes), 0, 1e11, 0, +1, "workspaces of the GEMM library"),
    WORD("default_link", A(default_link), true, "link between accelerators of a node when hw.json does not say"),
    NUMBER("host_bytes_per_s", BYTES_PER_S, A(host_bytes_per_s), 1e8, 1e15, 25e9, -1, "copies to and from host memory, each way"),
    NUMBER("nic_bytes_per_s", BYTES_PER_S, A(nic_bytes_per_s), 1e6, 1e15, 25e9, -1, "usual NIC per accelerator"),
    SWITCH("lacks_bf16", A(lacks_bf16), 0, 0, "its 16-bit units take fp16 alone (NVIDIA before Ampere)"),
    LAST,
};
#undef A

#define G(member) MEMBER(gemm_form, member)
static const struct profile_field gemm_fields[] = {
    NEEDED("eff", ONE, G(eff), 0.001, 10, -1, "share of the peak that a large GEMM reaches in a burst"),
    NUMBER("t0_s", SECONDS, G(t0_s), 0, 1, 0, +1, "fixed time"),
    NUMBER("pad_m", ONE, G(pad_m), 0, 1e5, 64, +1, "elements added to m"),
    NUMBER("pad_n", ONE, G(pad_n), 0, 1e5, 64, +1, "elements added to n"),
    NUMBER("pad_k", ONE, G(pad_k), 0, 1e5, 100, +1, "elements added to k"),
    NUMBER("throttle", ONE, G(throttle), 0, 2, 0, +1, "exponent of slowing down with time; 0 = none"),
    NUMBER("throttle_s", SECONDS, G(throttle_s), 0, 1e6, 0, -1, "time at which slowing down begins"),
    NUMBER("round_m", ONE, G(round_m), 0, 1, 0, +1, "share of the way to a multiple of 128 that m is rounded up"),
    NUMBER("tail", ONE, G(tail), 0, 1, 0, +1, "share of the last wave of tiles that is paid where it is not full; at most round_m counts"),
    NUMBER("wgrad", ONE, G(wgrad), 0.1, 10, 1.06, +1, "time of the weight gradient / forward"),
    LAST,
};
#undef G

#define T(member) MEMBER(attention_form, member)
static const struct profile_field attention_fields[] = {
    NEEDED("eff", ONE, T(eff), 0.001, 10, -1, "share of the 16-bit peak at long sequences"),
    NUMBER("s0", ONE, T(s0), 0, 1e6, 0, +1, "tokens of sequence at which the time doubles"),
    NUMBER("waves", ONE, T(waves), 0, 1e4, 0, +1, "waves lost to filling and draining"),
    NUMBER("mem_eff", ONE, T(mem_eff), 0.01, 10, 0.8, -1, "share of memory bandwidth for q, k, v, o"),
    NUMBER("t0_s", SECONDS, T(t0_s), 0, 1, 0, +1, "fixed time"),
    NUMBER("backward", ONE, T(backward), 0.1, 100, 3.0, +1, "backward / forward time"),
    LAST,
};
#undef T

#define X(member) MEMBER(expert_form, member)
static const struct profile_field expert_fields[] = {
    NEEDED("eff", ONE, X(eff), 0.001, 10, -1, "share of the peak at many tokens per expert"),
    NUMBER("pad_m", ONE, X(pad_m), 0, 1e5, 250, +1, "tokens added per expert: reading its weights"),
    NUMBER("t0_s", SECONDS, X(t0_s), 0, 1, 0, +1, "fixed time"),
    NUMBER("act_mem_eff", ONE, X(act_mem_eff), 0.01, 10, 0.8, -1, "share of memory bandwidth for activations"),
    NUMBER("wgrad", ONE, X(wgrad), 0.1, 10, 1.2, +1, "time of the weight gradient / forward"),
    LAST,
};
#undef X

#define L(member) MEMBER(link_profile, member)
static const struct profile_field link_fields[] = {
    BASE,
    LINK_CLASS(L(link_class)),
    NEEDED("bytes_per_s", BYTES_PER_S, L(bytes_per_s), 1e6, 1e15, -1, "per accelerator, one direction, peak"),
    NUMBER("efficiency", ONE, L(efficiency), 0.001, 1.5, 0.8, -1, "bus bandwidth of large collectives / peak"),
    NUMBER("latency_s", SECONDS, L(latency_s), 0, 1, 8e-6, +1, "of one collective"),
    NUMBER("hop_s", SECONDS, L(hop_s), 0, 1, 1e-6, +1, "per step of a ring"),
    SWITCH("full_mesh", L(full_mesh), 1, -1, "every pair at full rate"),
    LAST,
};
#undef L

/* Lines of struct alpha_beta; gathered by profile.c, so no member. */
static const struct profile_field alpha_beta_fields[] = {
    NEEDED("alpha_s", SECONDS, SIZE_MAX, 0, 10, +1, "fixed time of the line"),
    NUMBER("bytes_per_s", BYTES_PER_S, SIZE_MAX, 1e3, 1e16, 0, -1, "slope in bus bytes (nccl-tests busbw)"),
    NUMBER("algorithm_bytes_per_s", BYTES_PER_S, SIZE_MAX, 1e3, 1e16, 0, -1, "slope in bytes of the array (nccl-tests algbw)"),
    NUMBER("from_bytes", BYTES, SIZE_MAX, 0, 1e15, 0, 0, "bus bytes from which on the line holds, up to the next such line's"),
    LAST,
};

#define F(member) MEMBER(fabric_profile, member)
static const struct profile_field fabric_fields[] = {
    BASE,
    LINK_CLASS(F(link_class)),
    NEEDED("ar_a_s", SECONDS, F(ar_a_s), 0, 1, +1, "all-reduce, first line: fixed time"),
    NEEDED("ar_h1_s", SECONDS, F(ar_h1_s), 0, 1, +1, "all-reduce, first line: per log2(nodes)"),
    NEEDED("ar_b1", BYTES_PER_S, F(ar_b1), 1e6, 1e15, -1, "all-reduce, first line: bus bandwidth of a node"),
    NEEDED("ar_h2_s", SECONDS, F(ar_h2_s), 0, 1, +1, "all-reduce, second line: per log2(nodes)"),
    NEEDED("ar_b2", BYTES_PER_S, F(ar_b2), 1e6, 1e15, -1, "all-reduce, second line: bus bandwidth of a node"),
    NEEDED("ar_h3_s", SECONDS, F(ar_h3_s), 0, 1, +1, "all-reduce, third line: per log2(nodes)"),
    NEEDED("ar_eta", ONE, F(ar_eta), 0.01, 2, -1, "all-reduce, third line: share of the node line"),
    NUMBER("ar_two_node_line_ratio", ONE, F(ar_two_node_line_ratio), 0.01, 10, 1, -1,
           "two nodes: most bus bandwidth / node line (trees)"),
    NUMBER("ar_two_node_h3_s", SECONDS, F(ar_two_node_h3_s), 0, 1, 0, +1, "two nodes: fixed time of the third line; 0 = ar_h3_s"),
    NUMBER("ar_two_node_h2_s", SECONDS, F(ar_two_node_h2_s), 0, 1, 0, +1, "two nodes: fixed time of the second line; 0 = ar_h2_s"),
    NUMBER("ar_two_node_b2", BYTES_PER_S, F(ar_two_node_b2), 0, 1e15, 0, -1, "two nodes: slope of the second line; 0 = ar_b2"),
    NUMBER("ring_small_b", BYTES_PER_S, F(ring_small_b), 1e6, 1e15, 22e9, -1, "ring, small sizes: bus bandwidth of a node"),
    NEEDED("ring_base_s", SECONDS, F(ring_base_s), 0, 1, +1, "ring: fixed time"),
    NEEDED("ring_hop_s", SECONDS, F(ring_hop_s), 0, 1, +1, "ring: per rank"),
    NEEDED("ring_eta", ONE, F(ring_eta), 0.01, 2, -1, "ring: share of the node line"),
    NUMBER("ring_single_hop_s", SECONDS, F(ring_single_hop_s), 0, 1, 14e-6, +1, "ring: per rank with one accelerator per node"),
    NUMBER("ring_floor_s", SECONDS, F(ring_floor_s), 0, 1, 30e-6, +1, "ring, small sizes: least fixed time"),
    NUMBER("ring_small_base_s", SECONDS, F(ring_small_base_s), 0, 1, 9.24e-6, +1, "ring, small sizes: fixed time"),
    NUMBER("ring_small_intra_s", SECONDS, F(ring_small_intra_s), 0, 1, 1.4e-6, +1, "ring, small sizes: per step in a node"),
    NUMBER("ring_small_inter_s", SECONDS, F(ring_small_inter_s), 0, 1, 3.78e-6, +1, "ring, small sizes: per step between nodes"),
    NEEDED("a2a_base_s", SECONDS, F(a2a_base_s), 0, 1, +1, "all-to-all: fixed time"),
    NEEDED("a2a_hop_s", SECONDS, F(a2a_hop_s), 0, 1, +1, "all-to-all: per rank"),
    NEEDED("a2a_eta", ONE, F(a2a_eta), 0.01, 2, -1, "all-to-all: share of the node line"),
    NEEDED("p2p_base_s", SECONDS, F(p2p_base_s), 0, 1, +1, "send/receive: fixed time"),
    NEEDED("p2p_eta", ONE, F(p2p_eta), 0.01, 2, -1, "send/receive: share of the NIC"),
    NUMBER("p2p_channel_bytes_per_s", BYTES_PER_S, F(p2p_channel_bytes_per_s), 1e6, 1e15, 10e9, -1, "send/receive: one channel"),
    NUMBER("p2p_channels", ONE, F(p2p_channels), 1, 64, 2, -1, "send/receive: channels per peer"),
    NEEDED("rail_eta", ONE, F(rail_eta), 0.01, 2, -1, "groups with one rank per node: share of the NIC"),
    NEEDED("reference_line_bytes_per_s", BYTES_PER_S, F(reference_line_bytes_per_s), 1e6, 1e15, 0,
           "node line for which ar_b1 and ar_b2 hold"),
    NUMBER("node_cap_bytes_per_s", BYTES_PER_S, F(node_cap_bytes_per_s), 0, 1e15, 0, 0, "most that a node's line counts for; 0 = none"),
    LAST,
};
#undef F

#define S(member) MEMBER(stack, member)
static const struct profile_field stack_fields[] = {
    BASE,
    NEEDED("host_launch_s", SECONDS, S(host_launch_s), 0, 1, +1, "host time per kernel launch"),
    NEEDED("pointwise", ONE, S(pointwise), 0.1, 100, +1, "bytes of memory-bound ops / one fused pass each"),
    NUMBER("norm_passes", ONE, S(norm_passes), 0.5, 20, 1, +1, "passes of a norm over memory: 1 fused, 5 eager"),
    NUMBER("permute", ONE, S(permute), 0.1, 100, 1, +1, "bytes of routing and permutation / one pass each"),
    NEEDED("attention_speed", ONE, S(attention_speed), 0.01, 10, -1, "attention achieved / kernel table"),
    NEEDED("gemm_speed", ONE, S(gemm_speed), 0.01, 10, -1, "GEMM achieved / kernel table"),
    NUMBER("collective_speed", ONE, S(collective_speed), 0.01, 10, 1, -1, "collectives achieved / measured curves"),
    NUMBER("dp_collective_speed", ONE, S(dp_collective_speed), 0, 10, 0, -1, "those of parameters and gradients; 0 = as the others"),
    NEEDED("overlap_slowdown", ONE, S(overlap_slowdown), 0, 10, +1, "compute slows by this share beside a collective"),
    NUMBER("step_overhead_s", SECONDS, S(step_overhead_s), 0, 100, 0, +1, "per optimizer step"),
    NUMBER("micro_batch_overhead_s", SECONDS, S(micro_batch_overhead_s), 0, 100, 0, +1, "per micro-batch and stage"),
    NUMBER("main_grad_bytes", ONE, S(main_grad_bytes), 1, 8, 4, +1, "bytes per parameter of accumulated gradients"),
    NUMBER("fragmentation", ONE, S(fragmentation), 0, 2, 0.03, +1, "reserved / allocated memory - 1"),
    NUMBER("communicator_bytes", BYTES, S(communicator_bytes), 0, 1e12, 0, +1, "per communicator"),
    SWITCH("fused_cross_entropy", S(fused_cross_entropy), 0, 0, "cross-entropy in one pass"),
    SWITCH("sharded_per_layer", S(sharded_per_layer), 0, 0, "gathers and shards parameters per layer (FSDP)"),
    NUMBER("cross_entropy_copies", ONE, S(cross_entropy_copies), 0, 20, 2, +1, "buffers of 4 bytes per logit alive at once"),
    SWITCH("gathered_logits", S(gathered_logits), 0, 0, "the loss sees all of the vocabulary on every tensor-parallel rank"),
    SWITCH("keeps_gathered", S(keeps_gathered), 0, 0, "sequence parallelism: gathered inputs of linears are kept"),
    SWITCH("wgrad_stand_in", S(wgrad_stand_in), 0, 0, "16-bit stand-ins of weight gradients that the GEMM accumulates"),
    SWITCH("whole_tensors", S(whole_tensors), 0, 0, "ZeRO-1 reduces and broadcasts tensor by tensor"),
    SWITCH("all_reduces", S(all_reduces), 0, 0, "ZeRO-1 sums whole gradients by an all-reduce in fp32"),
    SWITCH("flash2", S(flash2), 0, 0, "fused attention is FlashAttention-2, whatever the accelerator"),
    SWITCH("eager_activation", S(eager_activation), 0, 0, "a gated activation of two kernels keeps what is between them"),
    NUMBER("score_kept_bytes", ONE, S(score_kept_bytes), 1, 32, 6, +1, "per attention score of an eager softmax without dropout"),
    NUMBER("optimizer_temporary_bytes", ONE, S(optimizer_temporary_bytes), 0, 32, 0, +1, "per updated parameter, during the optimizer's step"),
    NUMBER("workspace_bytes", BYTES, S(workspace_bytes), 0, 1e11, 0, +1, "masks, random states, buffers of the framework"),
    NUMBER("norm_kept_bytes", ONE, S(norm_kept_bytes), 0, 32, 0, +1, "per element, kept by an unfused norm beside input and output"),
    SWITCH("counted_buffers", S(counted_buffers), 0, 0, "planexec: activations and temporaries are its executor's own buffers"),
    LAST,
};
#undef S

static const struct profile_field kernel_point_fields[] = {
    NEEDED("time_s", SECONDS, SIZE_MAX, 1e-9, 1e6, +1, "measured time of one call"),
    LAST,
};

static const struct profile_field residual_fields[] = {
    NUMBER("factor", ONE, SIZE_MAX, 0.01, 100, 1, +1, "measured / predicted"),
    NUMBER("low", ONE, SIZE_MAX, 0.01, 100, 0.8, +1, "measured / predicted that 10 % of runs stay below"),
    NUMBER("high", ONE, SIZE_MAX, 0.01, 100, 1.25, +1, "measured / predicted that 10 % of runs exceed"),
    LAST,
};

const struct profile_field *profile_fields(enum profile_section section)
{
    static const struct profile_field *const all[SECTIONS] = {
        [SECTION_ACCELERATOR] = accelerator_fields, [SECTION_GEMM] = gemm_fields,
        [SECTION_ATTENTION] = attention_fields,     [SECTION_EXPERT] = expert_fields,
        [SECTION_LINK] = link_fields,               [SECTION_ALPHA_BETA] = alpha_beta_fields,
        [SECTION_FABRIC] = fabric_fields,           [SECTION_STACK] = stack_fields,
        [SECTION_KERNEL_POINT] = kernel_point_fields, [SECTION_RESIDUAL] = residual_fields,
    };
    return all[section];
}

const struct profile_field *profile_field_find(enum profile_section section, const char *name)
{
    for (const struct profile_field *field = profile_fields(section); field->name != NULL; field++) {
        if (strcmp(field->name, name) == 0)
            return field;
    }
    return NULL;
}

static const struct {
    const char *name;
    enum profile_dimension dimension;
    double factor;
} units[] = {
    {"1", DIMENSION_ONE, 1},
    {"s", DIMENSION_SECONDS, 1},
    {"ms", DIMENSION_SECONDS, 1e-3},
    {"us", DIMENSION_SECONDS, 1e-6},
    {"ns", DIMENSION_SECONDS, 1e-9},
    {"B", DIMENSION_BYTES, 1},
    {"MB", DIMENSION_BYTES, 1e6},
    {"GB", DIMENSION_BYTES, 1e9},
    {"MiB", DIMENSION_BYTES, 1048576.0},
    {"GiB", DIMENSION_BYTES, 1073741824.0},
    {"B/s", DIMENSION_BYTES_PER_S, 1},
    {"MB/s", DIMENSION_BYTES_PER_S, 1e6},
    {"GB/s", DIMENSION_BYTES_PER_S, 1e9},
    {"TB/s", DIMENSION_BYTES_PER_S, 1e12},
    {"Gbit/s", DIMENSION_BYTES_PER_S, 1.25e8},
    {"FLOP/s", DIMENSION_FLOP_PER_S, 1},
    {"GFLOP/s", DIMENSION_FLOP_PER_S, 1e9},
    {"TFLOP/s", DIMENSION_FLOP_PER_S, 1e12},
    {"PFLOP/s", DIMENSION_FLOP_PER_S, 1e15},
    {"name", DIMENSION_NAME, 1},
};
enum { UNITS = sizeof(units) / sizeof(units[0]) };

double profile_unit_factor(const char *unit, enum profile_dimension dimension)
{
    for (int i = 0; i < UNITS; i++) {
        if (units[i].dimension == dimension && strcmp(units[i].name, unit) == 0)
            return units[i].factor;
    }
    return 0;
}

const char *profile_unit_si(enum profile_dimension dimension)
{
    int i = 0;
    while (units[i].dimension != dimension)
        i++;
    return units[i].name;
}

const char *profile_unit_list(enum profile_dimension dimension, char *buffer, size_t size)
{
    const char *names[UNITS + 1];
    int n = 0;
    for (int i = 0; i < UNITS; i++) {
        if (units[i].dimension == dimension)
            names[n++] = units[i].name;
    }
    names[n] = NULL;
    return names_join(names, buffer, size);
}

void profile_field_set(const struct profile_field *field, void *object, double value, const char *text)
{
    if (field->offset == SIZE_MAX)
        return;
    char *at = (char *)object + field->offset;
    switch (field->type) {
    case FIELD_DOUBLE:
        *(double *)at = value;
        break;
    case FIELD_INT:
        *(int *)at = (int)value;
        break;
    case FIELD_BOOL:
        *(bool *)at = value > 0;
        break;
    case FIELD_TEXT:
        snprintf(at, sizeof(((struct accelerator *)0)->default_link), "%s", text);
        break;
    case FIELD_LINK_CLASS:
        *(enum link_class *)at = (enum link_class)names_find(link_class_names, text);
        break;
    }
}

double profile_field_get(const struct profile_field *field, const void *object)
{
    if (field->offset == SIZE_MAX)
        return (double)NAN;
    const char *at = (const char *)object + field->offset;
    switch (field->type) {
    case FIELD_DOUBLE:
        return *(const double *)at;
    case FIELD_INT:
        return *(const int *)at;
    case FIELD_BOOL:
        return *(const bool *)at;
    case FIELD_TEXT:
    case FIELD_LINK_CLASS:
        break;
    }
    return (double)NAN;
}

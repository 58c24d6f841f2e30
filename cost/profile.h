/* What is known of accelerators, links, fabrics and software stacks: numbers
 * with provenance, kept in SQLite, loaded once into plain arrays (the one place
 * that includes sqlite3). Nothing here is touched per plan but the resolved
 * structs below.
 *
 * The default profile is built at build time from the text files of hwprofiles/
 * and found without any option (beside the build, beside the installed binary,
 * or $PLANSIM_PROFILE); a user's own file is layered over it row by row, but
 * curves of collectives whole: what was measured of an operation over so many
 * ranks replaces all lines below it.
 *
 * Units in names; SI. The structs own no memory and may be copied. */
#ifndef COST_PROFILE_H
#define COST_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cost/precision.h"

struct err;

enum provenance { PROVENANCE_MEASURED, PROVENANCE_PUBLISHED, PROVENANCE_DATASHEET, PROVENANCE_ASSUMED, PROVENANCES };
extern const char *const provenance_names[]; /* "measured","published","datasheet","assumed", NULL */

/* GEMM m x n x k:
 *   t = t0 + 2 ((m'+pad_m)(n+pad_n) + tail idle) (k+pad_k) / (peak * eff), then * (1 + t/throttle_s)^throttle
 * with m' = m + round_m (128 ceil(m/128) - m), W = ceil(m/128) n/128 / multiprocessors waves of tiles, and idle =
 * 128 x 128 multiprocessors (ceil(W) - W) min(1, W/0.3): tiles that are begun are done, and the last wave is not full
 * (shared/design/cost-model.md section 1; round_m = tail = 0: forms P5 and P7; with both RT9, but with n as it is in W, idle
 * tiles without the pads, and tail no more than round_m, so that no product is faster for being larger). One per rate class. */
struct gemm_form {
    double eff, t0_s, pad_m, pad_n, pad_k, throttle, throttle_s; /* throttle 0 = none; eff 0 = unknown */
    double round_m, tail;                                        /* 0 = none */
    double wgrad;                                                /* time factor of wgrad with fp32 accumulation, e.g. 1.06 */
    enum provenance provenance;
};

/* Flash attention forward, causal, s x s per head:
 *   t = t0 + F (1+s0/s)(1+waves/W) / (peak_16bit * eff) + bytes/(mem_eff * hbm)
 *   F = 2 b h s^2 d (causal half), W = b h ceil(s/128)/SMs, bytes = 2(2bshd + 4bs h_kv d). */
struct attention_form {
    int head_dim;
    double eff, s0, waves, mem_eff, t0_s;
    double backward; /* backward/forward time ratio */
    enum provenance provenance;
};

/* Routed experts of one rank (E local experts, M tokens each):
 *   t = t0 + E 2 (M+pad_m)(n+pad_n)(k+pad_k) / (peak * eff), pads on n and k and throttle of the dense form;
 * wgrad: the factor, without pad_m, and the gradients read and written. */
struct expert_form {
    double eff, pad_m, t0_s, act_mem_eff, wgrad;
    enum provenance provenance;
};

enum collective_op { COLLECTIVE_ALL_REDUCE, COLLECTIVE_ALL_GATHER, COLLECTIVE_REDUCE_SCATTER, COLLECTIVE_ALL_TO_ALL, COLLECTIVE_P2P, COLLECTIVE_OPS };
extern const char *const collective_names[]; /* "all_reduce", ... NULL */
/* nccl-tests' bus factor: V = S times this. */
double collective_bus_factor(enum collective_op op, double ranks);

/* t = min over lines of alpha_s + V / bytes_per_s, V = bus bytes of the operation
 * (all-reduce 2(n-1)/n S, all-gather/reduce-scatter/all-to-all (n-1)/n S, p2p S;
 * S = full array, nccl-tests' "size"). Where buffers outgrow a cache the rate falls
 * with size: lines with from_bytes hold from that V to the next such line's. */
struct alpha_beta_line {
    double alpha_s, bytes_per_s, from_bytes;
};
struct alpha_beta {
    int ranks;   /* of the measurement */
    int nodes;   /* that it was spread over evenly; 0 inside a node, and of a network: whole nodes */
    int n_lines; /* 1..3 */
    struct alpha_beta_line line[3];
    enum provenance provenance;
};
enum { ALPHA_BETA_RANKS_MAX = 16 };

/* An intra-node (NVLink, PCIe, Infinity Fabric) domain, per accelerator and direction. */
enum link_class { LINK_NVLINK, LINK_PCIE, LINK_XGMI, LINK_IB, LINK_ROCE, LINK_EFA, LINK_SLINGSHOT, LINK_ETHERNET, LINK_CLASSES };
extern const char *const link_class_names[]; /* "nvlink","pcie","xgmi","ib","roce","efa","slingshot","ethernet", NULL */

struct link_profile {
    char name[48];
    enum link_class link_class;
    double bytes_per_s;  /* per accelerator, one direction, peak */
    double efficiency;   /* asymptotic bus bandwidth / peak for collectives */
    double latency_s;    /* base latency of a collective */
    double hop_s;        /* per ring step */
    bool full_mesh;      /* every pair at full rate (NVSwitch); false: PCIe tree, hybrid cube mesh */
    /* measured curves of this link with a given accelerator, by op and rank count, increasing ranks */
    int n_curves[COLLECTIVE_OPS];
    struct alpha_beta curve[COLLECTIVE_OPS][ALPHA_BETA_RANKS_MAX];
    enum provenance provenance;
};

/* A network between nodes: constants of one class (internode/summary.md section 6).
 *   all-reduce: t = min(a + h1 L + V/B1, h2 L + V/B2, h3 L + V/B3), L = log2(nodes), B3 = eta*line
 *   all-gather/reduce-scatter (ring): t = min(max(floor_s, ...) + V/Bsmall, ring_base + ring_hop n + V/(ring_eta line))
 *   all-to-all: t = a2a_base + a2a_hop n + S (N-1)/N / (a2a_eta line/p)
 *   p2p: t = p2p_base + S / min(p2p_eta NIC, channel_bytes_per_s * channels)
 * Curves measured on this network stand in for these where a group is shaped like theirs (collective.c). */
struct fabric_profile {
    char name[48];
    enum link_class link_class;
    double ar_a_s, ar_h1_s, ar_b1, ar_h2_s, ar_b2, ar_h3_s, ar_eta;
    double ar_two_node_line_ratio;  /* cap of B3 relative to line for two nodes (trees): 1.9 IB, 1 ring */
    double ar_two_node_h3_s;
    double ar_two_node_h2_s, ar_two_node_b2;                 /* second line for two nodes; 0 = as for more nodes */
    double ring_small_b, ring_base_s, ring_hop_s, ring_eta, ring_single_hop_s; /* single: one GPU per node */
    double ring_floor_s, ring_small_base_s, ring_small_intra_s, ring_small_inter_s; /* first branch: max(floor,
                                                    base + intra (n-N) + inter (N-1)) + V/ring_small_b, V/B in node line */
    double a2a_base_s, a2a_hop_s, a2a_eta;
    double p2p_base_s, p2p_eta;
    double p2p_channel_bytes_per_s, p2p_channels; /* a send is no faster than channel rate x channels per peer */
    double node_cap_bytes_per_s; /* the most that one node's line can count for, whatever its NICs (sockets); 0 = none */
    double rail_eta;                /* groups with one rank per node */
    double reference_line_bytes_per_s; /* node line for which B1, B2 hold; they scale with min(1, line/reference) */
    /* measured curves of this network with a given accelerator, by op and shape, increasing ranks, then nodes */
    int n_curves[COLLECTIVE_OPS];
    struct alpha_beta curve[COLLECTIVE_OPS][ALPHA_BETA_RANKS_MAX];
    enum provenance provenance;
};

struct profile; /* opaque: all layers merged */

struct accelerator {
    char name[48];
    double peak_flop_per_s[RATES]; /* dense tensor peaks; 0 = the accelerator has none */
    double hbm_bytes_per_s, memory_bytes;
    int sm_count;
    int default_per_node;
    double sustained;              /* training speed / burst speed of long GEMMs (power cap), e.g. 0.85 */
    double sustained_low;          /* the same for 8- and 4-bit GEMMs; 0 = sustained */
    double mem_eff;                /* share of hbm_bytes_per_s that pointwise kernels reach */
    double kernel_latency_s;       /* device-side floor of one kernel */
    struct gemm_form gemm[RATES];
    int n_attention;
    struct attention_form attention[8];
    double attention_mla_backward;
    double flash2_speed;           /* FlashAttention-2 / the fastest fused attention, which the forms were fitted to */
    struct expert_form expert[RATES];
    double fp8_cast;               /* extra time of fp8 linears for casts and transposes, as bytes factor; 0 = included in gemm form */
    double calibrated_runs;        /* published runs that the numbers of this very accelerator were fitted to, not of its base; 0 = none */
    double context_bytes;          /* CUDA context */
    double gemm_workspace_bytes;   /* of the GEMM library, from the framework's allocator */
    char default_link[48];         /* e.g. "nvlink4" */
    double host_bytes_per_s;       /* copies between accelerator and host memory, one direction */
    double nic_bytes_per_s;        /* usual NIC rate per accelerator */
    bool lacks_bf16;               /* its 16-bit units take fp16 alone */
    enum provenance provenance;    /* the weakest of what was used */
    /* The profile when it holds measured GEMMs of this very accelerator (kernel_point rows: they replace the form
     * for their shape), else NULL. Must outlive this struct. */
    const struct profile *points;
};

/* Situations in which predictions are as good as each other: dense or with experts, one node or more. */
enum { SPREAD_MOE = 2, SPREAD_NODES = 2 };
struct factor_range {
    double low, high; /* measured / predicted: 80 % of runs lie between */
};

/* A software stack: which ops are fused, what the host costs, what overlaps. */
struct stack {
    char name[32];
    double host_launch_s;        /* host time per kernel launch (eager); CUDA graphs ~0 */
    double pointwise;            /* bytes moved by norms, activations, residuals, rotary relative to one fused pass each */
    double norm_passes;          /* a norm's passes over memory: 1 fused, 5 in eager fp32 */
    double permute;              /* bytes moved by routing, permutation and its inverse / one pass each */
    double attention_speed;      /* achieved / flash kernel table */
    double gemm_speed;           /* achieved / GEMM table (layout, heuristics) */
    double collective_speed;     /* achieved / measured curves of collectives, inside and between nodes */
    double dp_collective_speed;  /* the same of parameters and gradients between data-parallel ranks; 0 = collective_speed */
    double overlap_slowdown;     /* compute slows by this factor while a collective runs beside it, e.g. 0.1 */
    double step_overhead_s;      /* per optimizer step: data, logging, grad-norm syncs */
    double micro_batch_overhead_s; /* per micro-batch and stage */
    double main_grad_bytes;      /* bytes per parameter of accumulated gradients: 4 or 2 */
    struct factor_range spread[SPREAD_MOE][SPREAD_NODES]; /* [with experts][more than one node] */
    double fragmentation;        /* reserved / allocated - 1 */
    double communicator_bytes;   /* per NCCL communicator */
    bool fused_cross_entropy;
    bool sharded_per_layer;      /* FSDP: gathers and shards per layer (zero 3 semantics) */
    double cross_entropy_copies; /* buffers of 4 bytes per logit alive at once */
    bool gathered_logits;        /* every tensor-parallel rank has all of the vocabulary's logits */
    bool keeps_gathered;         /* sequence parallelism: the gathered inputs of column-parallel linears are kept, not gathered again */
    bool wgrad_stand_in;         /* a 16-bit tensor of each weight shape stands for gradients that were added to fp32 ones in the GEMM */
    bool whole_tensors;          /* ZeRO-1 gives whole tensors to their owners: one reduce and one broadcast each */
    bool all_reduces;            /* ZeRO-1 sums whole gradients by an all-reduce in fp32, from and to flat copies, before its gather */
    bool flash2;                 /* fused attention is FlashAttention-2, on every accelerator */
    bool eager_activation;       /* a gated activation keeps its first factor too */
    double score_kept_bytes;     /* per attention score of an eager softmax without dropout: fp32 and 16-bit copies */
    double optimizer_temporary_bytes; /* per updated parameter, of an unfused optimizer: fp32 gradients, intermediate results */
    double norm_kept_bytes;      /* per element, of an unfused norm beside its 16-bit input and output */
    bool counted_buffers;        /* planexec: memory is the sum of the executor's own buffers (memory.h) */
    double workspace_bytes;      /* the framework's own, from its allocator: masks, random states, buffers */
    enum provenance provenance;
};


/* path_override NULL = the default one. */
int profile_open(const char *path_override, struct profile **ret, struct err *err);
/* Layers the user's file over it; the file is only read. */
int profile_layer(struct profile *profile, const char *path, struct err *err);
void profile_close(struct profile *profile);
const char *profile_name(const struct profile *profile);
const char *profile_sha256(const struct profile *profile); /* hex of the merged content, 64 digits */

/* Unknown names are refused with the nearest and the list of known ones. */
int profile_accelerator(const struct profile *profile, const char *name, struct accelerator *ret, struct err *err);
/* Curves measured for `accelerator` on this link or network are taken in, those of each operation from the first of accelerator,
 * its base, the base of that, ... and "any" that has some; accelerator may be NULL. */
int profile_link(const struct profile *profile, const char *name, const char *accelerator, struct link_profile *ret, struct err *err);
int profile_fabric(const struct profile *profile, const char *name, const char *accelerator, struct fabric_profile *ret, struct err *err);
int profile_stack(const struct profile *profile, const char *name, struct stack *ret, struct err *err);

/* An exact measured shape of the profile, seconds, or 0 when it is not there; kernel: "gemm", or "wgrad" for products
 * that are added to the gradient of an m x n weight. */
double profile_point_s(const struct profile *profile, const char *accelerator, const char *kernel, enum rate rate, int64_t m, int64_t n, int64_t k);

#endif

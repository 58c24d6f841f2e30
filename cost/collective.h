/* Collective operation x group x links -> seconds.
 *
 * bytes is nccl-tests' "size" S: the full array for all-gather and
 * reduce-scatter, the per-rank buffer for all-reduce and all-to-all, the message
 * for point to point. A group of one rank costs nothing. Curves measured inside the
 * node, and on the network between nodes for groups shaped like the measured one,
 * are the price (collective.c); formulas where nothing was measured. */
#ifndef COST_COLLECTIVE_H
#define COST_COLLECTIVE_H

#include "cost/cluster.h"
#include "cost/profile.h"

double collective_s(const struct cluster *cluster, const struct span *span, enum collective_op op, double bytes);

/* How a token's experts lie over a group of ranks: `chosen` of them, spread evenly, or out of `limit` of `groups` groups of
 * neighbouring experts alone (DeepSeek-V3's node-limited routing; groups 1 = anywhere). */
struct routing {
    int chosen, groups, limit;
};
/* Ranks, or nodes, of `places` that hold a token's experts, on average. */
double routing_places(const struct routing *routing, double places);

/* Expert dispatch or combine that sends one copy of a token per node and, inside the node, one per rank (DeepEP,
 * HybridEP): tokens rows of row_bytes. link_share: what the kernels reach inside a node / NCCL's all-to-all. */
double collective_dispatch_s(const struct cluster *cluster, const struct span *span, double tokens, double row_bytes,
                             const struct routing *routing, double link_share);

/* What is left of a collective beside `cover` seconds of compute, the compute's
 * slowdown included. */
double beside_cover(double collective_seconds, double cover_seconds, double slowdown);

#endif

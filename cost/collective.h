/* Collective operation x group x links -> seconds.
 *
 * bytes is nccl-tests' "size" S: the full array for all-gather and
 * reduce-scatter, the per-rank buffer for all-reduce and all-to-all, the message
 * for point to point. A group of one rank costs nothing. */
#ifndef COST_COLLECTIVE_H
#define COST_COLLECTIVE_H

#include "cost/cluster.h"
#include "cost/profile.h"

double collective_s(const struct cluster *cluster, const struct span *span, enum collective_op op, double bytes);

/* Expert dispatch or combine that sends one copy of a token per node and, inside
 * the node, one per rank (DeepEP, HybridEP): tokens rows of row_bytes, each to
 * experts_per_token experts spread evenly over the group; at most max_nodes nodes
 * (node-limited routing; 0 = no limit). */
double collective_dispatch_s(const struct cluster *cluster, const struct span *span, double tokens, double row_bytes, int experts_per_token,
                             int max_nodes);

/* What is left of a collective beside `cover` seconds of compute, the compute's
 * slowdown included. */
double beside_cover(double collective_seconds, double cover_seconds, double slowdown);

#endif

/* Parts of cluster_span: digits of the mixed radix of ranks, and the walk over all
 * instances of a group. Closed forms: group_span.c; walk: group_walk.c. */
#ifndef COST_GROUP_SPAN_H
#define COST_GROUP_SPAN_H

#include "cost/cluster.h"

enum { DIGITS_MAX = GROUP_DIMS_MAX + 1 };

/* A digit: indices 0..size-1, each `stride` apart. */
struct digit {
    int64_t size, stride;
};

/* In ascending order of stride, no two contiguous. */
struct digits {
    int n;
    struct digit at[DIGITS_MAX];
};

int64_t digits_product(const struct digits *d); /* members */
int64_t digits_top(const struct digits *d);     /* size x stride of the highest; 1 when none */
int64_t digits_reach(const struct digits *d);   /* from the first member to the last */

/* Per node: all NICs; what `members` of one of `instances` get of them. */
double span_line(const struct node_group *group);
double span_rate(const struct node_group *group, int instances, int64_t members);
/* All uplinks of a leaf. */
double span_uplink(const struct node_group *group);
/* Inside one node: the slowest of the node groups that `world` ranks use. */
struct span span_inside(const struct cluster *cluster, int64_t ranks, int64_t world);
struct span span_in_group(const struct cluster *cluster, int group, int64_t ranks);

/* Any group, by walking. whole_nodes: digits and `world` count nodes, and each node holds `weight` members;
 * otherwise they count ranks, and weight is 1. */
struct span span_walk(const struct cluster *cluster, const struct digits *d, int64_t world, bool whole_nodes,
                      int weight);
struct span span_walk_hops(const struct cluster *cluster, struct digit pipeline, int64_t world);

#endif

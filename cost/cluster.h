/* A cluster as hw.json describes it (contract.md): accelerators, nested links,
 * node groups; and how a process group lies on it.
 *
 * Levels: node (NVLink/PCIe domain, `accelerators_per_node`) < leaf (nodes that
 * reach each other without oversubscription, `nodes_per_leaf`) < spine. Ranks
 * are placed node by node, group by group, in the order of hw.json.
 * Rates are bytes per second, one direction. The struct owns no memory. */
#ifndef COST_CLUSTER_H
#define COST_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "cost/profile.h"

struct err;
struct json;
struct profile;

enum { CLUSTER_GROUPS_MAX = 8 };

struct node_group {
    int64_t nodes;
    int accelerators_per_node;
    struct accelerator accelerator;
    struct link_profile intra;
    struct fabric_profile fabric;
    int nics_per_node;
    double nic_bytes_per_s; /* one NIC */
    bool rdma;
    double oversubscription; /* >= 1, applies between leaves */
    int64_t nodes_per_leaf;  /* 0 = one leaf */
};

struct span_cache;

struct cluster {
    char name[128];
    int64_t accelerators; /* in all */
    int n_groups;
    struct node_group group[CLUSTER_GROUPS_MAX];
    struct accelerator accelerator; /* the slowest member: every field the worst of the groups */
    double usable_memory;           /* default limit: share of memory_bytes, 0.94 */
    double price_per_accelerator_hour, mtbf_hours_per_accelerator; /* 0 = not stated */
    struct span_cache *spans;       /* spans once found, of one world size; the owner's, NULL = none; never shared by threads */
    double link_quality;            /* knob on network bandwidth: 1 sound default, 0.8 average cloud, ... */
};

/* A set of ranks: all sums of i_d * stride_d, 0 <= i_d < size_d, plus a base. */
enum { GROUP_DIMS_MAX = 6 };
struct rank_group {
    int n_dims;
    struct { int64_t size, stride; } dim[GROUP_DIMS_MAX];
};

/* How the worst instance of a group lies on the cluster (over all instances):
 * one that crosses nodes before one that does not, then the one with the least
 * nic_bytes_per_s x ar_eta (inside a node: with the slowest link), then the one
 * on most nodes, then one that crosses a leaf, then the first. */
struct span {
    int64_t ranks;          /* members */
    int64_t nodes;          /* nodes touched */
    int ranks_per_node;     /* members in one node (the most) */
    int groups_per_node;    /* instances that use the NICs of its weakest node at the same time; 1 inside a node */
    bool crosses_leaf;
    int node_group;         /* index of the node group that bounds it (slowest link) */
    double nic_bytes_per_s; /* NIC rate that one instance can use per node: line * ranks_per_node/accelerators_per_node, after
                               sharing; leaves share their uplinks, which a ring or tree crosses once per leaf */
    double spread_bytes_per_s; /* the same when every node sends to all others evenly (all-to-all): more of it crosses leaves */
    double line_bytes_per_s; /* the whole node's line */
};

/* The network between nodes when hw.json names none: by what joins the accelerators in a node and the rate of a NIC. */
const char *cluster_usual_fabric(enum link_class intra, double nic_bytes_per_s, bool rdma);

int cluster_load(const char *path, const struct profile *profile, struct cluster *ret, struct err *warn, struct err *err);
int cluster_parse(const struct json *root, const char *file, const struct profile *profile, struct cluster *ret, struct err *warn, struct err *err);

/* Room for the spans of a search: a group that does not divide the nodes costs a walk
 * over the world, and few different groups occur. Start with zeros. */
enum { SPAN_CACHE_SIZE = 512 };
struct span_cache {
    struct span_cache_entry {
        bool used, hop;
        struct rank_group group;
        struct span span;
    } entry[SPAN_CACHE_SIZE];
};

/* Exact for any group whose dims are digits of a mixed radix of the ranks (each
 * stride a multiple of the size x stride below it); all instances work at once.
 * Cheap (no enumeration) when sizes and node sizes divide, else O(world). */
void cluster_span(const struct cluster *cluster, const struct rank_group *group, int64_t world, struct span *ret);

/* The worst hop between neighbours of a pipeline (one dim: size stages, stride),
 * all ranks sending at once: ranks 2, and nodes 2 when any hop leaves a node. */
void cluster_hop(const struct cluster *cluster, const struct rank_group *group, int64_t world, struct span *ret);

#endif

/* How a process group lies on a cluster: closed forms.
 *
 * Ranks fill nodes in order. A group is a set of digits of a mixed radix of the
 * rank; the other digits tell its instances apart. If a node holds a whole number
 * of digits (A = accelerators per node splits at most one digit, and evenly), all
 * instances look alike:
 *   ranks_per_node p = product of the group's digits below A,
 *   nodes            = product of the group's digits above A,
 *   groups_per_node  = A / p,   one instance's share of the line = line p / A;
 * and with L nodes per leaf, m of them the group's (its digits between A and A L),
 * uplinks of L line / oversubscription:
 *   a ring or tree leaves the leaf once:      p m line / (A oversubscription),
 *   of an all-to-all (N-m)/N leaves it:       p line N / (A oversubscription (N-m)).
 * What does not divide, and mixed clusters, are walked (group_walk.c). */
#include "cost/group_span.h"

#include <assert.h>

static struct digits sorted_digits(const struct rank_group *group)
{
    struct digits d = {0};
    for (int i = 0; i < group->n_dims; i++) {
        if (group->dim[i].size <= 1)
            continue;
        int at = d.n++;
        for (; at > 0 && d.at[at - 1].stride > group->dim[i].stride; at--)
            d.at[at] = d.at[at - 1];
        d.at[at] = (struct digit){group->dim[i].size, group->dim[i].stride};
    }
    int kept = 0;
    for (int i = 1; i < d.n; i++) {
        int64_t top = d.at[kept].size * d.at[kept].stride;
        assert(d.at[i].stride % top == 0);
        if (d.at[i].stride == top)
            d.at[kept].size *= d.at[i].size;
        else
            d.at[++kept] = d.at[i];
    }
    d.n = d.n > 0 ? kept + 1 : 0;
    return d;
}

int64_t digits_product(const struct digits *d)
{
    int64_t n = 1;
    for (int i = 0; i < d->n; i++)
        n *= d->at[i].size;
    return n;
}

int64_t digits_top(const struct digits *d)
{
    return d->n > 0 ? d->at[d->n - 1].size * d->at[d->n - 1].stride : 1;
}

int64_t digits_reach(const struct digits *d)
{
    int64_t sum = 0;
    for (int i = 0; i < d->n; i++)
        sum += (d->at[i].size - 1) * d->at[i].stride;
    return sum;
}

/* Splits at `unit` (ranks of a node, nodes of a leaf): low inside, high in units. False when it splits no digit evenly. */
static bool split_at(const struct digits *d, int64_t unit, struct digits *low, struct digits *high)
{
    low->n = high->n = 0;
    for (int i = 0; i < d->n; i++) {
        struct digit digit = d->at[i];
        int64_t inside = digit.stride >= unit ? 1 : unit / digit.stride < digit.size ? unit / digit.stride : digit.size;
        if (digit.stride >= unit ? digit.stride % unit != 0
                                 : unit % (digit.stride * inside) != 0 || digit.size % inside != 0)
            return false;
        if (inside > 1)
            low->at[low->n++] = (struct digit){inside, digit.stride};
        if (digit.size / inside > 1)
            high->at[high->n++] = (struct digit){digit.size / inside, digit.stride >= unit ? digit.stride / unit : 1};
    }
    return true;
}

double span_line(const struct node_group *group)
{
    return group->nics_per_node * group->nic_bytes_per_s;
}

double span_uplink(const struct node_group *group)
{
    int64_t nodes = group->nodes_per_leaf > 0 ? group->nodes_per_leaf : group->nodes;
    return (double)nodes * span_line(group) / group->oversubscription;
}

/* A rank drives its own NIC, or its share of the line when NICs are fewer (or more). */
double span_rate(const struct node_group *group, int instances, int64_t members)
{
    double line = span_line(group), per_rank = line / group->accelerators_per_node;
    double own = (double)members * (group->nic_bytes_per_s > per_rank ? group->nic_bytes_per_s : per_rank);
    double shared = line / instances;
    return shared < own ? shared : own;
}

struct span span_in_group(const struct cluster *cluster, int group, int64_t ranks)
{
    double line = span_line(&cluster->group[group]);
    return (struct span){.ranks = ranks,
                         .nodes = 1,
                         .ranks_per_node = (int)ranks,
                         .groups_per_node = 1,
                         .node_group = group,
                         .nic_bytes_per_s = line,
                         .spread_bytes_per_s = line,
                         .line_bytes_per_s = line};
}

struct span span_inside(const struct cluster *cluster, int64_t ranks, int64_t world)
{
    int64_t first = 0;
    int worst = 0;
    for (int i = 1; i < cluster->n_groups; i++) {
        const struct link_profile *here = &cluster->group[i].intra, *least = &cluster->group[worst].intra;
        first += cluster->group[i - 1].nodes * cluster->group[i - 1].accelerators_per_node;
        if (first < world && here->bytes_per_s * here->efficiency < least->bytes_per_s * least->efficiency)
            worst = i;
    }
    return span_in_group(cluster, worst, ranks);
}

static bool same_node_size(const struct cluster *cluster)
{
    for (int i = 1; i < cluster->n_groups; i++) {
        if (cluster->group[i].accelerators_per_node != cluster->group[0].accelerators_per_node)
            return false;
    }
    return true;
}

static double at_most(double value, double limit)
{
    return value < limit ? value : limit;
}

/* The leaves that a group on nodes crosses. Returns false when a leaf splits no digit evenly, else the nodes that the
 * group has in one leaf, 0 when it stays in one. */
static bool leaf_split(const struct node_group *g, const struct digits *nodes, int64_t *ret_in_leaf)
{
    struct digits in_leaf, over_leaves;
    *ret_in_leaf = 0;
    if (g->nodes_per_leaf == 0)
        return true;
    if (!split_at(nodes, g->nodes_per_leaf, &in_leaf, &over_leaves))
        return false;
    if (over_leaves.n > 0)
        *ret_in_leaf = digits_product(&in_leaf);
    return true;
}

static bool uniform_span(const struct node_group *g, const struct digits *high, int64_t p, struct span *ret)
{
    int64_t in_leaf, nodes = digits_product(high);
    if (!leaf_split(g, high, &in_leaf))
        return false;
    int instances = (int)(g->accelerators_per_node / p);
    double rate = span_rate(g, instances, p), leaf_instances = (double)(g->nodes_per_leaf * instances);
    *ret = (struct span){.ranks = p * nodes,
                         .nodes = nodes,
                         .ranks_per_node = (int)p,
                         .groups_per_node = instances,
                         .crosses_leaf = in_leaf > 0,
                         .nic_bytes_per_s = rate,
                         .spread_bytes_per_s = rate,
                         .line_bytes_per_s = span_line(g)};
    if (in_leaf > 0) {
        double leaving = (double)(nodes - in_leaf) / (double)nodes;
        ret->nic_bytes_per_s = at_most(rate, span_uplink(g) / (leaf_instances / (double)in_leaf));
        ret->spread_bytes_per_s = at_most(rate, span_uplink(g) / (leaf_instances * leaving));
    }
    return true;
}

static bool same_group(const struct rank_group *a, const struct rank_group *b)
{
    bool same = a->n_dims == b->n_dims;
    for (int i = 0; same && i < a->n_dims; i++)
        same = a->dim[i].size == b->dim[i].size && a->dim[i].stride == b->dim[i].stride;
    return same;
}

/* The place of a group in the cache: its own, or the one to overwrite. */
static struct span_cache_entry *cache_place(struct span_cache *cache, const struct rank_group *group, bool hop)
{
    uint64_t hash = hop ? 7 : 3;
    for (int i = 0; i < group->n_dims; i++)
        hash = (hash * 31 + (uint64_t)group->dim[i].size) * 1000003 + (uint64_t)group->dim[i].stride;
    hash ^= hash >> 29;
    return &cache->entry[hash % SPAN_CACHE_SIZE];
}

static void find_span(const struct cluster *cluster, const struct rank_group *group, int64_t world, struct span *ret);
static void find_hop(const struct cluster *cluster, const struct rank_group *group, int64_t world, struct span *ret);

static void through_cache(const struct cluster *cluster, const struct rank_group *group, int64_t world, bool hop, struct span *ret)
{
    struct span_cache_entry *entry = cluster->spans ? cache_place(cluster->spans, group, hop) : NULL;
    if (entry && entry->used && entry->hop == hop && same_group(&entry->group, group)) {
        *ret = entry->span;
        return;
    }
    if (hop)
        find_hop(cluster, group, world, ret);
    else
        find_span(cluster, group, world, ret);
    if (entry)
        *entry = (struct span_cache_entry){.used = true, .hop = hop, .group = *group, .span = *ret};
}

void cluster_span(const struct cluster *cluster, const struct rank_group *group, int64_t world, struct span *ret)
{
    through_cache(cluster, group, world, false, ret);
}

void cluster_hop(const struct cluster *cluster, const struct rank_group *group, int64_t world, struct span *ret)
{
    through_cache(cluster, group, world, true, ret);
}

static void find_span(const struct cluster *cluster, const struct rank_group *group, int64_t world, struct span *ret)
{
    struct digits d = sorted_digits(group), low, high;
    int64_t per_node = cluster->group[0].accelerators_per_node;
    assert(world > 0 && world <= cluster->accelerators && digits_top(&d) <= world);
    bool whole_nodes = same_node_size(cluster) && split_at(&d, per_node, &low, &high);
    if (d.n == 0 || (whole_nodes && high.n == 0))
        *ret = span_inside(cluster, digits_product(&d), world);
    else if (whole_nodes && cluster->n_groups == 1 &&
             uniform_span(&cluster->group[0], &high, digits_product(&low), ret))
        return;
    else if (whole_nodes)
        *ret = span_walk(cluster, &high, (world + per_node - 1) / per_node, true, (int)digits_product(&low));
    else
        *ret = span_walk(cluster, &d, world, false, 1);
}

/* Closed form: a node holds q stages of the pipeline and A/q ranks of the last of them send; likewise a leaf. */
static bool uniform_hop(const struct cluster *cluster, const struct digits *d, int64_t world, struct span *ret)
{
    const struct node_group *g = &cluster->group[0];
    struct digits stages_in, over_nodes;
    int64_t in_leaf;
    if (cluster->n_groups > 1 || !split_at(d, g->accelerators_per_node, &stages_in, &over_nodes))
        return false;
    if (over_nodes.n == 0) {
        *ret = span_inside(cluster, 2, world);
        return true;
    }
    if (!leaf_split(g, &over_nodes, &in_leaf))
        return false;
    int senders = (int)(g->accelerators_per_node / digits_product(&stages_in));
    double rate = span_rate(g, senders, 1);
    if (in_leaf > 0)
        rate = at_most(rate, span_uplink(g) / ((double)(g->nodes_per_leaf * senders) / (double)in_leaf));
    *ret = (struct span){.ranks = 2,
                         .nodes = 2,
                         .ranks_per_node = 1,
                         .groups_per_node = senders,
                         .crosses_leaf = in_leaf > 0,
                         .nic_bytes_per_s = rate,
                         .spread_bytes_per_s = rate,
                         .line_bytes_per_s = span_line(g)};
    return true;
}

static void find_hop(const struct cluster *cluster, const struct rank_group *group, int64_t world, struct span *ret)
{
    struct digits d = sorted_digits(group);
    assert(d.n <= 1 && world > 0 && world <= cluster->accelerators && digits_top(&d) <= world);
    if (d.n == 0)
        *ret = span_inside(cluster, 1, world);
    else if (!uniform_hop(cluster, &d, world, ret))
        *ret = span_walk_hops(cluster, d.at[0], world);
}

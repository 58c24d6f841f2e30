/* How a process group lies on a cluster.
 *
 * Ranks fill nodes in order. A group is a set of digits of a mixed radix of the
 * rank; the other digits tell its instances apart. If a node holds a whole number
 * of digits (A = accelerators per node splits at most one digit, and evenly), all
 * instances look alike:
 *   ranks_per_node p = product of the group's digits below A,
 *   nodes            = product of the group's digits above A,
 *   groups_per_node  = A / p,   one instance's share of the line = line p / A.
 * Then only nodes need to be looked at, and on a uniform cluster whose leaves are
 * a whole number of digits too, nothing. Otherwise the instances are walked one by
 * one; a uniform cluster repeats after lcm(A x nodes per leaf, top of the group).
 *
 * Rate of an instance in a node: min(line / instances that leave the node,
 * members there x (one NIC, or line/A when accelerators share NICs)), divided by
 * the oversubscription when it crosses a leaf. Left out: which NIC is nearest. */
#include "cost/cluster.h"

#include <assert.h>
#include <stdlib.h>

enum { DIGITS_MAX = GROUP_DIMS_MAX + 1 };

struct digit {
    int64_t size, stride;
};

/* Digits in ascending order of stride; next to each other never contiguous. */
struct digits {
    int n;
    struct digit at[DIGITS_MAX];
};

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

static int64_t product(const struct digits *d)
{
    int64_t n = 1;
    for (int i = 0; i < d->n; i++)
        n *= d->at[i].size;
    return n;
}

static int64_t top_of(const struct digits *d)
{
    return d->n > 0 ? d->at[d->n - 1].size * d->at[d->n - 1].stride : 1;
}

/* Distance from the first member to the last. */
static int64_t reach(const struct digits *d)
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
        if (digit.stride >= unit ? digit.stride % unit != 0 : unit % (digit.stride * inside) != 0 || digit.size % inside != 0)
            return false;
        if (inside > 1)
            low->at[low->n++] = (struct digit){inside, digit.stride};
        if (digit.size / inside > 1)
            high->at[high->n++] = (struct digit){digit.size / inside, digit.stride >= unit ? digit.stride / unit : 1};
    }
    return true;
}

/* The instances' first members below `end`: all digits that the group leaves free. */
static struct digits free_digits(const struct digits *d, int64_t end)
{
    struct digits gaps = {0};
    int64_t below = 1;
    for (int i = 0; i < d->n; i++) {
        if (d->at[i].stride > below)
            gaps.at[gaps.n++] = (struct digit){d->at[i].stride / below, below};
        below = d->at[i].size * d->at[i].stride;
    }
    gaps.at[gaps.n++] = (struct digit){end / below, below};
    return gaps;
}

/* Counting through digits: value of the next combination, false after the last. */
struct odometer {
    int64_t index[DIGITS_MAX], value;
};

static bool advance(struct odometer *o, const struct digits *d)
{
    for (int i = 0; i < d->n; i++) {
        o->value += d->at[i].stride;
        if (++o->index[i] < d->at[i].size)
            return true;
        o->value -= d->at[i].size * d->at[i].stride;
        o->index[i] = 0;
    }
    return false;
}

/* The cluster in units that the walk goes through: single ranks, or whole nodes of `weight` members. */
struct ground {
    const struct cluster *cluster;
    int64_t world;                           /* units in use */
    int64_t first_unit[CLUSTER_GROUPS_MAX];  /* of each node group */
    int64_t first_node[CLUSTER_GROUPS_MAX];
    int64_t units_per_node[CLUSTER_GROUPS_MAX];
    int weight;
};

static struct ground make_ground(const struct cluster *cluster, int64_t world, bool whole_nodes, int weight)
{
    struct ground g = {.cluster = cluster, .weight = weight};
    int64_t unit = 0, node = 0;
    for (int i = 0; i < cluster->n_groups; i++) {
        g.units_per_node[i] = whole_nodes ? 1 : cluster->group[i].accelerators_per_node;
        g.first_unit[i] = unit;
        g.first_node[i] = node;
        unit += cluster->group[i].nodes * g.units_per_node[i];
        node += cluster->group[i].nodes;
    }
    int64_t a = cluster->group[0].accelerators_per_node;
    g.world = whole_nodes ? (world + a - 1) / a : world;
    return g;
}

static int group_of(const struct ground *g, int64_t unit)
{
    int i = g->cluster->n_groups - 1;
    while (i > 0 && unit < g->first_unit[i])
        i--;
    return i;
}

struct place {
    int group;
    int64_t node, leaf; /* node: in all; leaf: within the group */
};

static struct place place_of(const struct ground *g, int64_t unit)
{
    struct place p;
    p.group = group_of(g, unit);
    int64_t local = (unit - g->first_unit[p.group]) / g->units_per_node[p.group];
    int64_t per_leaf = g->cluster->group[p.group].nodes_per_leaf;
    p.node = g->first_node[p.group] + local;
    p.leaf = per_leaf > 0 ? local / per_leaf : 0;
    return p;
}

static bool other_leaf(struct place a, struct place b)
{
    return a.group != b.group || a.leaf != b.leaf;
}

static double line_of(const struct node_group *group)
{
    return group->nics_per_node * group->nic_bytes_per_s;
}

static double rate_in_node(const struct node_group *group, int instances, int64_t members, bool crosses_leaf)
{
    double line = line_of(group), per_rank = line / group->accelerators_per_node;
    double own = (double)members * (group->nic_bytes_per_s > per_rank ? group->nic_bytes_per_s : per_rank);
    double shared = line / instances;
    double rate = shared < own ? shared : own;
    return crosses_leaf ? rate / group->oversubscription : rate;
}

/* Worse first: the order of struct span's comment. rank: nic rate as collectives see it, or the link's inside a node. */
struct candidate {
    struct span span;
    double effective;
};

static bool worse(const struct candidate *a, const struct candidate *b)
{
    if ((a->span.nodes > 1) != (b->span.nodes > 1))
        return a->span.nodes > 1;
    if (a->effective < b->effective || a->effective > b->effective)
        return a->effective < b->effective;
    if (a->span.nodes != b->span.nodes)
        return a->span.nodes > b->span.nodes;
    return a->span.crosses_leaf && !b->span.crosses_leaf;
}

static struct candidate inside_node(const struct cluster *cluster, int group, int64_t ranks)
{
    const struct node_group *g = &cluster->group[group];
    struct span span = {.ranks = ranks, .nodes = 1, .ranks_per_node = (int)ranks, .groups_per_node = 1, .node_group = group,
                        .nic_bytes_per_s = line_of(g), .line_bytes_per_s = line_of(g)};
    return (struct candidate){span, g->intra.bytes_per_s * g->intra.efficiency};
}

static struct span worst_inside(const struct cluster *cluster, int64_t ranks, int64_t world)
{
    struct candidate worst = inside_node(cluster, 0, ranks);
    int64_t first = 0;
    for (int i = 1; i < cluster->n_groups; i++) {
        first += cluster->group[i - 1].nodes * cluster->group[i - 1].accelerators_per_node;
        struct candidate here = inside_node(cluster, i, ranks);
        if (first < world && worse(&here, &worst))
            worst = here;
    }
    return worst.span;
}

static bool same_node_size(const struct cluster *cluster)
{
    for (int i = 1; i < cluster->n_groups; i++) {
        if (cluster->group[i].accelerators_per_node != cluster->group[0].accelerators_per_node)
            return false;
    }
    return true;
}

/* Closed form on a uniform cluster; false when a leaf splits a digit unevenly. */
static bool uniform_span(const struct cluster *cluster, const struct digits *high, int64_t p, struct span *ret)
{
    const struct node_group *g = &cluster->group[0];
    struct digits in_leaf, over_leaves;
    bool crosses = false;
    if (g->nodes_per_leaf > 0) {
        if (!split_at(high, g->nodes_per_leaf, &in_leaf, &over_leaves))
            return false;
        crosses = over_leaves.n > 0;
    }
    int instances = (int)(g->accelerators_per_node / p);
    int64_t nodes = product(high);
    *ret = (struct span){.ranks = p * nodes, .nodes = nodes, .ranks_per_node = (int)p, .groups_per_node = instances,
                         .crosses_leaf = crosses, .nic_bytes_per_s = rate_in_node(g, instances, p, crosses),
                         .line_bytes_per_s = line_of(g)};
    return true;
}

/* Instances with a member in this node and another elsewhere: members whose predecessor is not in the node. */
static int leaving_instances(const struct ground *g, const struct digits *d, struct place place)
{
    int64_t per_node = g->units_per_node[place.group], count = 0, whole = reach(d), top = top_of(d);
    int64_t first = g->first_unit[place.group] + (place.node - g->first_node[place.group]) * per_node;
    int64_t last = first + per_node < g->world ? first + per_node : g->world;
    for (int64_t unit = first; unit < last; unit++) {
        int64_t base = unit, before = unit;
        bool borrowed = true; /* subtracting one from the mixed radix */
        for (int i = 0; i < d->n; i++) {
            int64_t index = unit / d->at[i].stride % d->at[i].size;
            base -= index * d->at[i].stride;
            if (borrowed)
                before += index > 0 ? -d->at[i].stride : (d->at[i].size - 1) * d->at[i].stride;
            borrowed = borrowed && index == 0;
        }
        bool complete = unit / top < g->world / top;
        bool leaves = base < first || base + whole >= first + per_node;
        count += complete && leaves && (borrowed || before < first);
    }
    return (int)count;
}

/* One instance, walked from node to node. sharing: cache by node, 0 = not known; may be NULL. */
static struct candidate walk(const struct ground *g, const struct digits *d, int64_t base, int *sharing)
{
    struct candidate c = {.span = {.ranks = product(d) * g->weight}, .effective = -1};
    struct odometer member = {.value = base};
    struct place here = place_of(g, base), end = place_of(g, base + reach(d));
    c.span.crosses_leaf = other_leaf(here, end);
    if (here.node == end.node)
        return inside_node(g->cluster, here.group, c.span.ranks);
    for (bool more = true; more;) {
        int64_t members = 0;
        struct place next = here;
        for (; more && next.node == here.node; next = more ? place_of(g, member.value) : next) {
            members += g->weight;
            more = advance(&member, d);
        }
        const struct node_group *group = &g->cluster->group[here.group];
        int instances = sharing != NULL ? sharing[here.node] : 0;
        if (instances == 0)
            instances = g->units_per_node[here.group] == 1 ? group->accelerators_per_node / g->weight
                                                           : leaving_instances(g, d, here);
        if (sharing != NULL)
            sharing[here.node] = instances;
        double rate = rate_in_node(group, instances, members, c.span.crosses_leaf);
        if (c.effective < 0 || rate * group->fabric.ar_eta < c.effective) {
            c.effective = rate * group->fabric.ar_eta;
            c.span.nic_bytes_per_s = rate;
            c.span.line_bytes_per_s = line_of(group);
            c.span.groups_per_node = instances;
            c.span.node_group = here.group;
        }
        c.span.nodes++;
        c.span.ranks_per_node = members > c.span.ranks_per_node ? (int)members : c.span.ranks_per_node;
        here = next;
    }
    return c;
}

static int64_t common_multiple(int64_t a, int64_t b, int64_t limit)
{
    int64_t x = a, y = b;
    while (y != 0) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x > limit / b ? limit : a / x * b;
}

/* How far the instances need to be walked before a uniform cluster repeats. */
static int64_t horizon(const struct ground *g, const struct digits *d)
{
    const struct node_group *group = &g->cluster->group[0];
    int64_t per_leaf = group->nodes_per_leaf > 0 ? group->nodes_per_leaf : 1;
    if (g->cluster->n_groups > 1)
        return g->world;
    return common_multiple(g->units_per_node[0] * per_leaf, top_of(d), g->world);
}

static struct span walk_all(const struct ground *g, const struct digits *d)
{
    int64_t end = horizon(g, d);
    struct place last = place_of(g, g->world - 1);
    struct candidate worst = {.effective = -1};
    struct odometer base = {0};
    struct digits gaps = free_digits(d, end);
    int *sharing = calloc((size_t)last.node + 1, sizeof(*sharing));
    do {
        struct candidate c = walk(g, d, base.value, sharing);
        if (worst.effective < 0 || worse(&c, &worst))
            worst = c;
    } while (advance(&base, &gaps));
    free(sharing);
    return worst.span;
}

void cluster_span(const struct cluster *cluster, const struct rank_group *group, int64_t world, struct span *ret)
{
    struct digits d = sorted_digits(group), low, high;
    int64_t per_node = cluster->group[0].accelerators_per_node;
    assert(world > 0 && world <= cluster->accelerators && top_of(&d) <= world);
    if (d.n == 0) {
        *ret = worst_inside(cluster, 1, world);
        return;
    }
    bool whole_nodes = same_node_size(cluster) && split_at(&d, per_node, &low, &high);
    if (whole_nodes && high.n == 0) {
        *ret = worst_inside(cluster, product(&d), world);
        return;
    }
    if (whole_nodes && cluster->n_groups == 1 && uniform_span(cluster, &high, product(&low), ret))
        return;
    struct ground ground = make_ground(cluster, world, whole_nodes, whole_nodes ? (int)product(&low) : 1);
    *ret = walk_all(&ground, whole_nodes ? &high : &d);
}

/* Hops out of this node (to the next stage), or into it (from the one before). */
static int hops_over_edge(const struct ground *g, struct digit pipeline, struct place place, bool out)
{
    int64_t per_node = g->units_per_node[place.group], count = 0;
    int64_t first = g->first_unit[place.group] + (place.node - g->first_node[place.group]) * per_node;
    int64_t end = g->world - g->world % (pipeline.size * pipeline.stride);
    for (int64_t rank = first; rank < first + per_node && rank < end; rank++) {
        int64_t stage = rank / pipeline.stride % pipeline.size;
        count += out ? stage + 1 < pipeline.size && rank + pipeline.stride >= first + per_node
                     : stage > 0 && rank - pipeline.stride < first;
    }
    return (int)count;
}

/* hops_over_edge of the node asked for last. */
struct edge {
    int64_t node;
    int hops;
};

static int edge_hops(const struct ground *g, struct digit pipeline, struct place place, bool out, struct edge *last)
{
    if (last->node != place.node)
        *last = (struct edge){place.node, hops_over_edge(g, pipeline, place, out)};
    return last->hops;
}

/* One hop: the sender shares its node's line with other senders, the receiver with other receivers. */
static struct candidate hop(const struct ground *g, struct digit pipeline, int64_t rank, struct edge edges[2])
{
    struct place ends[2] = {place_of(g, rank), place_of(g, rank + pipeline.stride)};
    if (ends[0].node == ends[1].node)
        return inside_node(g->cluster, ends[0].group, 2);
    struct candidate c = {.span = {.ranks = 2, .nodes = 2, .ranks_per_node = 1, .crosses_leaf = other_leaf(ends[0], ends[1])},
                          .effective = -1};
    for (int side = 0; side < 2; side++) {
        const struct node_group *node = &g->cluster->group[ends[side].group];
        int sharing = edge_hops(g, pipeline, ends[side], side == 0, &edges[side]);
        double rate = rate_in_node(node, sharing, 1, c.span.crosses_leaf);
        if (c.effective >= 0 && rate * node->fabric.ar_eta >= c.effective)
            continue;
        c.effective = rate * node->fabric.ar_eta;
        c.span.nic_bytes_per_s = rate;
        c.span.line_bytes_per_s = line_of(node);
        c.span.groups_per_node = sharing;
        c.span.node_group = ends[side].group;
    }
    return c;
}

/* Closed form on a uniform cluster: a node holds q whole stages of the pipeline, the last of them sends. */
static bool uniform_hop(const struct cluster *cluster, const struct digits *d, int64_t world, struct span *ret)
{
    const struct node_group *g = &cluster->group[0];
    struct digits stages_in, over_nodes, nodes_in, over_leaves;
    if (cluster->n_groups > 1 || !split_at(d, g->accelerators_per_node, &stages_in, &over_nodes))
        return false;
    if (over_nodes.n == 0) {
        *ret = worst_inside(cluster, 2, world);
        return true;
    }
    bool crosses = false;
    if (g->nodes_per_leaf > 0) {
        if (!split_at(&over_nodes, g->nodes_per_leaf, &nodes_in, &over_leaves))
            return false;
        crosses = over_leaves.n > 0;
    }
    int senders = (int)(g->accelerators_per_node / product(&stages_in));
    *ret = (struct span){.ranks = 2, .nodes = 2, .ranks_per_node = 1, .groups_per_node = senders, .crosses_leaf = crosses,
                         .nic_bytes_per_s = rate_in_node(g, senders, 1, crosses), .line_bytes_per_s = line_of(g)};
    return true;
}

void cluster_hop(const struct cluster *cluster, const struct rank_group *group, int64_t world, struct span *ret)
{
    struct digits d = sorted_digits(group);
    struct ground g = make_ground(cluster, world, false, 1);
    assert(d.n <= 1 && world > 0 && world <= cluster->accelerators && top_of(&d) <= world);
    if (d.n == 0) {
        *ret = worst_inside(cluster, 1, world);
        return;
    }
    if (uniform_hop(cluster, &d, world, ret))
        return;
    struct candidate worst = {.effective = -1};
    struct edge edges[2] = {{-1, 0}, {-1, 0}};
    int64_t end = horizon(&g, &d), stride = d.at[0].stride;
    end -= end % top_of(&d);
    for (int64_t rank = 0; rank < end; rank++) {
        if (rank / stride % d.at[0].size + 1 == d.at[0].size) {
            rank += stride - 1; /* the last stage has no next */
            continue;
        }
        struct candidate c = hop(&g, d.at[0], rank, edges);
        if (worst.effective < 0 || worse(&c, &worst))
            worst = c;
    }
    *ret = worst.span;
}

/* How a process group lies on a cluster: all instances, walked one by one.
 *
 * First the leaves: how many instances (hops) leave each, and how much an
 * all-to-all of all of them sends out. Then every instance gets the least of what
 * its nodes and leaves give it, and the worst instance stays. A uniform cluster
 * repeats after lcm(A x nodes per leaf, top of the group), so no more is walked.
 * Cost: a few steps per rank. */
#include <stddef.h>

#include "cost/base/arena.h"
#include "cost/group_span.h"

/* Counting through digits. */
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

/* The cluster in units: single ranks, or whole nodes of `weight` members of one instance. */
struct ground {
    const struct cluster *cluster;
    const struct digits *digits;
    int64_t world; /* units in use */
    int weight;
    bool whole_nodes;
    int64_t first_unit[CLUSTER_GROUPS_MAX], first_node[CLUSTER_GROUPS_MAX], first_leaf[CLUSTER_GROUPS_MAX];
    int64_t units_per_node[CLUSTER_GROUPS_MAX];
    int64_t nodes, leaves;
    int *sharing;     /* by node: instances (outgoing hops) that use its NICs; 0 = not counted yet */
    int *arriving;    /* by node: incoming hops; 0 = not counted yet */
    double *leaving;  /* by leaf: instances (hops) that leave it */
    double *entering; /* by leaf: hops that enter it */
    double *egress;   /* by leaf: sum over instances of nodes here x share of their all-to-all that leaves */
};

static void ground_init(struct ground *g, const struct cluster *cluster, const struct digits *d, int64_t world,
                        bool whole_nodes, int weight, struct arena *arena)
{
    *g = (struct ground){.cluster = cluster, .digits = d, .world = world, .weight = weight, .whole_nodes = whole_nodes};
    int64_t unit = 0;
    for (int i = 0; i < cluster->n_groups; i++) {
        const struct node_group *group = &cluster->group[i];
        g->units_per_node[i] = whole_nodes ? 1 : group->accelerators_per_node;
        g->first_unit[i] = unit;
        g->first_node[i] = g->nodes;
        g->first_leaf[i] = g->leaves;
        unit += group->nodes * g->units_per_node[i];
        g->nodes += group->nodes;
        g->leaves += group->nodes_per_leaf > 0 ? (group->nodes + group->nodes_per_leaf - 1) / group->nodes_per_leaf : 1;
    }
    g->sharing = whole_nodes ? NULL : arena_array(arena, (size_t)g->nodes, sizeof(*g->sharing));
    g->arriving = whole_nodes ? NULL : arena_array(arena, (size_t)g->nodes, sizeof(*g->arriving));
    g->leaving = arena_array(arena, (size_t)g->leaves, sizeof(*g->leaving));
    g->entering = arena_array(arena, (size_t)g->leaves, sizeof(*g->entering));
    g->egress = arena_array(arena, (size_t)g->leaves, sizeof(*g->egress));
}

/* Where a unit lies. Its cell is what the walk crosses in one step: its node, or with whole nodes its leaf. */
struct place {
    int group;
    int64_t node, leaf;           /* in all */
    int64_t first_unit, end_unit; /* of the node */
    int64_t end_cell;             /* first unit behind the cell */
};

static struct place place_of(const struct ground *g, int64_t unit)
{
    struct place p = {.group = g->cluster->n_groups - 1};
    while (p.group > 0 && unit < g->first_unit[p.group])
        p.group--;
    int64_t per_node = g->units_per_node[p.group], per_leaf = g->cluster->group[p.group].nodes_per_leaf;
    int64_t local = (unit - g->first_unit[p.group]) / per_node;
    p.node = g->first_node[p.group] + local;
    p.leaf = g->first_leaf[p.group] + (per_leaf > 0 ? local / per_leaf : 0);
    p.first_unit = g->first_unit[p.group] + local * per_node;
    p.end_unit = p.first_unit + per_node < g->world ? p.first_unit + per_node : g->world;
    p.end_cell = p.end_unit;
    if (g->whole_nodes) {
        int64_t in_leaf = per_leaf > 0 ? (local / per_leaf + 1) * per_leaf : g->cluster->group[p.group].nodes;
        in_leaf = in_leaf < g->cluster->group[p.group].nodes ? in_leaf : g->cluster->group[p.group].nodes;
        p.end_cell = g->first_unit[p.group] + in_leaf;
    }
    return p;
}

/* How far there is something new. A multiple of the group's top: instances are whole. */
static int64_t horizon(const struct ground *g)
{
    const struct node_group *group = &g->cluster->group[0];
    int64_t per_leaf = group->nodes_per_leaf > 0 ? group->nodes_per_leaf : 1, top = digits_top(g->digits);
    int64_t end = g->world - g->world % top, period = g->units_per_node[0] * per_leaf, x = period, y = top;
    while (y != 0) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return g->cluster->n_groups > 1 || period / x > end / top ? end : period / x * top;
}

/* First members of all instances below `end`: the digits that the group leaves free. */
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

/* Instances with a member in this node and another elsewhere: count the members whose predecessor is not in the node. */
static int count_sharing(const struct ground *g, struct place node)
{
    const struct digits *d = g->digits;
    int64_t whole = digits_reach(d), top = digits_top(d);
    int count = 0;
    for (int64_t unit = node.first_unit; unit < node.end_unit; unit++) {
        int64_t base = unit, before = unit;
        bool borrow = true; /* subtracting one from the mixed radix; true to the end for the first member */
        for (int i = 0; i < d->n; i++) {
            int64_t index = unit / d->at[i].stride % d->at[i].size;
            base -= index * d->at[i].stride;
            if (borrow)
                before += index > 0 ? -d->at[i].stride : (d->at[i].size - 1) * d->at[i].stride;
            borrow = borrow && index == 0;
        }
        bool complete = unit / top < g->world / top, first_here = borrow || before < node.first_unit;
        bool elsewhere = base < node.first_unit || base + whole >= node.first_unit + g->units_per_node[node.group];
        count += complete && first_here && elsewhere;
    }
    return count;
}

static int sharing_of(const struct ground *g, struct place node)
{
    if (g->whole_nodes)
        return g->cluster->group[node.group].accelerators_per_node / g->weight;
    if (g->sharing[node.node] == 0)
        g->sharing[node.node] = count_sharing(g, node);
    return g->sharing[node.node];
}

/* The walk of one instance from cell to cell. */
struct visit {
    struct odometer member;
    struct place place;
    int64_t nodes, members; /* nodes of the instance in this cell, and its ranks in each */
    bool more;
};

/* The next members of the lowest digit that lie before `end`, in one step. Returns how many. */
static int64_t advance_run(const struct digits *d, int64_t end, struct visit *v)
{
    int64_t left = d->at[0].size - v->member.index[0], fit = 1 + (end - 1 - v->member.value) / d->at[0].stride;
    int64_t run = left < fit ? left : fit;
    v->member.index[0] += run - 1;
    v->member.value += (run - 1) * d->at[0].stride;
    v->more = advance(&v->member, d);
    return run;
}

static bool visit_next(const struct ground *g, struct visit *v)
{
    int64_t units = 0;
    if (!v->more)
        return false;
    v->place = place_of(g, v->member.value);
    while (v->more && v->member.value < v->place.end_cell)
        units += advance_run(g->digits, v->place.end_cell, v);
    v->nodes = g->whole_nodes ? units : 1;
    v->members = g->whole_nodes ? g->weight : units;
    return true;
}

static struct visit visit_start(int64_t base)
{
    return (struct visit){.member = {.value = base}, .more = true};
}

static int64_t count_nodes(const struct ground *g, int64_t base)
{
    int64_t nodes = 0;
    for (struct visit v = visit_start(base); visit_next(g, &v);)
        nodes += v.nodes;
    return nodes;
}

static double egress_share(int64_t here, int64_t nodes)
{
    return (double)here * (double)(nodes - here) / (double)nodes;
}

/* One walk through nodes stands for as many instances as a node holds side by side. */
static void count_leaves(const struct ground *g, int64_t base)
{
    double alike = g->whole_nodes ? g->cluster->group[0].accelerators_per_node / g->weight : 1;
    struct place first = place_of(g, base), last = place_of(g, base + digits_reach(g->digits));
    if (first.leaf == last.leaf)
        return;
    int64_t nodes = count_nodes(g, base), here = 0, leaf = first.leaf;
    for (struct visit v = visit_start(base); visit_next(g, &v); here += v.nodes) {
        if (v.place.leaf != leaf) {
            g->leaving[leaf] += alike;
            g->egress[leaf] += alike * egress_share(here, nodes);
            leaf = v.place.leaf;
            here = 0;
        }
    }
    g->leaving[leaf] += alike;
    g->egress[leaf] += alike * egress_share(here, nodes);
}

/* A candidate for the worst, with its rate as collectives see it (inside a node: of the link). */
struct candidate {
    struct span span;
    double effective;
};

static bool worse(const struct candidate *a, const struct candidate *b)
{
    if (b->effective < 0)
        return true;
    if ((a->span.nodes > 1) != (b->span.nodes > 1))
        return a->span.nodes > 1;
    if (a->effective < b->effective || a->effective > b->effective)
        return a->effective < b->effective;
    if (a->span.nodes != b->span.nodes)
        return a->span.nodes > b->span.nodes;
    return a->span.crosses_leaf && !b->span.crosses_leaf;
}

static struct candidate inside(const struct ground *g, int group, int64_t ranks)
{
    const struct link_profile *intra = &g->cluster->group[group].intra;
    return (struct candidate){span_in_group(g->cluster, group, ranks), intra->bytes_per_s * intra->efficiency};
}

/* One node of an instance (one end of a hop) bounds it, if it gives less than those before. flows: what shares the
 * uplinks of its leaf, as rings or as all-to-alls. */
static void bound(const struct ground *g, struct place node, int instances, int64_t members, double flows,
                  double even_flows, struct candidate *c)
{
    const struct node_group *group = &g->cluster->group[node.group];
    double rate = span_rate(group, instances, members), spread = rate, uplink = span_uplink(group);
    if (c->span.crosses_leaf) {
        double flow = uplink / flows, even = uplink / even_flows;
        rate = flow < rate ? flow : rate;
        spread = even < spread ? even : spread;
    }
    if (c->effective < 0 || spread < c->span.spread_bytes_per_s)
        c->span.spread_bytes_per_s = spread;
    if (c->effective >= 0 && rate * group->fabric.ar_eta >= c->effective)
        return;
    c->effective = rate * group->fabric.ar_eta;
    c->span.nic_bytes_per_s = rate;
    c->span.line_bytes_per_s = span_line(group);
    c->span.groups_per_node = instances;
    c->span.node_group = node.group;
}

static struct candidate judge(const struct ground *g, int64_t base)
{
    struct candidate c = {.span = {.ranks = digits_product(g->digits) * g->weight}, .effective = -1};
    struct place first = place_of(g, base), last = place_of(g, base + digits_reach(g->digits));
    if (first.node == last.node)
        return inside(g, first.group, c.span.ranks);
    c.span.crosses_leaf = first.leaf != last.leaf;
    for (struct visit v = visit_start(base); visit_next(g, &v);) {
        bound(g, v.place, sharing_of(g, v.place), v.members, g->leaving[v.place.leaf], g->egress[v.place.leaf], &c);
        c.span.nodes += v.nodes;
        c.span.ranks_per_node = v.members > c.span.ranks_per_node ? (int)v.members : c.span.ranks_per_node;
    }
    return c;
}

struct span span_walk(const struct cluster *cluster, const struct digits *d, int64_t world, bool whole_nodes,
                      int weight)
{
    struct arena arena = {0};
    struct ground g;
    ground_init(&g, cluster, d, world, whole_nodes, weight, &arena);
    struct digits gaps = free_digits(d, horizon(&g));
    struct candidate worst = {.effective = -1};
    struct odometer base = {0};
    do {
        count_leaves(&g, base.value);
    } while (advance(&base, &gaps));
    base = (struct odometer){0};
    do {
        struct candidate c = judge(&g, base.value);
        if (worse(&c, &worst))
            worst = c;
    } while (advance(&base, &gaps));
    arena_release(&arena);
    return worst.span;
}

/* The ranks of a node that send out of it (to the next stage), or receive from outside. */
static int count_hops(const struct ground *g, struct digit pipeline, struct place node, bool out)
{
    int64_t end = g->world - g->world % (pipeline.size * pipeline.stride);
    int count = 0;
    for (int64_t rank = node.first_unit; rank < node.end_unit && rank < end; rank++) {
        int64_t stage = rank / pipeline.stride % pipeline.size;
        count += out ? stage + 1 < pipeline.size && rank + pipeline.stride >= node.end_unit
                     : stage > 0 && rank - pipeline.stride < node.first_unit;
    }
    return count;
}

static int hops_of(const struct ground *g, struct digit pipeline, struct place node, bool out)
{
    int *known = out ? &g->sharing[node.node] : &g->arriving[node.node];
    if (*known == 0)
        *known = count_hops(g, pipeline, node, out);
    return *known;
}

static struct candidate judge_hop(const struct ground *g, struct digit pipeline, int64_t rank)
{
    struct place from = place_of(g, rank), to = place_of(g, rank + pipeline.stride);
    struct candidate c = {.span = {.ranks = 2, .nodes = 2, .ranks_per_node = 1}, .effective = -1};
    if (from.node == to.node)
        return inside(g, from.group, 2);
    c.span.crosses_leaf = from.leaf != to.leaf;
    double out = g->leaving[from.leaf], in = g->entering[to.leaf];
    bound(g, from, hops_of(g, pipeline, from, true), 1, out, out, &c);
    bound(g, to, hops_of(g, pipeline, to, false), 1, in, in, &c);
    return c;
}

/* Next rank that has a next stage; `end` when there is none. */
static int64_t next_sender(struct digit pipeline, int64_t rank, int64_t end)
{
    if (rank < end && rank / pipeline.stride % pipeline.size + 1 == pipeline.size)
        rank = (rank / pipeline.stride + 1) * pipeline.stride;
    return rank;
}

struct span span_walk_hops(const struct cluster *cluster, struct digit pipeline, int64_t world)
{
    struct arena arena = {0};
    struct digits d = {.n = 1, .at = {pipeline}};
    struct ground g;
    struct candidate worst = {.effective = -1};
    ground_init(&g, cluster, &d, world, false, 1, &arena);
    int64_t end = horizon(&g);
    for (int64_t rank = next_sender(pipeline, 0, end); rank < end; rank = next_sender(pipeline, rank + 1, end)) {
        struct place from = place_of(&g, rank), to = place_of(&g, rank + pipeline.stride);
        g.leaving[from.leaf] += from.leaf != to.leaf;
        g.entering[to.leaf] += from.leaf != to.leaf;
    }
    for (int64_t rank = next_sender(pipeline, 0, end); rank < end; rank = next_sender(pipeline, rank + 1, end)) {
        struct candidate c = judge_hop(&g, pipeline, rank);
        if (worse(&c, &worst))
            worst = c;
    }
    arena_release(&arena);
    return worst.span;
}

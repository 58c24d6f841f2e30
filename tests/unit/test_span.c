/* cluster_span and cluster_hop: known layouts, and random small clusters against
 * a count by definition. --seed N repeats a run; --rounds N. */
#include <math.h>
#include <string.h>

#include "cost/cluster.h"
#include "tests/unit/test.h"

static struct node_group make_group(int64_t nodes, int per_node, int nics, double nic_gb_per_s)
{
    struct node_group g = {.nodes = nodes,
                           .accelerators_per_node = per_node,
                           .nics_per_node = nics,
                           .nic_bytes_per_s = nic_gb_per_s * 1e9,
                           .rdma = true,
                           .oversubscription = 1};
    g.intra.bytes_per_s = 450e9;
    g.intra.efficiency = 0.8;
    g.fabric.ar_eta = 0.9;
    return g;
}

static struct cluster make_cluster(struct node_group group)
{
    struct cluster c = {.accelerators = group.nodes * group.accelerators_per_node, .n_groups = 1};
    c.group[0] = group;
    return c;
}

static void add_group(struct cluster *c, struct node_group group)
{
    c->group[c->n_groups++] = group;
    c->accelerators += group.nodes * group.accelerators_per_node;
}

static struct rank_group make_ranks(int64_t size, int64_t stride)
{
    struct rank_group g = {.n_dims = 1};
    g.dim[0].size = size;
    g.dim[0].stride = stride;
    return g;
}

static struct span span_of(const struct cluster *c, int64_t size, int64_t stride)
{
    struct rank_group g = make_ranks(size, stride);
    struct span s;
    cluster_span(c, &g, c->accelerators, &s);
    return s;
}

static struct span hop_of(const struct cluster *c, int64_t size, int64_t stride)
{
    struct rank_group g = make_ranks(size, stride);
    struct span s;
    cluster_hop(c, &g, c->accelerators, &s);
    return s;
}

static void test_dgx(void)
{
    struct cluster c = make_cluster(make_group(16, 8, 8, 50)); /* 16 nodes of 8, one 400 Gbit/s NIC each */
    struct span s = span_of(&c, 8, 1);                         /* tensor parallel 8 */
    CHECK_INT(s.nodes, 1);
    CHECK_INT(s.ranks_per_node, 8);
    CHECK_INT(s.groups_per_node, 1);
    s = span_of(&c, 16, 8); /* data parallel over rails: eight at once, one NIC each */
    CHECK_INT(s.nodes, 16);
    CHECK_INT(s.ranks_per_node, 1);
    CHECK_INT(s.groups_per_node, 8);
    CHECK_DOUBLE(s.nic_bytes_per_s, 50e9, 0);
    CHECK_DOUBLE(s.line_bytes_per_s, 400e9, 0);
    s = span_of(&c, 32, 4); /* two ranks of each group in a node */
    CHECK_INT(s.ranks_per_node, 2);
    CHECK_INT(s.nodes, 16);
    CHECK_DOUBLE(s.nic_bytes_per_s, 100e9, 0);
    s = span_of(&c, 16, 1); /* tensor parallel over two nodes has the whole line */
    CHECK_INT(s.nodes, 2);
    CHECK_DOUBLE(s.nic_bytes_per_s, 400e9, 0);
    s = span_of(&c, 1, 1);
    CHECK_INT(s.ranks, 1);
    CHECK_INT(s.nodes, 1);
}

static void test_straddling(void)
{
    struct cluster c = make_cluster(make_group(3, 8, 8, 50));
    struct span s = span_of(&c, 3, 1); /* 24 ranks in threes: {6,7,8} lies 2 + 1 */
    CHECK_INT(s.ranks, 3);
    CHECK_INT(s.nodes, 2);
    CHECK_INT(s.ranks_per_node, 2);
    CHECK_INT(s.groups_per_node, 2); /* {6,7,8} and {15,16,17} leave node 1 */
    CHECK_DOUBLE(s.nic_bytes_per_s, 50e9,
                 0);       /* rank 8 is alone in its node: one NIC, though nobody else uses the others */
    s = span_of(&c, 6, 1); /* {6..11}: two of them in node 0, which no other leaves */
    CHECK_INT(s.nodes, 2);
    CHECK_INT(s.groups_per_node, 1);
    CHECK_DOUBLE(s.nic_bytes_per_s, 100e9, 0);
}

static void test_few_nics(void)
{
    struct cluster c = make_cluster(make_group(4, 8, 1, 12.5));
    struct span s = span_of(&c, 4, 8);
    CHECK_DOUBLE(s.nic_bytes_per_s, 12.5e9 / 8, 1e-12);
    s = hop_of(&c, 4, 8);
    CHECK_INT(s.groups_per_node, 8);
    CHECK_DOUBLE(s.nic_bytes_per_s, 12.5e9 / 8, 1e-12);
    s = hop_of(&c, 8, 4); /* two stages of four in a node: only the second one sends out of it */
    CHECK_INT(s.groups_per_node, 4);
    CHECK_DOUBLE(s.nic_bytes_per_s, 12.5e9 / 4, 1e-12);
    s = hop_of(&c, 2, 4);
    CHECK_INT(s.nodes, 1);
}

static void test_leaves(void)
{
    struct node_group g = make_group(16, 8, 8, 50);
    g.nodes_per_leaf = 4;
    g.oversubscription = 2;
    struct cluster c = make_cluster(g);
    struct span s = span_of(&c, 32, 1); /* four nodes: one leaf */
    CHECK(!s.crosses_leaf);
    CHECK_DOUBLE(s.nic_bytes_per_s, 400e9, 0);
    s = span_of(&c, 16, 8); /* a ring leaves each leaf once for four nodes: uplinks of half the rate do not bound it */
    CHECK(s.crosses_leaf);
    CHECK_DOUBLE(s.nic_bytes_per_s, 50e9, 0);
    CHECK_DOUBLE(s.spread_bytes_per_s, 50e9 / 2 / 0.75, 1e-12); /* 12 of 16 nodes are in other leaves */
    s = span_of(&c, 4, 32);                                     /* one node per leaf: half the rate */
    CHECK_DOUBLE(s.nic_bytes_per_s, 25e9, 1e-12);
    s = hop_of(&c, 4, 32);
    CHECK(s.crosses_leaf);
    CHECK_DOUBLE(s.nic_bytes_per_s, 25e9, 1e-12);
    s = hop_of(&c, 8, 16); /* two stages per leaf: only half of the ranks send out of it */
    CHECK_DOUBLE(s.nic_bytes_per_s, 50e9, 1e-12);
}

static void test_mixed(void)
{
    struct cluster c = make_cluster(make_group(4, 8, 8, 50));
    struct node_group slow = make_group(2, 8, 1, 12.5);
    add_group(&c, slow);
    struct span s = span_of(&c, 6, 8); /* crosses both: the weaker side bounds it */
    CHECK_INT(s.nodes, 6);
    CHECK_INT(s.node_group, 1);
    CHECK(s.crosses_leaf);
    CHECK_DOUBLE(s.nic_bytes_per_s, 12.5e9 / 8, 1e-12);
    s = span_of(&c, 2, 8); /* nodes 0-1, 2-3 fast, 4-5 slow */
    CHECK_INT(s.nodes, 2);
    CHECK_INT(s.node_group, 1);
    CHECK(!s.crosses_leaf);
    c.group[1].intra.bytes_per_s = 32e9;
    s = span_of(&c, 8, 1); /* inside nodes: the slower link */
    CHECK_INT(s.nodes, 1);
    CHECK_INT(s.node_group, 1);
    CHECK_INT(hop_of(&c, 6, 8).node_group, 1);
}

/* ---- random clusters against a count by definition ---- */

enum { RANKS_MAX = 256, DIGITS = 5 };
static uint64_t state;

static int pick(int least, int most)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return least + (int)(state % (uint64_t)(most - least + 1));
}

struct where {
    int group, node, leaf;
};

static struct where where[RANKS_MAX];

static void place_ranks(const struct cluster *c)
{
    int rank = 0, node = 0, leaf = 0;
    for (int g = 0; g < c->n_groups; g++) {
        int per_leaf = (int)c->group[g].nodes_per_leaf;
        for (int n = 0; n < c->group[g].nodes; n++, node++) {
            leaf += n > 0 && per_leaf > 0 && n % per_leaf == 0;
            for (int a = 0; a < c->group[g].accelerators_per_node; a++)
                where[rank++] = (struct where){g, node, leaf};
        }
        leaf++;
    }
}

/* Members of all instances: first member of the instance of every rank. */
static int instance[RANKS_MAX];

static bool crosses_nodes(int world, int base)
{
    for (int r = 0; r < world; r++) {
        if (instance[r] == base && where[r].node != where[base].node)
            return true;
    }
    return false;
}

static bool crosses_leaves(int world, int base)
{
    for (int r = 0; r < world; r++) {
        if (instance[r] == base && where[r].leaf != where[base].leaf)
            return true;
    }
    return false;
}

static int members_in_node(int world, int base, int node)
{
    int n = 0;
    for (int r = 0; r < world; r++)
        n += instance[r] == base && where[r].node == node;
    return n;
}

static int nodes_in_leaf(int world, int base, int leaf)
{
    int nodes = 0, last = -1;
    for (int r = 0; r < world; r++) {
        if (instance[r] != base || (leaf >= 0 && where[r].leaf != leaf) || where[r].node == last)
            continue;
        last = where[r].node;
        nodes++;
    }
    return nodes;
}

static double at_most(double a, double b)
{
    return a < b ? a : b;
}

static double line_of(const struct node_group *g)
{
    return g->nics_per_node * g->nic_bytes_per_s;
}

static double uplink_of(const struct node_group *g)
{
    return (double)(g->nodes_per_leaf > 0 ? g->nodes_per_leaf : g->nodes) * line_of(g) / g->oversubscription;
}

static double own_rate(const struct node_group *g, int members)
{
    double per_rank = line_of(g) / g->accelerators_per_node;
    return members * (g->nic_bytes_per_s > per_rank ? g->nic_bytes_per_s : per_rank);
}

struct result {
    struct span span;
    double effective;
};

static struct result judge(const struct cluster *c, int world, int base)
{
    struct result r = {.effective = (double)INFINITY};
    r.span.spread_bytes_per_s = (double)INFINITY;
    for (int m = 0; m < world; m++)
        r.span.ranks += instance[m] == base;
    r.span.nodes = nodes_in_leaf(world, base, -1);
    r.span.crosses_leaf = crosses_leaves(world, base);
    for (int m = 0; m < world; m++) {
        if (instance[m] != base)
            continue;
        const struct node_group *g = &c->group[where[m].group];
        int members = members_in_node(world, base, where[m].node), sharing = 0;
        r.span.ranks_per_node = members > r.span.ranks_per_node ? members : r.span.ranks_per_node;
        if (r.span.nodes == 1) {
            r.effective = g->intra.bytes_per_s * g->intra.efficiency;
            r.span.node_group = where[m].group;
            r.span.groups_per_node = 1;
            r.span.nic_bytes_per_s = r.span.spread_bytes_per_s = r.span.line_bytes_per_s = line_of(g);
            continue;
        }
        double leaving = 0, egress = 0;
        for (int other = 0; other < world; other++) {
            if (instance[other] != other)
                continue;
            sharing += members_in_node(world, other, where[m].node) > 0 && crosses_nodes(world, other);
            int here = nodes_in_leaf(world, other, where[m].leaf), all = nodes_in_leaf(world, other, -1);
            leaving += here > 0 && crosses_leaves(world, other);
            egress += crosses_leaves(world, other) ? (double)here * (double)(all - here) / all : 0;
        }
        double rate = at_most(own_rate(g, members), line_of(g) / sharing), spread = rate;
        if (r.span.crosses_leaf) {
            rate = at_most(rate, uplink_of(g) / leaving);
            spread = at_most(spread, uplink_of(g) / egress);
        }
        r.span.spread_bytes_per_s = at_most(r.span.spread_bytes_per_s, spread);
        if (rate * g->fabric.ar_eta >= r.effective)
            continue;
        r.effective = rate * g->fabric.ar_eta;
        r.span.nic_bytes_per_s = rate;
        r.span.line_bytes_per_s = line_of(g);
        r.span.groups_per_node = sharing;
        r.span.node_group = where[m].group;
    }
    return r;
}

static struct result judge_hop(const struct cluster *c, int world, int size, int stride, int rank)
{
    struct result r = {.effective = (double)INFINITY};
    int ends[2] = {rank, rank + stride};
    r.span =
        (struct span){.ranks = 2, .nodes = where[ends[0]].node != where[ends[1]].node ? 2 : 1, .ranks_per_node = 1};
    if (r.span.nodes == 1) {
        const struct node_group *g = &c->group[where[rank].group];
        r.effective = g->intra.bytes_per_s * g->intra.efficiency;
        r.span = (struct span){2, 1, 2, 1, false, where[rank].group, line_of(g), line_of(g), line_of(g)};
        return r;
    }
    r.span.crosses_leaf = where[ends[0]].leaf != where[ends[1]].leaf;
    for (int side = 0; side < 2; side++) {
        const struct node_group *g = &c->group[where[ends[side]].group];
        int at_node = 0, at_leaf = 0;
        for (int m = 0; m + stride < world; m++) {
            if (m / stride % size + 1 == size)
                continue;
            int here = side == 0 ? m : m + stride;
            at_node += where[m].node != where[m + stride].node && where[here].node == where[ends[side]].node;
            at_leaf += where[m].leaf != where[m + stride].leaf && where[here].leaf == where[ends[side]].leaf;
        }
        double rate = at_most(own_rate(g, 1), line_of(g) / at_node);
        rate = r.span.crosses_leaf ? at_most(rate, uplink_of(g) / at_leaf) : rate;
        r.span.spread_bytes_per_s = side == 0 ? rate : at_most(rate, r.span.spread_bytes_per_s);
        if (rate * g->fabric.ar_eta >= r.effective)
            continue;
        r.effective = rate * g->fabric.ar_eta;
        r.span.nic_bytes_per_s = rate;
        r.span.line_bytes_per_s = line_of(g);
        r.span.groups_per_node = at_node;
        r.span.node_group = where[ends[side]].group;
    }
    return r;
}

static bool worse(const struct result *a, const struct result *b)
{
    if (b->span.nodes == 0 || (a->span.nodes > 1) != (b->span.nodes > 1))
        return b->span.nodes == 0 || a->span.nodes > 1;
    if (fabs(a->effective - b->effective) > 1e-9 * b->effective)
        return a->effective < b->effective;
    if (a->span.nodes != b->span.nodes)
        return a->span.nodes > b->span.nodes;
    return a->span.crosses_leaf && !b->span.crosses_leaf;
}

static bool same(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(b);
}

static void compare(const char *what, const struct cluster *c, const struct rank_group *g, int world,
                    const struct span *got, const struct span *want, uint64_t seed)
{
    bool equal =
        got->ranks == want->ranks && got->nodes == want->nodes && got->ranks_per_node == want->ranks_per_node &&
        got->groups_per_node == want->groups_per_node && got->crosses_leaf == want->crosses_leaf &&
        got->node_group == want->node_group && same(got->nic_bytes_per_s, want->nic_bytes_per_s) &&
        same(got->spread_bytes_per_s, want->spread_bytes_per_s) && same(got->line_bytes_per_s, want->line_bytes_per_s);
    if (!CHECK(equal)) {
        printf("%s, --seed %llu, world %d:", what, (unsigned long long)seed, world);
        for (int i = 0; i < c->n_groups; i++)
            printf(" [%lld x %d, %d nics, leaf %lld, %g:1]", (long long)c->group[i].nodes,
                   c->group[i].accelerators_per_node, c->group[i].nics_per_node, (long long)c->group[i].nodes_per_leaf,
                   c->group[i].oversubscription);
        for (int i = 0; i < g->n_dims; i++)
            printf(" (%lld @%lld)", (long long)g->dim[i].size, (long long)g->dim[i].stride);
        for (int i = 0; i < 2; i++) {
            const struct span *s = i == 0 ? got : want;
            printf("\n  %s ranks %lld nodes %lld per node %d sharing %d leaf %d group %d nic %g spread %g line %g",
                   i == 0 ? "got " : "want", (long long)s->ranks, (long long)s->nodes, s->ranks_per_node,
                   s->groups_per_node, s->crosses_leaf, s->node_group, s->nic_bytes_per_s, s->spread_bytes_per_s,
                   s->line_bytes_per_s);
        }
        printf("\n");
    }
}

static struct cluster random_cluster(void)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 6, 8, 12};
    static const double eta[] = {0.513, 0.617, 0.729, 0.811}; /* no ties between groups */
    struct cluster c = {0};
    int groups = pick(1, 3), one_size = pick(0, 1), size = sizes[pick(0, 7)];
    for (int i = 0; i < groups; i++) {
        int per_node = one_size ? size : sizes[pick(0, 7)];
        struct node_group g =
            make_group(pick(1, 16 / groups), per_node, pick(0, 1) ? per_node : pick(1, 9), pick(1, 3) * 12.5);
        g.nodes_per_leaf = pick(0, 1) ? 0 : pick(1, 5);
        g.oversubscription = pick(1, 4);
        g.intra.bytes_per_s = pick(1, 3) * 100e9;
        g.fabric.ar_eta = eta[pick(0, 3)];
        add_group(&c, g);
    }
    return c;
}

/* Digits of the world (their product), some of them the group's. Leaves the instance of every rank in instance[]. */
static int random_digits(int64_t limit, struct rank_group *ret)
{
    int size[DIGITS], world = 1;
    bool ours[DIGITS];
    *ret = (struct rank_group){0};
    for (int i = 0; i < DIGITS; i++) {
        int most = (int)(limit / world) < 8 ? (int)(limit / world) : 8;
        size[i] = pick(1, most);
        ours[i] = pick(0, 1) == 1;
        if (ours[i]) {
            ret->dim[ret->n_dims].size = size[i];
            ret->dim[ret->n_dims++].stride = world;
        }
        world *= size[i];
    }
    for (int r = 0; r < world; r++) {
        int stride = 1;
        instance[r] = r;
        for (int i = 0; i < DIGITS; i++) {
            instance[r] -= ours[i] ? r / stride % size[i] * stride : 0;
            stride *= size[i];
        }
    }
    if (ret->n_dims > 1 && pick(0, 1)) { /* in any order */
        struct rank_group swapped = *ret;
        swapped.dim[0] = ret->dim[ret->n_dims - 1];
        swapped.dim[ret->n_dims - 1] = ret->dim[0];
        *ret = swapped;
    }
    return world;
}

static void test_random(uint64_t seed)
{
    state = seed * 2654435761u + 88172645463325252u;
    struct cluster c = random_cluster();
    struct rank_group group;
    int world = random_digits(c.accelerators, &group);
    struct result worst = {0};
    struct span got;
    place_ranks(&c);
    for (int base = 0; base < world; base++) {
        if (instance[base] != base)
            continue;
        struct result r = judge(&c, world, base);
        if (worse(&r, &worst))
            worst = r;
    }
    cluster_span(&c, &group, world, &got);
    compare("span", &c, &group, world, &got, &worst.span, seed);

    int stages = 1, stride = 1; /* the digit chosen as a pipeline */
    for (int i = 0; i < group.n_dims && stages == 1; i++) {
        stages = (int)group.dim[i].size;
        stride = (int)group.dim[i].stride;
    }
    if (stages == 1)
        return;
    struct rank_group pipeline = make_ranks(stages, stride);
    worst = (struct result){0};
    for (int rank = 0; rank < world; rank++) {
        if (rank / stride % stages + 1 == stages)
            continue;
        struct result r = judge_hop(&c, world, stages, stride, rank);
        if (worse(&r, &worst))
            worst = r;
    }
    cluster_hop(&c, &pipeline, world, &got);
    compare("hop", &c, &pipeline, world, &got, &worst.span, seed);
}

int main(int argc, char **argv)
{
    uint64_t seed = 1;
    int rounds = 1500;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seed") == 0) {
            seed = strtoull(argv[i + 1], NULL, 10);
            rounds = 1;
        } else if (strcmp(argv[i], "--rounds") == 0) {
            rounds = atoi(argv[i + 1]);
        }
    }
    printf("seeds %llu to %llu\n", (unsigned long long)seed, (unsigned long long)seed + (unsigned)rounds - 1);
    test_dgx();
    test_straddling();
    test_few_nics();
    test_leaves();
    test_mixed();
    for (int i = 0; i < rounds; i++)
        test_random(seed + (unsigned)i);
    return test_report();
}

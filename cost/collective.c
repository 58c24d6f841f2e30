/* Alpha-beta prices of collectives.
 *
 * Bus bytes V = S f: all-reduce f = 2(n-1)/n; all-gather, reduce-scatter and
 * all-to-all (n-1)/n; point to point 1 (nccl-tests PERFORMANCE.md).
 *
 * Inside one NVLink/PCIe domain: the curve measured for this accelerator, op and
 * rank count, t = min over lines of alpha + V/B (lines with from_bytes: the last that
 * has begun); between measured rank counts the
 * nearest curve, its latency stretched by the steps; without any curve
 * t = latency + steps * hop + V / (efficiency * B).
 *
 * Across nodes (N nodes, p ranks in each, line = what the instance gets of a
 * node's NICs; shared/design cost-model.md section 2, measured over 3,899 rows):
 *   all-reduce   min(a + h1 L + V/B1, h2 L + V/B2, h3 L + V/(eta line)), L = log2 N
 *   ring AG/RS   min(small, base + hop n + V/(ring_eta line))
 *   all-to-all   base + hop n + S (N-1)/N p / (eta line), not below the part inside the node
 * A curve measured on this network with this accelerator replaces them for groups with as many ranks in a node: of such
 * curves the one whose node count is nearest, at most four times more or fewer,
 *   t = curve(V') physics(group) / physics(measured group),  V' = bus bytes of the measured group for the same S
 * where physics is what is above, the measured group alone on its nodes, inside a leaf and at link quality 1. So a group
 * of the measured shape takes the measured time; other node counts, leaves and shared NICs scale it as they scale the
 * formulas. Groups with another number of ranks in a node (other rings, other NICs), and dispatch below, keep the formulas.
 * Left out: SHARP, tuner quirks between 64 KiB and 16 MiB. */
#include "cost/collective.h"

#include <math.h>

#include "cost/group_span.h"

static double ring_steps(enum collective_op op, double n)
{
    switch (op) {
    case COLLECTIVE_ALL_REDUCE: return 2 * (n - 1);
    case COLLECTIVE_P2P: return 1;
    case COLLECTIVE_ALL_TO_ALL: return 1;
    default: return n - 1;
    }
}

static double curve_s(const struct alpha_beta *curve, double bus_bytes)
{
    double best = INFINITY, from = 0;
    for (int i = 0; i < curve->n_lines; i++)
        if (curve->line[i].from_bytes <= bus_bytes)
            from = fmax(from, curve->line[i].from_bytes);
    for (int i = 0; i < curve->n_lines; i++) /* where none has from_bytes, all hold */
        if (!(curve->line[i].from_bytes < from) && !(curve->line[i].from_bytes > bus_bytes))
            best = fmin(best, curve->line[i].alpha_s + bus_bytes / curve->line[i].bytes_per_s);
    return best;
}

static double inside_node_s(const struct link_profile *link, enum collective_op op, double n, double bytes)
{
    double bus_bytes = bytes * collective_bus_factor(op, n);
    const struct alpha_beta *nearest = NULL;
    for (int i = 0; i < link->n_curves[op]; i++) {
        const struct alpha_beta *curve = &link->curve[op][i];
        if (!nearest || fabs(log(curve->ranks / n)) < fabs(log(nearest->ranks / n)))
            nearest = curve;
    }
    if (nearest) {
        double extra_steps = ring_steps(op, n) - ring_steps(op, nearest->ranks);
        return curve_s(nearest, bus_bytes) + fmax(0, extra_steps) * link->hop_s;
    }
    return link->latency_s + ring_steps(op, n) * link->hop_s + bus_bytes / (link->efficiency * link->bytes_per_s);
}

/* Three regimes (LL, middle, Simple). Groups with one rank per node run rings on
 * their own rails. On two nodes trees beat the line; the node's own links then
 * bound it (the caller takes the maximum with the part inside the node). */
static double all_reduce_s(const struct fabric_profile *f, const struct span *span, double line, double bus_bytes)
{
    double levels = log2((double)span->nodes);
    double scale = fmin(1, span->line_bytes_per_s / f->reference_line_bytes_per_s) * line / span->line_bytes_per_s;
    bool rail = span->ranks_per_node == 1, pair = span->nodes == 2 && !rail;
    double top = (rail ? f->rail_eta : pair ? fmax(f->ar_eta, f->ar_two_node_line_ratio) : f->ar_eta) * line;
    double h2 = pair && f->ar_two_node_h2_s > 0 ? f->ar_two_node_h2_s : f->ar_h2_s;
    double h3 = pair && f->ar_two_node_h3_s > 0 ? f->ar_two_node_h3_s : f->ar_h3_s;
    double b2 = pair && f->ar_two_node_b2 > 0 ? f->ar_two_node_b2 : f->ar_b2;
    double t = h3 * levels + bus_bytes / top;
    t = fmin(t, h2 * levels + bus_bytes / fmin(b2 * scale, top));
    return fmin(t, f->ar_a_s + f->ar_h1_s * levels + bus_bytes / fmin(f->ar_b1 * scale, top));
}

static double ring_s(const struct fabric_profile *f, const struct span *span, double line, double bus_bytes)
{
    double n = (double)span->ranks;
    bool rail = span->ranks_per_node == 1;
    double hop = rail ? f->ring_single_hop_s : f->ring_hop_s;
    double top = (rail ? f->rail_eta : f->ring_eta) * line;
    double large = f->ring_base_s + hop * n + bus_bytes / top;
    double small = f->ring_small_base_s + f->ring_small_intra_s * (n - (double)span->nodes) + f->ring_small_inter_s * ((double)span->nodes - 1);
    return fmin(large, fmax(f->ring_floor_s, small) + bus_bytes / fmin(f->ring_small_b, top));
}

/* What one instance of the group gets of a node's NICs; rate: for rings and trees,
 * or for traffic spread over all nodes. */
static double node_line(double quality, const struct fabric_profile *f, const struct span *span, double rate)
{
    double line = rate * quality;
    if (f->node_cap_bytes_per_s > 0)
        line = fmin(line, f->node_cap_bytes_per_s * line / span->line_bytes_per_s);
    return line;
}

/* The formulas, across nodes; quality: of the links, 1 = sound. */
static double physics_s(const struct node_group *group, double quality, const struct span *span, enum collective_op op, double bytes)
{
    double n = (double)span->ranks, bus_bytes = bytes * collective_bus_factor(op, n);
    const struct fabric_profile *f = &group->fabric;
    double line = node_line(quality, f, span, op == COLLECTIVE_ALL_TO_ALL ? span->spread_bytes_per_s : span->nic_bytes_per_s);
    double inside = span->ranks_per_node > 1 ? inside_node_s(&group->intra, op, span->ranks_per_node, bytes) : 0;
    switch (op) {
    case COLLECTIVE_ALL_REDUCE: return fmax(all_reduce_s(f, span, line, bus_bytes), inside);
    case COLLECTIVE_ALL_GATHER:
    case COLLECTIVE_REDUCE_SCATTER: return fmax(ring_s(f, span, line, bus_bytes), inside);
    case COLLECTIVE_ALL_TO_ALL: {
        double nodes = (double)span->nodes;
        double egress = bytes * (nodes - 1) / nodes * span->ranks_per_node;
        return fmax(f->a2a_base_s + f->a2a_hop_s * n + egress / (f->a2a_eta * line), inside);
    }
    default: {
        double rate = f->p2p_eta * line;
        if (f->p2p_channels > 0)
            rate = fmin(rate, f->p2p_channels * f->p2p_channel_bytes_per_s);
        return f->p2p_base_s + bytes / rate;
    }
    }
}

/* ---- measured networks ---- */

static const double near_nodes = 4; /* beyond, other algorithms */

/* A curve's group of ranks: alone on its nodes, inside one leaf. */
static struct span measured_span(const struct node_group *group, const struct alpha_beta *curve)
{
    int64_t nodes = curve->nodes > 0 ? curve->nodes : curve->ranks / group->accelerators_per_node;
    nodes = nodes > 1 ? nodes : 1;
    struct span span = {.ranks = curve->ranks, .nodes = nodes, .ranks_per_node = (int)((curve->ranks + nodes - 1) / nodes), .groups_per_node = 1};
    span.line_bytes_per_s = span_line(group);
    span.nic_bytes_per_s = span.spread_bytes_per_s = span_rate(group, 1, span.ranks_per_node);
    return span;
}

/* The curve for a group like `span`, and what was measured for it; NULL when none is near. */
static const struct alpha_beta *near_curve(const struct node_group *group, const struct span *span, enum collective_op op, struct span *ret)
{
    const struct fabric_profile *f = &group->fabric;
    const struct alpha_beta *nearest = NULL;
    double least = log(near_nodes) + 1e-9;
    for (int i = 0; i < f->n_curves[op]; i++) {
        struct span measured = measured_span(group, &f->curve[op][i]);
        double distance = fabs(log((double)measured.nodes / (double)span->nodes));
        if (measured.nodes < 2 || measured.ranks_per_node != span->ranks_per_node || !(distance < least))
            continue;
        least = distance;
        nearest = &f->curve[op][i];
        *ret = measured;
    }
    return nearest;
}

double collective_s(const struct cluster *cluster, const struct span *span, enum collective_op op, double bytes)
{
    if (span->ranks <= 1 || bytes <= 0)
        return 0;
    const struct node_group *group = &cluster->group[span->node_group];
    if (span->nodes <= 1)
        return inside_node_s(&group->intra, op, (double)span->ranks, bytes);
    double physics = physics_s(group, cluster->link_quality, span, op, bytes);
    struct span measured;
    const struct alpha_beta *curve = near_curve(group, span, op, &measured);
    if (curve == NULL)
        return physics;
    return curve_s(curve, bytes * collective_bus_factor(op, curve->ranks)) * (physics / physics_s(group, 1, &measured, op, bytes));
}

/* Distinct places that k uniform choices among n hit. */
static double distinct(double n, double k)
{
    return n * (1 - pow(1 - 1 / n, k));
}

double routing_places(const struct routing *r, double places)
{
    if (r->groups <= 1 || r->limit <= 0 || r->limit >= r->groups)
        return distinct(places, r->chosen);
    if (places > r->groups)
        return r->limit * distinct(places / r->groups, (double)r->chosen / r->limit);
    double missed = 1; /* by all of the groups that were drawn, none twice */
    for (int i = 0; i < r->limit; i++)
        missed *= fmax(0, 1 - r->groups / places / (r->groups - i));
    return places * (1 - missed);
}

double collective_dispatch_s(const struct cluster *cluster, const struct span *span, double tokens, double row_bytes,
                             const struct routing *routing, double link_share)
{
    if (span->ranks <= 1 || tokens <= 0)
        return 0;
    const struct node_group *group = &cluster->group[span->node_group];
    double nodes = (double)span->nodes, ranks = (double)span->ranks, per_node = span->ranks_per_node;
    double copies = tokens * routing_places(routing, ranks) * row_bytes;
    if (nodes <= 1)
        return inside_node_s(&group->intra, COLLECTIVE_ALL_TO_ALL, ranks, copies / link_share);
    const struct fabric_profile *f = &group->fabric;
    double remote = routing_places(routing, nodes) * (nodes - 1) / nodes; /* one of N of them is the own node */
    double line = node_line(cluster->link_quality, f, span, span->spread_bytes_per_s);
    double outside = f->a2a_base_s + f->a2a_hop_s * nodes + tokens * remote * row_bytes * per_node / (fmax(f->a2a_eta, f->rail_eta * 0.9) * line);
    /* every node's share of all tokens fans out over the ranks of the node */
    double inside = per_node > 1 ? inside_node_s(&group->intra, COLLECTIVE_ALL_TO_ALL, per_node, copies / link_share) : 0;
    return fmax(outside, inside);
}

double beside_cover(double collective_seconds, double cover_seconds, double slowdown)
{
    double hidden = fmin(collective_seconds, cover_seconds);
    return collective_seconds - hidden + hidden * slowdown;
}

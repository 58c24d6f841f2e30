/* hw.json -> struct cluster.
 *
 * A group inherits what it does not state from the top of the file. Left to
 * itself a group has its accelerator's usual link, node size and NIC, one NIC per
 * accelerator, RDMA, and the fabric that goes with the NIC's rate. All problems of
 * a file are reported together. */
#include "cost/cluster.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/base/names.h"
#include "cost/base/unit.h"
#include "cost/cluster_internal.h"

enum { ACCELERATORS_MAX = 1000000, PER_NODE_MAX = 4096, PATH_SIZE = 128 };

/* A field that was stated, and where: groups fall back on the top of the file. */
struct scope {
    struct json_at at;    /* a group, or the top of the file */
    struct json_at outer; /* the top of the file; node NULL at the top */
    bool first;           /* speaks of the top's mistakes: once, not for every group */
    const struct profile *profile;
    struct err *warn, *err;
};

/* intra_node or inter_node of a scope. path: room for the name. */
struct nested {
    struct json_at own, outer; /* node NULL when not stated */
    char own_path[PATH_SIZE], outer_path[PATH_SIZE];
};

/* Where mistakes of `at` go: those of the top are said once. */
static struct err *err_of(const struct scope *scope, struct json_at at)
{
    bool top = scope->outer.node != NULL && strncmp(at.path, "groups[", 7) != 0;
    return top && !scope->first ? NULL : scope->err;
}

static int check_keys(const struct scope *scope, struct json_at at, const char *const *known)
{
    struct err *err = err_of(scope, at);
    return at.node != NULL && json_check_keys(at, known, err != NULL ? scope->warn : NULL, err) < 0 ? -1 : 0;
}

static int open_nested(const struct scope *scope, const char *key, const char *const *known, struct nested *ret)
{
    int bad = 0;
    ret->own = ret->outer = (struct json_at){.file = scope->at.file, .path = "", .node = NULL};
    if (json_read_object(scope->at, key, &ret->own, ret->own_path, sizeof(ret->own_path), err_of(scope, scope->at)) < 0)
        bad = -1;
    if (scope->outer.node != NULL && json_read_object(scope->outer, key, &ret->outer, ret->outer_path,
                                                      sizeof(ret->outer_path), err_of(scope, scope->outer)) < 0)
        bad = -1;
    return bad | check_keys(scope, ret->own, known) | check_keys(scope, ret->outer, known);
}

/* Where key is stated: in own, else in outer; node NULL when nowhere. */
static struct json_at stated(struct json_at own, struct json_at outer, const char *key)
{
    if (own.node != NULL && json_has(own.node, key))
        return own;
    if (outer.node != NULL && json_has(outer.node, key))
        return outer;
    return (struct json_at){.file = own.file, .path = "", .node = NULL};
}

static int read_double(const struct scope *scope, const struct nested *nested, const char *key, double min, double max,
                       double *out)
{
    struct json_at at = stated(nested->own, nested->outer, key);
    return at.node == NULL || json_read_double(at, key, min, max, out, err_of(scope, at)) >= 0 ? 0 : -1;
}

static int read_int(const struct scope *scope, const struct nested *nested, const char *key, int64_t min, int64_t max,
                    int64_t *out)
{
    struct json_at at = stated(nested->own, nested->outer, key);
    return at.node == NULL || json_read_int(at, key, min, max, out, err_of(scope, at)) >= 0 ? 0 : -1;
}

const char *cluster_usual_fabric(enum link_class intra, double nic_bytes_per_s, bool rdma)
{
    double gbit_per_s = nic_bytes_per_s * 8e-9;
    if (!rdma)
        return "ethernet-tcp";
    if (intra == LINK_XGMI)
        return "roce-mi300x";
    return gbit_per_s > 400.5 ? "ib-xdr" : gbit_per_s > 200.5 ? "ib-ndr" : gbit_per_s > 100.5 ? "ib-hdr" : "ib-edr";
}

/* A default must be in the profile, too: a user's own profile may lack it. */
static int fabric_named(const struct scope *scope, const char *name, const char *accelerator, struct fabric_profile *ret)
{
    int before = scope->err != NULL ? scope->err->count : 0;
    if (profile_fabric(scope->profile, name, accelerator, ret, scope->err) == 0)
        return 0;
    return err_prefix(scope->err, before, "file '%s': network between nodes: ", scope->at.file);
}

/* accelerator: whose measured curves of the network to take in. */
static int read_fabric(const struct scope *scope, const struct nested *inter, bool rdma_stated, const char *accelerator,
                       struct node_group *ret)
{
    struct json_at at = stated(inter->own, inter->outer, "fabric");
    if (at.node == NULL)
        return fabric_named(scope, cluster_usual_fabric(ret->intra.link_class, ret->nic_bytes_per_s, ret->rdma),
                            accelerator, &ret->fabric);
    if (cluster_read_fabric(at, "fabric", scope->profile, accelerator, &ret->fabric, scope->warn, err_of(scope, at)) != 0)
        return -1;
    if (!rdma_stated)
        ret->rdma = ret->fabric.link_class != LINK_ETHERNET;
    if (ret->rdma || ret->fabric.link_class == LINK_ETHERNET)
        return 0;
    err_add(scope->warn, "file '%s': field '%s.rdma' is false: '%s' is priced as TCP sockets ('ethernet-tcp')",
            scope->at.file, at.path, ret->fabric.name);
    return fabric_named(scope, "ethernet-tcp", accelerator, &ret->fabric);
}

static int read_inter_node(const struct scope *scope, const char *accelerator, struct node_group *ret)
{
    static const char *const known[] = {"fabric",           "nics_per_node",  "nic_gbps", "rdma",
                                        "oversubscription", "nodes_per_leaf", NULL};
    struct nested inter;
    int bad = open_nested(scope, "inter_node", known, &inter);
    double gbit_per_s = ret->accelerator.nic_bytes_per_s * 8e-9;
    int64_t nics = ret->accelerators_per_node, per_leaf = 0;
    ret->oversubscription = 1;
    ret->rdma = true;
    bad |= read_int(scope, &inter, "nics_per_node", 1, PER_NODE_MAX, &nics);
    bad |= read_double(scope, &inter, "nic_gbps", 0.1, 1e5, &gbit_per_s);
    bad |= read_double(scope, &inter, "oversubscription", 1, 1000, &ret->oversubscription);
    bad |= read_int(scope, &inter, "nodes_per_leaf", 1, ACCELERATORS_MAX, &per_leaf);
    struct json_at rdma = stated(inter.own, inter.outer, "rdma");
    if (rdma.node != NULL && json_read_bool(rdma, "rdma", &ret->rdma, err_of(scope, rdma)) < 0)
        bad = -1;
    if (bad != 0)
        return -1;
    ret->nics_per_node = (int)nics;
    ret->nic_bytes_per_s = gbit_per_s * 1e9 / 8;
    ret->nodes_per_leaf = per_leaf;
    if (ret->oversubscription > 1 && per_leaf == 0) {
        ret->nodes_per_leaf = 1;
        err_add(
            scope->warn,
            "file '%s': field '%s%sinter_node.oversubscription' without nodes_per_leaf: every node is taken for a leaf of its own",
            scope->at.file, scope->at.path, scope->at.path[0] != '\0' ? "." : "");
    }
    return read_fabric(scope, &inter, rdma.node != NULL, accelerator, ret);
}

static int read_intra_node(const struct scope *scope, const char *accelerator, struct node_group *ret)
{
    static const char *const known[] = {"link", NULL};
    struct nested intra;
    int bad = open_nested(scope, "intra_node", known, &intra);
    struct json_at at = stated(intra.own, intra.outer, "link");
    /* the group's own accelerator brings its own link if it has one, unless the group names one */
    if (at.node != NULL && intra.own.node != at.node && scope->outer.node != NULL &&
        json_has(scope->at.node, "accelerator") && ret->accelerator.default_link[0] != '\0')
        at.node = NULL;
    if (at.node != NULL)
        return cluster_read_link(at, "link", scope->profile, accelerator, &ret->intra, scope->warn,
                                 err_of(scope, at)) != 0
                   ? -1
                   : bad;
    if (ret->accelerator.default_link[0] == '\0')
        return err_add(scope->err,
                       "file '%s': no link between the accelerators of a node is named; state field '%s%sintra_node.link' "
                       "(as in {\"link\": \"nvlink4\"}), or default_link or a 'base' in accelerator '%s'",
                       scope->at.file, scope->at.path, scope->at.path[0] != '\0' ? "." : "", ret->accelerator.name);
    int before = scope->err != NULL ? scope->err->count : 0;
    if (profile_link(scope->profile, ret->accelerator.default_link, accelerator, &ret->intra, scope->err) != 0)
        return err_prefix(scope->err, before, "file '%s': usual link of accelerator '%s': ", scope->at.file,
                          ret->accelerator.name);
    return bad;
}

static int read_group(const struct scope *scope, struct node_group *ret)
{
    struct nested own = {.own = scope->at, .outer = scope->outer};
    struct json_at at = stated(scope->at, scope->outer, "accelerator");
    int64_t per_node = 1;
    memset(ret, 0, sizeof(*ret));
    if (at.node == NULL)
        return err_add(scope->err, "file '%s': field '%s%saccelerator' is missing", scope->at.file, scope->at.path,
                       scope->at.path[0] != '\0' ? "." : "");
    if (cluster_read_accelerator(at, "accelerator", scope->profile, &ret->accelerator, scope->warn,
                                 err_of(scope, at)) != 0)
        return -1;
    per_node = ret->accelerator.default_per_node;
    int bad = read_int(scope, &own, "accelerators_per_node", 1, PER_NODE_MAX, &per_node);
    ret->accelerators_per_node = (int)per_node;
    const char *accelerator = cluster_base_name(at, "accelerator");
    bad |= read_intra_node(scope, accelerator, ret);
    return read_inter_node(scope, accelerator, ret) != 0 ? -1 : bad;
}

static int read_nodes(struct json_at at, int64_t *ret, struct err *err)
{
    int found = json_read_int(at, "nodes", 1, ACCELERATORS_MAX, ret, err);
    if (found == 0)
        return err_add(err, "file '%s': field '%s%snodes' is missing", at.file, at.path, at.path[0] != '\0' ? "." : "");
    return found < 0 ? -1 : 0;
}

static int read_groups(const struct scope *top, const struct json *list, struct cluster *ret)
{
    static const char *const known[] = {"nodes", "accelerator", "accelerators_per_node", "intra_node", "inter_node",
                                        "name",  NULL};
    int n = json_length(list), bad = 0, i = 0;
    char path[PATH_SIZE];
    if (n < 1 || n > CLUSTER_GROUPS_MAX)
        return err_add(top->err, "file '%s': field 'groups' has %d entries; allowed: 1 to %d", top->at.file, n,
                       CLUSTER_GROUPS_MAX);
    for (const struct json *child = json_first(list); child != NULL; child = json_next(child), i++) {
        snprintf(path, sizeof(path), "groups[%d]", i);
        struct scope scope = *top;
        scope.at = (struct json_at){top->at.file, path, child};
        scope.outer = top->at;
        scope.first = i == 0;
        if (json_type(child) != JSON_OBJECT) {
            bad = err_add(top->err, "file '%s': field '%s' is %s; it must be an object", top->at.file, path,
                          json_type_name(child));
            continue;
        }
        if (json_check_keys(scope.at, known, top->warn, top->err) < 0)
            bad = -1;
        bad |= read_group(&scope, &ret->group[i]);
        bad |= read_nodes(scope.at, &ret->group[i].nodes, top->err);
    }
    ret->n_groups = n;
    return bad;
}

static int count_accelerators(const char *file, const struct json *root, struct cluster *ret, struct err *warn,
                              struct err *err)
{
    int64_t nodes = 0;
    ret->accelerators = 0;
    for (int i = 0; i < ret->n_groups; i++) {
        nodes += ret->group[i].nodes;
        ret->accelerators += ret->group[i].nodes * ret->group[i].accelerators_per_node;
    }
    if (ret->accelerators > ACCELERATORS_MAX)
        return err_add(err, "file '%s': %lld accelerators in all; at most %d", file, (long long)ret->accelerators,
                       ACCELERATORS_MAX);
    const struct json *stated_nodes = json_get(root, "nodes");
    if (json_has(root, "groups") && stated_nodes != NULL && json_type(stated_nodes) == JSON_NUMBER &&
        (int64_t)json_double(stated_nodes) != nodes)
        err_add(warn, "file '%s': field 'nodes' is %.15g and is ignored: 'groups' hold %lld", file,
                json_double(stated_nodes), (long long)nodes);
    return 0;
}

static void read_slowest(const char *file, struct cluster *ret, struct err *warn)
{
    if (cluster_slowest(ret, &ret->accelerator))
        err_add(
            warn,
            "file '%s': mixed accelerators (%s): every one is priced as the slowest in each respect and has the least memory",
            file, ret->accelerator.name);
}

static int read_numbers(struct json_at at, struct cluster *ret, struct err *err)
{
    ret->usable_memory = 0.94;
    ret->link_quality = 1;
    int bad = json_read_double(at, "usable_memory", 0.01, 1, &ret->usable_memory, err) < 0;
    bad |= json_read_double(at, "link_quality", 0.01, 1.5, &ret->link_quality, err) < 0;
    bad |= json_read_double(at, "price_per_accelerator_hour", 1e-6, 1e6, &ret->price_per_accelerator_hour, err) < 0;
    bad |= json_read_double(at, "mtbf_hours_per_accelerator", 1e-3, 1e12, &ret->mtbf_hours_per_accelerator, err) < 0;
    return bad != 0 ? -1 : 0;
}

static int read_name(struct json_at at, struct cluster *ret, struct err *err)
{
    const char *name = NULL;
    if (json_read_string(at, "name", &name, err) < 0)
        return -1;
    if (name != NULL && strlen(name) >= sizeof(ret->name))
        return err_add(err, "file '%s': field 'name' has more than %d characters", at.file, (int)sizeof(ret->name) - 1);
    snprintf(ret->name, sizeof(ret->name), "%s", name != NULL ? name : "");
    return 0;
}

int cluster_parse(const struct json *root, const char *file, const struct profile *profile, struct cluster *ret,
                  struct err *warn, struct err *err)
{
    static const char *const known[] = {"name",
                                        "accelerator",
                                        "nodes",
                                        "accelerators_per_node",
                                        "intra_node",
                                        "inter_node",
                                        "groups",
                                        "usable_memory",
                                        "link_quality",
                                        "price_per_accelerator_hour",
                                        "mtbf_hours_per_accelerator",
                                        NULL};
    struct cluster c;
    struct json_at at = {file, "", root};
    memset(&c, 0, sizeof(c));
    if (json_type(root) != JSON_OBJECT)
        return err_add(err, "file '%s' is %s; a cluster is an object", file, json_type_name(root));
    struct scope top = {.at = at, .outer = {file, "", NULL}, .profile = profile, .warn = warn, .err = err};
    const struct json *groups = json_has(root, "groups") ? json_get(root, "groups") : NULL;
    int bad = json_check_keys(at, known, warn, err) < 0 ? -1 : 0;
    bad |= read_name(at, &c, err);
    bad |= read_numbers(at, &c, err);
    if (groups != NULL && json_type(groups) != JSON_ARRAY) {
        bad = err_add(err, "file '%s': field 'groups' is %s; it must be a list", file, json_type_name(groups));
    } else if (groups != NULL) {
        bad |= read_groups(&top, groups, &c);
    } else {
        c.n_groups = 1;
        bad |= read_group(&top, &c.group[0]);
        bad |= read_nodes(at, &c.group[0].nodes, err);
    }
    if (bad != 0 || count_accelerators(file, root, &c, warn, err) != 0)
        return -1;
    read_slowest(file, &c, warn);
    if (c.name[0] == '\0')
        snprintf(c.name, sizeof(c.name), "%lldx %s", (long long)c.accelerators, c.accelerator.name);
    *ret = c;
    return 0;
}

int cluster_load(const char *path, const struct profile *profile, struct cluster *ret, struct err *warn,
                 struct err *err)
{
    struct json *root;
    if (json_load(path, &root, err) != 0)
        return -1;
    int result = cluster_parse(root, path, profile, ret, warn, err);
    json_free(root);
    return result;
}

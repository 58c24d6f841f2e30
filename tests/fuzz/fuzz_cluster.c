/* hw.json: any bytes give a cluster or a sentence. */
#include <stdint.h>
#include <stdlib.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/cluster.h"
#include "cost/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is accepted must be usable: a group over all accelerators has a place and a rate. */
static void use(const struct cluster *cluster)
{
    struct rank_group all = {.n_dims = 1};
    struct span span;
    if (cluster->accelerators > 100000)
        return; /* right, but slow to walk when leaves do not divide */
    all.dim[0].size = cluster->accelerators;
    all.dim[0].stride = 1;
    cluster_span(cluster, &all, cluster->accelerators, &span);
    if (span.ranks != cluster->accelerators || span.nodes < 1 || !(span.nic_bytes_per_s > 0) ||
        !(cluster->accelerator.memory_bytes > 0))
        abort();
    cluster_hop(cluster, &all, cluster->accelerators, &span);
    if (!(span.nic_bytes_per_s > 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct profile *profile;
    struct err err = {0}, warn = {0};
    struct json *root;
    struct cluster cluster;
    if (profile == NULL && profile_open(NULL, &profile, &err) != 0)
        abort();
    if (json_parse((const char *)data, size, "fuzz", &root, &err) == 0) {
        if (cluster_parse(root, "fuzz", profile, &cluster, &warn, &err) == 0)
            use(&cluster);
        else if (err.count == 0)
            abort(); /* refused without a word */
        json_free(root);
    } else if (err.count == 0) {
        abort();
    }
    return 0;
}

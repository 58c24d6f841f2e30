/* hw.json: defaults, names and inline hardware, groups, and every kind of mistake. */
#include <dirent.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/cluster.h"
#include "cost/profile.h"
#include "tests/unit/test.h"

static struct profile *profile;
static struct err err, warn;

static int parse(const char *text, struct cluster *ret)
{
    struct json *root;
    err_clear(&err);
    err_clear(&warn);
    memset(ret, 0, sizeof(*ret));
    if (json_parse(text, strlen(text), "hw.json", &root, &err) != 0)
        return -1;
    int result = cluster_parse(root, "hw.json", profile, ret, &warn, &err);
    json_free(root);
    return result;
}

static void refused(const char *text, const char *why)
{
    struct cluster c;
    CHECK(parse(text, &c) < 0);
    CHECK_CONTAINS(err.text, why);
    CHECK_INT(c.accelerators, 0); /* set only on success */
}

static void test_defaults(void)
{
    struct cluster c;
    CHECK_INT(parse("{\"accelerator\": \"h100-sxm\", \"nodes\": 4}", &c), 0);
    CHECK_INT(err.count + warn.count, 0);
    CHECK_STR(c.name, "32x h100-sxm");
    CHECK_INT(c.accelerators, 32);
    CHECK_INT(c.n_groups, 1);
    CHECK_STR(c.group[0].intra.name, "nvlink4");
    CHECK_STR(c.group[0].fabric.name, "ib-ndr");
    CHECK_INT(c.group[0].nics_per_node, 8);
    CHECK_DOUBLE(c.group[0].nic_bytes_per_s, 50e9, 1e-12);
    CHECK(c.group[0].rdma);
    CHECK_DOUBLE(c.usable_memory, 0.94, 0);
    CHECK_DOUBLE(c.link_quality, 1, 0);
    CHECK_DOUBLE(c.price_per_accelerator_hour, 0, 0);
    CHECK_INT(c.group[0].nodes_per_leaf, 0);
    CHECK_DOUBLE(c.group[0].oversubscription, 1, 0);
    CHECK_INT(parse("{\"accelerator\": \"gb200\", \"nodes\": 18}", &c), 0);
    CHECK_INT(c.accelerators, 72); /* trays of four */
    CHECK_INT(parse("{\"accelerator\": \"gb200\", \"nodes\": 2, \"accelerators_per_node\": 72}", &c), 0);
    CHECK_INT(c.accelerators, 144);
    CHECK_INT(c.group[0].nics_per_node, 72);
    CHECK_INT(c.group[0].intra.curve[COLLECTIVE_ALL_REDUCE][c.group[0].intra.n_curves[COLLECTIVE_ALL_REDUCE] - 1].ranks,
              72);
    CHECK_INT(parse("{\"accelerator\": \"mi300x\", \"nodes\": 2}", &c), 0);
    CHECK_STR(c.group[0].fabric.name, "roce-mi300x");
    CHECK_INT(parse("{\"accelerator\": \"b300\", \"nodes\": 2}", &c), 0);
    CHECK_STR(c.group[0].fabric.name, "ib-xdr");
}

static void test_network(void)
{
    struct cluster c;
    CHECK_INT(
        parse(
            "{\"accelerator\": \"h100-sxm\", \"nodes\": 4, \"inter_node\": {\"nics_per_node\": 1, \"nic_gbps\": 100, \"rdma\": false}}",
            &c),
        0);
    CHECK_STR(c.group[0].fabric.name, "ethernet-tcp");
    CHECK_DOUBLE(c.group[0].nic_bytes_per_s, 12.5e9, 1e-12);
    CHECK_INT(
        parse("{\"accelerator\": \"h100-sxm\", \"nodes\": 4, \"inter_node\": {\"fabric\": \"ethernet-tcp\"}}", &c), 0);
    CHECK(!c.group[0].rdma);
    CHECK_INT(
        parse(
            "{\"accelerator\": \"h100-sxm\", \"nodes\": 4, \"inter_node\": {\"fabric\": \"ib-ndr\", \"rdma\": false}}",
            &c),
        0);
    CHECK_STR(c.group[0].fabric.name, "ethernet-tcp");
    CHECK_CONTAINS(warn.text, "'ib-ndr' is priced as TCP sockets");
    CHECK_INT(
        parse("{\"accelerator\": \"a100-sxm-80gb\", \"nodes\": 4, \"inter_node\": {\"oversubscription\": 2}}", &c), 0);
    CHECK_INT(c.group[0].nodes_per_leaf, 1);
    CHECK_CONTAINS(warn.text, "every node is taken for a leaf of its own");
    CHECK_STR(c.group[0].fabric.name, "ib-hdr");
    CHECK_INT(
        parse(
            "{\"accelerator\": \"h100-sxm\", \"nodes\": 4, \"inter_node\": {\"fabric\": {\"base\": \"roce\", \"ar_eta\": 0.5}}}",
            &c),
        0);
    CHECK_DOUBLE(c.group[0].fabric.ar_eta, 0.5, 0);
    CHECK_STR(c.group[0].fabric.name, "roce*");
    CHECK_INT(c.group[0].fabric.link_class, LINK_ROCE);
}

/* An accelerator of one's own needs no usual link where intra_node names one, wherever it stands. */
static void test_own_link(void)
{
#define MINE "\"accelerator\": {\"name\": \"mine\", \"memory_bytes\": \"80GiB\", \"peak_16bit_flop_per_s\": \"900TFLOP/s\", \"hbm_bytes_per_s\": \"3TB/s\"," \
             " \"sm_count\": 132, \"gemm\": {\"16bit\": {\"eff\": 0.7}}, \"attention\": {\"128\": {\"eff\": 0.6}}"
    struct cluster c;
    CHECK_INT(parse("{" MINE "}, \"nodes\": 1, \"accelerators_per_node\": 8, \"intra_node\": {\"link\": \"nvlink4\"}}", &c), 0);
    CHECK_STR(err.text, "");
    CHECK_STR(c.group[0].intra.name, "nvlink4");
    CHECK_INT(parse("{\"groups\": [{" MINE "}, \"nodes\": 1, \"accelerators_per_node\": 8}], \"intra_node\": {\"link\": \"nvlink3\"}}", &c), 0);
    CHECK_STR(c.group[0].intra.name, "nvlink3");
    CHECK_INT(parse("{\"groups\": [{" MINE ", \"default_link\": \"nvlink4\"}, \"nodes\": 1, \"accelerators_per_node\": 8}], \"intra_node\": {\"link\": \"nvlink3\"}}", &c), 0);
    CHECK_STR(c.group[0].intra.name, "nvlink4"); /* its own */
    refused("{" MINE "}, \"nodes\": 1, \"accelerators_per_node\": 8}", "state field 'intra_node.link' (as in {\"link\": \"nvlink4\"}), or default_link or a 'base' in accelerator 'mine'");
    refused("{\"groups\": [{" MINE "}, \"nodes\": 1, \"accelerators_per_node\": 8}]}", "state field 'groups[0].intra_node.link'");
    refused("{" MINE ", \"default_link\": \"nvlink44\"}, \"nodes\": 1, \"accelerators_per_node\": 8}", "usual link of accelerator 'mine'");
#undef MINE
}

static void test_inline(void)
{
    struct cluster c;
    CHECK_INT(
        parse(
            "{\"accelerator\": {\"base\": \"h100-sxm\", \"name\": \"h100-half\", \"hbm_bytes_per_s\": \"1.6TB/s\", \"memory_bytes\": \"40 GiB\","
            " \"gemm\": {\"16bit\": {\"eff\": 0.5}}, \"attention\": {\"128\": {\"eff\": 0.4}, \"96\": {\"eff\": 0.3}}}, \"nodes\": 1,"
            " \"intra_node\": {\"link\": {\"base\": \"nvlink4\", \"bytes_per_s\": 200e9}}}",
            &c),
        0);
    const struct accelerator *a = &c.group[0].accelerator;
    CHECK_STR(a->name, "h100-half");
    CHECK_DOUBLE(a->hbm_bytes_per_s, 1.6e12, 1e-12);
    CHECK_DOUBLE(a->memory_bytes, 40.0 * 1073741824.0, 0);
    CHECK_DOUBLE(a->gemm[RATE_16BIT].eff, 0.5, 0);
    CHECK(a->gemm[RATE_16BIT].throttle > 0); /* the rest of the form is the base's */
    CHECK_INT(a->n_attention, 5);
    CHECK_INT(a->provenance, PROVENANCE_ASSUMED);
    CHECK_DOUBLE(c.group[0].intra.bytes_per_s, 200e9, 0);
    CHECK_INT(c.group[0].intra.n_curves[COLLECTIVE_ALL_REDUCE], 0); /* measured at another rate */
    CHECK_INT(parse("{\"accelerator\": {\"base\": \"t4\", \"name\": \"mine\"}, \"nodes\": 1}", &c), 0);
    CHECK(c.accelerator.lacks_bf16); /* whatever it is called */
    CHECK_INT(parse("{\"accelerator\": {\"base\": \"h100-sxm\"}, \"nodes\": 1}", &c), 0);
    CHECK_STR(c.group[0].accelerator.name, "h100-sxm*");
    CHECK(c.group[0].intra.n_curves[COLLECTIVE_ALL_REDUCE] > 0); /* the base's curves */
    refused("{\"accelerator\": {\"peak_16bit_flop_per_s\": 1e14}, \"nodes\": 1}",
            "field 'accelerator.hbm_bytes_per_s' is missing; state it, or name a 'base'");
    refused("{\"accelerator\": {\"base\": \"h100-sxm\", \"memory_bytes\": \"80\"}, \"nodes\": 1}",
            "must be a number with one of the units B, MB, GB, MiB, GiB");
    refused("{\"accelerator\": {\"base\": \"h100-sxm\", \"memory_bytes\": -1}, \"nodes\": 1}",
            "field 'accelerator.memory_bytes' is -1; allowed: ");
    refused("{\"accelerator\": {\"base\": \"h100\"}, \"nodes\": 1}",
            "field 'accelerator': unknown accelerator 'h100'; nearest: 'h100-sxm'");
    refused("{\"accelerator\": {\"base\": \"h100-sxm\", \"memory_byte\": 1}, \"nodes\": 1}",
            "did you mean 'memory_bytes'?");
    refused("{\"accelerator\": {\"base\": \"h100-sxm\", \"attention\": {\"wide\": {}}}, \"nodes\": 1}",
            "is no head dimension");
}

static void test_groups(void)
{
    struct cluster c;
    CHECK_INT(
        parse(
            "{\"accelerator\": \"h100-sxm\", \"nodes\": 8, \"inter_node\": {\"nics_per_node\": 8, \"nic_gbps\": 400},"
            " \"groups\": [{\"nodes\": 4}, {\"nodes\": 2, \"inter_node\": {\"nics_per_node\": 1, \"nic_gbps\": 100, \"rdma\": false}}]}",
            &c),
        0);
    CHECK_INT(c.n_groups, 2);
    CHECK_INT(c.accelerators, 48);
    CHECK_CONTAINS(warn.text, "field 'nodes' is 8 and is ignored: 'groups' hold 6");
    CHECK_STR(c.group[0].fabric.name, "ib-ndr");
    CHECK_STR(c.group[1].fabric.name, "ethernet-tcp");
    CHECK_STR(c.accelerator.name, "h100-sxm");
    CHECK_INT(
        parse("{\"accelerator\": \"h100-sxm\", \"intra_node\": {\"link\": \"nvlink4\"}, \"groups\": [{\"nodes\": 1},"
              " {\"nodes\": 1, \"accelerator\": \"a100-sxm-80gb\"}]}",
              &c),
        0);
    CHECK_STR(c.group[1].intra.name, "nvlink3"); /* its own accelerator brings its own link */
    CHECK_INT(c.group[1].accelerator.sm_count, 108);
}

/* Two kinds: every respect the worst, never an average. */
static void test_slowest(void)
{
    struct cluster c;
    struct accelerator h, a;
    CHECK_INT(profile_accelerator(profile, "h100-sxm", &h, &err), 0);
    CHECK_INT(profile_accelerator(profile, "a100-sxm-80gb", &a, &err), 0);
    CHECK_INT(
        parse(
            "{\"groups\": [{\"nodes\": 1, \"accelerator\": \"h100-sxm\"}, {\"nodes\": 3, \"accelerator\": \"a100-sxm-80gb\"}]}",
            &c),
        0);
    CHECK_CONTAINS(warn.text, "mixed accelerators (h100-sxm+a100-sxm-80gb)");
    CHECK_DOUBLE(c.accelerator.peak_flop_per_s[RATE_16BIT], a.peak_flop_per_s[RATE_16BIT], 0);
    CHECK_DOUBLE(c.accelerator.peak_flop_per_s[RATE_FP8], 0, 0);
    CHECK_DOUBLE(c.accelerator.gemm[RATE_FP8].eff, 0, 0);
    CHECK_DOUBLE(c.accelerator.memory_bytes, h.memory_bytes < a.memory_bytes ? h.memory_bytes : a.memory_bytes, 0);
    CHECK_DOUBLE(c.accelerator.hbm_bytes_per_s, a.hbm_bytes_per_s, 0);
    CHECK_DOUBLE(c.accelerator.gemm[RATE_16BIT].eff, a.gemm[RATE_16BIT].eff, 1e-12);
    CHECK_DOUBLE(c.accelerator.gemm[RATE_16BIT].t0_s, a.gemm[RATE_16BIT].t0_s, 0);
    CHECK_DOUBLE(c.accelerator.sustained, h.sustained, 0);
    CHECK_DOUBLE(c.accelerator.context_bytes, a.context_bytes, 0);
    for (int i = 0; i < c.accelerator.n_attention; i++)
        CHECK(c.accelerator.attention[i].eff > 0 && c.accelerator.attention[i].eff <= 1);
    CHECK_INT(
        parse(
            "{\"groups\": [{\"nodes\": 1, \"accelerator\": \"l40s\"}, {\"nodes\": 1, \"accelerator\": \"v100-sxm-32gb\"}]}",
            &c),
        0);
    CHECK(c.group[1].accelerator.lacks_bf16 && !c.group[0].accelerator.lacks_bf16);
    /* Written into the file, without names of their own: told apart by what they are, in any order. */
    static const char *const inlined[] = {
        "{\"groups\": [{\"nodes\": 1, \"accelerator\": {\"base\": \"h100-sxm\"}}, {\"nodes\": 1, \"accelerator\": {\"base\": \"h100-sxm\", \"memory_bytes\": 40e9}}]}",
        "{\"groups\": [{\"nodes\": 1, \"accelerator\": {\"base\": \"h100-sxm\", \"memory_bytes\": 40e9}}, {\"nodes\": 1, \"accelerator\": {\"base\": \"h100-sxm\"}}]}"};
    for (int i = 0; i < 2; i++) {
        struct cluster mixed;
        CHECK_INT(parse(inlined[i], &mixed), 0);
        CHECK_DOUBLE(mixed.accelerator.memory_bytes, 40e9, 0);
        CHECK_CONTAINS(warn.text, "mixed accelerators");
    }
    struct cluster alike;
    CHECK_INT(parse("{\"groups\": [{\"nodes\": 1, \"accelerator\": {\"base\": \"h100-sxm\"}}, {\"nodes\": 2, \"accelerator\": {\"base\": \"h100-sxm\"}}]}", &alike), 0);
    CHECK(strstr(warn.text, "mixed") == NULL);
    double rate = c.accelerator.peak_flop_per_s[RATE_16BIT] * c.accelerator.gemm[RATE_16BIT].eff;
    CHECK_DOUBLE(rate, 125e12 * 0.8, 1e-9); /* V100's achieved rate, though L40S has the lower efficiency */
}

static void test_mistakes(void)
{
    struct cluster c;
    refused("[]", "file 'hw.json' is a list; a cluster is an object");
    refused("{}", "field 'accelerator' is missing");
    CHECK_CONTAINS(err.text, "field 'nodes' is missing"); /* both at once */
    refused("{\"accelerator\": \"h100-sxm\"}", "field 'nodes' is missing");
    refused("{\"accelerator\": \"h100-sxm\", \"nodes\": 0}", "field 'nodes' is 0; allowed: 1 to 1000000");
    refused("{\"accelerator\": \"h100-sxm\", \"nodes\": -3}", "field 'nodes' is -3");
    refused("{\"accelerator\": \"h100-sxm\", \"nodes\": 2.5}", "field 'nodes' is 2.5; it must be a whole number");
    refused("{\"accelerator\": \"h100-sxm\", \"nodes\": \"4\"}", "field 'nodes' is a string");
    refused("{\"accelerator\": \"h100-sxm\", \"nodes\": 1e300}", "field 'nodes' is 1e+300");
    refused("{\"accelerator\": \"h100-sxm\", \"nodes\": 200000}", "1600000 accelerators in all; at most 1000000");
    refused("{\"accelerator\": \"h100-sxm\", \"nodes\": 4, \"accelerators_per_node\": 0}",
            "field 'accelerators_per_node' is 0");
    refused("{\"accelerator\": \"h100-sxn\", \"nodes\": 4}",
            "file 'hw.json': field 'accelerator': unknown accelerator 'h100-sxn'; nearest: 'h100-sxm'");
    refused("{\"accelerator\": 5, \"nodes\": 4}", "field 'accelerator' is a number; it must be a name or an object");
    refused("{\"accelerator\": \"h100-sxm\", \"nodes\": 4, \"intra_node\": {\"link\": \"nvlnk4\"}}",
            "field 'intra_node.link': unknown link 'nvlnk4'; nearest: 'nvlink4'");
    refused("{\"accelerator\": \"h100-sxm\", \"nodes\": 4, \"inter_node\": {\"fabric\": \"infiniband\"}}",
            "field 'inter_node.fabric': unknown fabric 'infiniband'");
    refused("{\"accelerator\": \"h100-sxm\", \"nodes\": 4, \"inter_node\": {\"nic_gbs\": 400}}",
            "field 'inter_node.nic_gbs' is unknown; did you mean 'nic_gbps'?");
    refused("{\"accelerator\": \"h100-sxm\", \"nodes\": 4, \"inter_node\": {\"oversubscription\": 0.5}}",
            "field 'inter_node.oversubscription' is 0.5");
    refused("{\"accelerator\": \"h100-sxm\", \"nodes\": 4, \"inter_node\": {\"rdma\": \"yes\"}}",
            "field 'inter_node.rdma' is a string");
    refused("{\"accelerator\": \"h100-sxm\", \"nodes\": 4, \"inter_node\": []}", "field 'inter_node' is a list");
    refused("{\"accelerator\": \"h100-sxm\", \"nodes\": 4, \"usable_memory\": 1.5}", "field 'usable_memory' is 1.5");
    refused("{\"accelerator\": \"h100-sxm\", \"nodes\": 4, \"price_per_accelerator_hour\": -2}",
            "field 'price_per_accelerator_hour' is -2");
    refused("{\"accelerator\": \"h100-sxm\", \"nodes\": 4, \"mtbf_hours_per_accelerator\": 0}",
            "field 'mtbf_hours_per_accelerator' is 0");
    refused("{\"accelerator\": \"h100-sxm\", \"nods\": 4}", "field 'nods' is unknown; did you mean 'nodes'?");
    refused("{\"accelerator\": \"h100-sxm\", \"groups\": []}", "field 'groups' has 0 entries; allowed: 1 to 8");
    refused("{\"accelerator\": \"h100-sxm\", \"groups\": {}}", "field 'groups' is an object; it must be a list");
    refused("{\"accelerator\": \"h100-sxm\", \"groups\": [3]}", "field 'groups[0]' is a number; it must be an object");
    refused("{\"accelerator\": \"h100-sxm\", \"groups\": [{\"nodes\": 1}, {\"nodes\": 0}]}",
            "field 'groups[1].nodes' is 0");
    refused("{\"accelerator\": \"h100-sxm\", \"groups\": [{\"nodes\": 1, \"inter_node\": {\"nics_per_node\": 0}}]}",
            "field 'groups[0].inter_node.nics_per_node' is 0");
    /* one mistake at the top is said once, whatever the number of groups; others are said as well */
    refused(
        "{\"accelerator\": \"h100-sxm\", \"inter_node\": {\"nic_gbps\": 0}, \"usable_memory\": 0, \"groups\": [{\"nodes\": 1}, {\"nodes\": 2}, {\"nodes\": 3}]}",
        "field 'inter_node.nic_gbps' is 0");
    CHECK_INT(err.count, 2);
    CHECK_INT(
        parse(
            "{\"accelerator\": \"h100-sxm\", \"nodes\": 4, \"comment\": \"ours\", \"price_per_accelerator_hour\": null}",
            &c),
        0);
    CHECK_CONTAINS(warn.text, "field 'comment' is unknown and ignored");
}

static void test_examples(void)
{
    char path[TEST_PATH_MAX], file[TEST_PATH_MAX + 300];
    DIR *directory = opendir(test_source_path(path, "hwprofiles/clusters"));
    int files = 0;
    if (!CHECK(directory != NULL))
        return;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        struct cluster c;
        if (strstr(entry->d_name, ".json") == NULL)
            continue;
        snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        err_clear(&err);
        err_clear(&warn);
        if (!CHECK_INT(cluster_load(file, profile, &c, &warn, &err), 0))
            printf("%s\n", err.text);
        CHECK(warn.count <= 1);
        CHECK(strncmp(c.name, entry->d_name, strlen(c.name)) == 0); /* the file is called after the cluster */
        files++;
    }
    closedir(directory);
    CHECK(files >= 15);
    err_clear(&err);
    struct cluster c;
    CHECK_INT(cluster_load(test_source_path(file, "hwprofiles/clusters/llama3-405b-h100-x2048.json"), profile, &c,
                           &warn, &err),
              0);
    CHECK_INT(c.accelerators, 16384);
    CHECK_INT(
        cluster_load(test_source_path(file, "hwprofiles/clusters/selene-a100-x640.json"), profile, &c, &warn, &err), 0);
    CHECK_INT(c.accelerators, 5120);
    CHECK_INT(cluster_load(test_source_path(file, "hwprofiles/clusters/h800-x256.json"), profile, &c, &warn, &err), 0);
    CHECK_INT(c.accelerators, 2048);
    CHECK(cluster_load("/nonexistent/hw.json", profile, &c, &warn, &err) < 0);
}

int main(void)
{
    unsetenv("PLANSIM_PROFILE");
    if (!CHECK_INT(profile_open(NULL, &profile, &err), 0)) {
        printf("%s\n", err.text);
        return test_report();
    }
    test_defaults();
    test_network();
    test_inline();
    test_own_link();
    test_groups();
    test_slowest();
    test_mistakes();
    test_examples();
    profile_close(profile);
    return test_report();
}

/* The profile store: what the shipped one holds, conversions of units, CSV in and
 * out, layering, and files that must be refused without being touched. */
#include <math.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cost/base/err.h"
#include "cost/base/file.h"
#include "cost/kernel.h"
#include "cost/profile.h"
#include "cost/profile_hash.h"
#include "cost/profile_rows.h"
#include "cost/profile_store.h"
#include "tests/unit/test.h"

static char directory[] = "/tmp/test_profile.XXXXXX";

static const char *path_of(const char *name)
{
    static char buffers[4][TEST_PATH_MAX];
    static int next;
    next = (next + 1) % 4;
    snprintf(buffers[next], TEST_PATH_MAX, "%s/%s", directory, name);
    return buffers[next];
}

static void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (CHECK(file != NULL)) {
        CHECK_INT(fwrite(data, 1, bytes, file), bytes);
        fclose(file);
    }
}

static size_t read_whole(const char *path, char **ret)
{
    FILE *file = fopen(path, "rb");
    size_t n = 0;
    *ret = NULL;
    if (file == NULL)
        return 0;
    fseek(file, 0, SEEK_END);
    n = (size_t)ftell(file);
    rewind(file);
    *ret = malloc(n + 1);
    n = fread(*ret, 1, n, file);
    fclose(file);
    return n;
}

static void hash_file(const char *path, char hex[65])
{
    struct profile_hash hash;
    char *data;
    size_t n = read_whole(path, &data);
    profile_hash_init(&hash);
    profile_hash_add(&hash, data, n);
    profile_hash_hex(&hash, hex);
    free(data);
}

static void test_hash(void)
{
    static const struct {
        const char *text, *hex;
    } vectors[] = {
        /* FIPS 180-4 examples */
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    char hex[65], block[1000];
    struct profile_hash hash;
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        profile_hash_init(&hash);
        profile_hash_add(&hash, vectors[i].text, strlen(vectors[i].text));
        profile_hash_hex(&hash, hex);
        CHECK_STR(hex, vectors[i].hex);
    }
    memset(block, 'a', sizeof(block));
    profile_hash_init(&hash);
    for (int i = 0; i < 1000; i++) /* a million times 'a', in odd pieces */
        profile_hash_add(&hash, block, 333), profile_hash_add(&hash, block, 667);
    profile_hash_hex(&hash, hex);
    CHECK_STR(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void test_shipped(void)
{
    static const char *const needed[] = {"v100-sxm-32gb",
                                         "v100-sxm-16gb",
                                         "a100-sxm-40gb",
                                         "a100-sxm-80gb",
                                         "a100-pcie-80gb",
                                         "a800-sxm",
                                         "h100-sxm",
                                         "h100-96gb-500w",
                                         "h800-sxm",
                                         "h200-sxm",
                                         "l40s",
                                         "b200-sxm",
                                         "b300",
                                         "gb200",
                                         "gb300",
                                         "mi300x",
                                         NULL};
    static const char *const fabrics[] = {"ib-edr", "ib-hdr",    "ib-ndr",       "ib-xdr", "roce",
                                          "efa",    "slingshot", "ethernet-tcp", NULL};
    static const char *const stacks[] = {"megatron",   "megatron-deepspeed", "fsdp1",     "fsdp2",
                                         "torchtitan", "nanotron",           "deepspeed", NULL};
    struct err err = {0};
    struct profile *profile;
    struct accelerator a;
    struct link_profile link;
    struct fabric_profile fabric;
    struct stack stack;
    if (!CHECK_INT(profile_open(NULL, &profile, &err), 0)) {
        printf("%s\n", err.text);
        return;
    }
    for (int i = 0; needed[i] != NULL; i++) {
        CHECK_INT(profile_accelerator(profile, needed[i], &a, &err), 0);
        CHECK_INT(profile_link(profile, a.default_link, needed[i], &link, &err), 0);
        CHECK(a.gemm[RATE_16BIT].eff > 0.3 && a.gemm[RATE_16BIT].eff < 0.95);
        CHECK(a.peak_flop_per_s[RATE_FP8] <= 0 || (a.gemm[RATE_FP8].eff > 0 && a.expert[RATE_FP8].eff > 0));
        CHECK(a.peak_flop_per_s[RATE_FP4] <= 0 || (a.gemm[RATE_FP4].eff > 0 && a.expert[RATE_FP4].eff > 0));
        CHECK(a.expert[RATE_16BIT].eff > 0 && a.n_attention >= 2 && a.context_bytes > 0 && a.nic_bytes_per_s > 0);
        for (int j = 0; j < a.n_attention; j++)
            CHECK(a.attention[j].eff > 0 && a.attention[j].backward > 0 &&
                  (j == 0 || a.attention[j].head_dim > a.attention[j - 1].head_dim));
    }
    for (int i = 0; fabrics[i] != NULL; i++)
        CHECK_INT(profile_fabric(profile, fabrics[i], NULL, &fabric, &err), 0);
    for (int i = 0; stacks[i] != NULL; i++)
        CHECK_INT(profile_stack(profile, stacks[i], &stack, &err), 0);
    CHECK_INT(err.count, 0);
    CHECK_INT(profile_accelerator(profile, "h100-sxm", &a, &err), 0);
    CHECK_DOUBLE(a.peak_flop_per_s[RATE_16BIT], 989e12, 1e-12); /* dense, not 1,979 with sparsity */
    CHECK_DOUBLE(a.memory_bytes, 84943110144.0, 0);
    CHECK_DOUBLE(a.hbm_bytes_per_s, 3.35e12, 1e-12);
    CHECK_INT(a.provenance, PROVENANCE_MEASURED);
    CHECK_INT(profile_accelerator(profile, "gb200", &a, &err), 0);
    CHECK_INT(a.default_per_node, 4);
    CHECK_DOUBLE(a.gemm[RATE_16BIT].throttle, 0, 0); /* its own form whole, nothing of its base's */
    CHECK_INT(profile_link(profile, "nvlink4-h800", "h800-sxm", &link, &err), 0);
    CHECK_DOUBLE(link.bytes_per_s, 200e9, 1e-12);
    CHECK_INT(profile_fabric(profile, "ib-ndr", NULL, &fabric, &err), 0);
    CHECK_DOUBLE(fabric.ar_h3_s, 95e-6, 1e-12);
    CHECK_INT(strlen(profile_sha256(profile)), 64);
    CHECK_STR(profile_name(profile), "default");
    profile_close(profile);
}

static void test_unknown(void)
{
    struct err err = {0};
    struct profile *profile;
    struct accelerator a;
    struct stack stack;
    if (!CHECK_INT(profile_open(NULL, &profile, &err), 0))
        return;
    CHECK(profile_accelerator(profile, "h100-sxn", &a, &err) < 0);
    CHECK_CONTAINS(err.text, "unknown accelerator 'h100-sxn'; nearest: 'h100-sxm'; known: a10, a100-pcie-40gb, ");
    err_clear(&err);
    CHECK(profile_accelerator(profile, "h100", &a, &err) < 0);
    CHECK_CONTAINS(err.text, "nearest: 'h100-sxm'");
    err_clear(&err);
    CHECK(profile_stack(profile, "nothing-like-it", &stack, &err) < 0);
    CHECK_CONTAINS(err.text, "unknown stack 'nothing-like-it'; known: ");
    profile_close(profile);
}

/* nccl-tests rows, half precision: rank count, bytes ("size"), time in us as measured (aiconfigurator 095f58a,
 * NCCL 2.27.3), and what the form may be off by: twice the p90 error that its fit states. */
static void test_curves(void)
{
    static const struct {
        const char *accelerator, *link;
        enum collective_op op;
        int ranks;
        double bytes, time_us, off;
    } rows[] = {
        {"h100-sxm", "nvlink4", COLLECTIVE_ALL_REDUCE, 8, 65536, 18.66, 0.084},
        {"h100-sxm", "nvlink4", COLLECTIVE_ALL_REDUCE, 8, 16777216, 122.29, 0.084},
        {"h100-sxm", "nvlink4", COLLECTIVE_ALL_REDUCE, 8, 536870912, 2111.7, 0.084},
        {"h100-sxm", "nvlink4", COLLECTIVE_ALL_GATHER, 8, 1048576, 17.0, 0.152},
        {"h100-sxm", "nvlink4", COLLECTIVE_ALL_GATHER, 8, 134217728, 389.33, 0.152},
        {"a100-sxm-80gb", "nvlink3", COLLECTIVE_REDUCE_SCATTER, 8, 16777216, 123.4, 0.116},
        {"a100-sxm-80gb", "nvlink3", COLLECTIVE_REDUCE_SCATTER, 8, 536870912, 2207.1, 0.116},
        {"a100-sxm-40gb", "nvlink3", COLLECTIVE_ALL_REDUCE, 4, 134217728, 1000.5,
         0.112}, /* same chip: the 80 GB's curves */
        {"b200-sxm", "nvlink5", COLLECTIVE_ALL_TO_ALL, 8, 16777216, 50.02, 0.092},
        {"b200-sxm", "nvlink5", COLLECTIVE_ALL_TO_ALL, 8, 536870912, 834.41, 0.092},
        {"b200-sxm", "nvlink5", COLLECTIVE_ALL_REDUCE, 2, 134217728, 269.24, 0.084},
    };
    struct err err = {0};
    struct profile *profile;
    if (!CHECK_INT(profile_open(NULL, &profile, &err), 0))
        return;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct link_profile link;
        double factor = (rows[i].op == COLLECTIVE_ALL_REDUCE ? 2.0 : 1.0) * (rows[i].ranks - 1) / rows[i].ranks,
               best = (double)INFINITY;
        CHECK_INT(profile_link(profile, rows[i].link, rows[i].accelerator, &link, &err), 0);
        for (int c = 0; c < link.n_curves[rows[i].op]; c++) {
            const struct alpha_beta *curve = &link.curve[rows[i].op][c];
            for (int l = 0; l < curve->n_lines && curve->ranks == rows[i].ranks; l++)
                best = fmin(best, curve->line[l].alpha_s + rows[i].bytes * factor / curve->line[l].bytes_per_s);
        }
        CHECK_DOUBLE(best, rows[i].time_us * 1e-6, rows[i].off);
    }
    struct link_profile rack;
    CHECK_INT(profile_link(profile, "nvlink5", "gb200", &rack, &err), 0);
    CHECK_INT(rack.curve[COLLECTIVE_ALL_REDUCE][rack.n_curves[COLLECTIVE_ALL_REDUCE] - 1].ranks, 72);
    profile_close(profile);
}

#define HEADER "table,name,key,field,value,unit,low,high,provenance,date,source\n"

static int parse(const char *text, struct profile_rows *rows, struct err *err)
{
    *rows = (struct profile_rows){0};
    return profile_csv_parse(text, strlen(text), "x.csv", rows, err);
}

static void refused(const char *text, const char *why)
{
    struct profile_rows rows;
    struct err err = {0};
    CHECK(parse(text, &rows, &err) < 0);
    CHECK_CONTAINS(err.text, why);
    profile_rows_release(&rows);
}

static void test_csv(void)
{
    struct profile_rows rows;
    struct err err = {0};
    CHECK_INT(parse("# a comment\r\n" HEADER
                    "\r\nlink,my-link,,bytes_per_s,50,GB/s,40,60,measured,2026-01,\"me, \"\"myself\"\"\"\r\n"
                    "link,my-link,,link_class,pcie,name,,,measured,2026-01-31,x",
                    &rows, &err),
              0);
    CHECK_INT(rows.n, 2);
    CHECK_STR(rows.row[0].source, "me, \"myself\"");
    CHECK_DOUBLE(rows.row[0].value, 50, 0);
    CHECK_STR(rows.row[1].text, "pcie");
    profile_rows_release(&rows);
    refused("", "has no header");
    refused("a,b,c\n", "the header must be table,name,key");
    refused(HEADER "links,x,,bytes_per_s,1,GB/s,,,measured,2026,s\n",
            "'x.csv' line 2: unknown table 'links'; known: accelerator, ");
    refused(HEADER "link,x,,bytes_per_second,1,GB/s,,,measured,2026,s\n", "has no field 'bytes_per_second'");
    refused(HEADER "link,x,,bytes_per_s,1,GiB/s,,,measured,2026,s\n",
            "has the unit 'GiB/s'; allowed: B/s, MB/s, GB/s, TB/s, Gbit/s");
    refused(HEADER "link,x,,bytes_per_s,0,GB/s,,,measured,2026,s\n", "bytes_per_s is 0 GB/s; allowed: ");
    refused(HEADER "link,x,,bytes_per_s,-4,GB/s,,,measured,2026,s\n", "bytes_per_s is -4 GB/s");
    refused(HEADER "link,x,,bytes_per_s,nan,GB/s,,,measured,2026,s\n", "value 'nan' is not a finite number");
    refused(HEADER "link,x,,bytes_per_s,1e400,GB/s,,,measured,2026,s\n", "value '1e400' is not a finite number");
    refused(HEADER "link,x,,bytes_per_s,50,GB/s,60,70,measured,2026,s\n",
            "the range 60..70 does not hold the value 50");
    refused(HEADER "link,x,,bytes_per_s,fast,name,,,measured,2026,s\n", "must be a number");
    refused(HEADER "link,x,,link_class,pci,name,,,measured,2026,s\n", "link_class is 'pci'; known: nvlink, pcie, ");
    refused(HEADER "link,x,,bytes_per_s,1,GB/s,,,guessed,2026,s\n",
            "unknown provenance 'guessed'; known: measured, published, datasheet, assumed");
    refused(HEADER "link,x,,bytes_per_s,1,GB/s,,,measured,soon,s\n", "date 'soon' is not YYYY");
    refused(HEADER "link,x,,bytes_per_s,1,GB/s,,,measured,2026-13,s\n", "date '2026-13' is not YYYY");
    refused(HEADER "link,x,,bytes_per_s,1,GB/s,,,measured,2026,\n", "source is missing");
    refused(HEADER "link,x y,,bytes_per_s,1,GB/s,,,measured,2026,s\n", "'x y' is not a name");
    refused(HEADER "link,x,8,bytes_per_s,1,GB/s,,,measured,2026,s\n", "key '8': a row of table 'link' has none");
    refused(HEADER "gemm,x,bf16,eff,0.8,1,,,measured,2026,s\n",
            "key 'bf16' is no rate class; known: fp32, tf32, 16bit, fp8, fp4");
    refused(HEADER "attention,x,wide,eff,0.8,1,,,measured,2026,s\n", "key 'wide' is no head dimension");
    refused(HEADER "alpha_beta,x,y/all_reduce/8/1,alpha_s,8,us,,,measured,2026,s\n",
            "is not accelerator/op/ranks/level/line");
    refused(HEADER "kernel_point,x,gemm/4096,time_s,8,us,,,measured,2026,s\n", "is not kernel/variant/shape");
    refused(HEADER "accelerator,x,,sm_count,1.5,1,,,measured,2026,s\n", "sm_count is 1.5, not a whole number");
    refused(HEADER "link,x,,bytes_per_s,1,GB/s,,,measured,2026\n", "10 cells; expected 11");
    refused(HEADER "link,x,,bytes_per_s,1,GB/s,,,measured,2026,s,t\n", "more than 11 cells");
    refused(HEADER "link,x,,bytes_per_s,1,GB/s,,,measured,2026,\"s\n", "a quote is not closed");
    refused(HEADER "link,x,,bytes_per_s,1,GB/s,,,measured,2026,s\nlink,x,,bytes_per_s,2,GB/s,,,measured,2026,s\n",
            "'x.csv' line 3: link 'x' bytes_per_s is there already, on line 2");
    struct err two = {0}; /* all bad lines at once */
    CHECK(parse(HEADER "link,x,,bytes_per_s,0,GB/s,,,measured,2026,s\nlink,x,,hop_s,-1,us,,,measured,2026,s\n", &rows,
                &two) < 0);
    CHECK_INT(two.count, 2);
    profile_rows_release(&rows);
    CHECK(profile_csv_parse("a\0b", 3, "x.csv", &rows, NULL) < 0);
}

enum { OWN_ROWS = 14 };
static const char own_rows[] =
    HEADER "accelerator,my-gpu,,base,h100-sxm,name,,,assumed,2026,like an H100\n"
           "accelerator,my-gpu,,memory_bytes,40,GiB,,,measured,2026,me\n"
           "gemm,my-gpu,16bit,eff,0.5,1,0.4,0.6,measured,2026,me\n"
           "kernel_point,my-gpu,gemm/16bit/4096x8192x1024,time_s,123,us,,,measured,2026,me\n"
           "residual,my-gpu,megatron/dense,factor,1.02,1,,,measured,2026,me\n"
           "alpha_beta,nvlink4,my-gpu/all_reduce/4/node/1,alpha_s,9,us,,,measured,2026,me\n"
           "alpha_beta,nvlink4,my-gpu/all_reduce/4/node/1,bytes_per_s,300,GB/s,,,measured,2026,me\n"
           "kernel_point,my-gpu,wgrad/16bit/4096x8192x1024,time_s,150,us,,,measured,2026,me\n"
           "alpha_beta,nvlink4,my-gpu/all_gather/4/node/1,alpha_s,5,us,,,measured,2026,me\n"
           "alpha_beta,nvlink4,my-gpu/all_gather/4/node/1,bytes_per_s,300,GB/s,,,measured,2026,me\n"
           "alpha_beta,nvlink4,my-gpu/all_gather/4/node/2,alpha_s,0,us,,,measured,2026,me\n"
           "alpha_beta,nvlink4,my-gpu/all_gather/4/node/2,bytes_per_s,100,GB/s,,,measured,2026,me\n"
           "alpha_beta,nvlink4,my-gpu/all_gather/4/node/2,from_bytes,8,MB,,,measured,2026,me\n"
           "stack,megatron,,gemm_speed,0.9,1,,,measured,2026,me\n";

static const char *write_own(const char *name)
{
    struct profile_rows rows;
    struct err err = {0};
    const char *path = path_of(name);
    unlink(path);
    CHECK_INT(parse(own_rows, &rows, &err), 0);
    if (!CHECK_INT(profile_store_write(path, &rows, "2026-01-01", &err), 0))
        printf("%s\n", err.text);
    profile_rows_release(&rows);
    return path;
}

static void test_layer(void)
{
    struct err err = {0};
    struct profile *profile;
    struct accelerator own, h100;
    struct link_profile link;
    struct stack stack;
    char before[65];
    const char *path = write_own("layer.db");
    if (!CHECK_INT(profile_open(NULL, &profile, &err), 0))
        return;
    snprintf(before, sizeof(before), "%s", profile_sha256(profile));
    CHECK_INT(profile_layer(profile, path, &err), 0);
    CHECK(strcmp(before, profile_sha256(profile)) != 0);
    CHECK_STR(profile_name(profile), "default + layer.db");
    CHECK_INT(profile_accelerator(profile, "my-gpu", &own, &err), 0);
    CHECK_INT(profile_accelerator(profile, "h100-sxm", &h100, &err), 0);
    CHECK_DOUBLE(own.memory_bytes, 40.0 * 1073741824.0, 0);
    CHECK_DOUBLE(own.hbm_bytes_per_s, h100.hbm_bytes_per_s, 0);
    CHECK_DOUBLE(own.gemm[RATE_16BIT].eff, 0.5, 0);
    CHECK_DOUBLE(own.gemm[RATE_16BIT].throttle, 0, 0); /* a form is taken whole: nothing of h100-sxm's */
    CHECK_DOUBLE(own.attention[0].eff, h100.attention[0].eff, 0);
    CHECK_INT(own.attention[0].provenance, PROVENANCE_ASSUMED); /* inherited by an assumption */
    CHECK_INT(profile_link(profile, "nvlink4", "my-gpu", &link, &err), 0);
    CHECK_INT(link.n_curves[COLLECTIVE_ALL_REDUCE], 1);
    CHECK_DOUBLE(link.curve[COLLECTIVE_ALL_REDUCE][0].line[0].bytes_per_s, 300e9, 0);
    CHECK_INT(profile_stack(profile, "megatron", &stack, &err), 0);
    CHECK_DOUBLE(stack.gemm_speed, 0.9, 0); /* row by row: the others stay */
    CHECK(stack.host_launch_s > 0);
    CHECK_DOUBLE(profile_point_s(profile, "my-gpu", "gemm", RATE_16BIT, 4096, 8192, 1024), 123e-6, 1e-12);
    CHECK_DOUBLE(profile_point_s(profile, "my-gpu", "gemm", RATE_16BIT, 4096, 8192, 1025), 0, 0);
    CHECK(own.sustained < 1);
    CHECK_DOUBLE(kernel_gemm_s(&own, RATE_16BIT, 4096, 8192, 1024), 123e-6 / own.sustained, 1e-12); /* the point replaces the form */
    CHECK(kernel_gemm_s(&own, RATE_16BIT, 4096, 8192, 1025) > 0);
    CHECK_DOUBLE(kernel_wgrad_s(&own, RATE_16BIT, 4096, 8192, 1024, 2), 150e-6 / own.sustained, 1e-12);
    CHECK_DOUBLE(kernel_wgrad_s(&own, RATE_16BIT, 4096, 8192, 1025, 2), 2 * kernel_gemm_s(&own, RATE_16BIT, 4096, 8192, 1025), 1e-12);
    CHECK_DOUBLE(link.curve[COLLECTIVE_ALL_GATHER][0].line[1].from_bytes, 8e6, 0);
    CHECK(h100.points == NULL);
    CHECK_INT(err.count, 0);
    profile_close(profile);
}

static const struct alpha_beta *curve_of(const struct link_profile *link, enum collective_op op, int ranks)
{
    for (int i = 0; i < link->n_curves[op]; i++)
        if (link->curve[op][i].ranks == ranks)
            return &link->curve[op][i];
    return NULL;
}

static const char *store_rows(const char *name, const char *text)
{
    struct profile_rows rows;
    struct err err = {0};
    const char *path = path_of(name);
    CHECK_INT(parse(text, &rows, &err), 0);
    if (!CHECK_INT(profile_store_write(path, &rows, "2026-01-01", &err), 0))
        printf("%s\n", err.text);
    profile_rows_release(&rows);
    return path;
}

#define CURVE_LINE(key, alpha, rate) \
    "alpha_beta,nvlink4,h100-sxm/all_reduce/8/node/" key ",alpha_s," alpha ",us,,,measured,2026,me\n" \
    "alpha_beta,nvlink4,h100-sxm/all_reduce/8/node/" key ",bytes_per_s," rate ",GB/s,,,measured,2026,me\n"

/* The least of own and shipped lines would be that of a faster machine: a curve is replaced whole, over the shipped
 * ones and over an earlier one of the same file. */
static void test_curve_replaced(void)
{
    struct err err = {0};
    struct profile *shipped, *profile;
    struct link_profile link;
    const struct alpha_beta *curve;
    store_rows("curve.db", HEADER CURVE_LINE("1", "10", "200") CURVE_LINE("2", "30", "300") CURVE_LINE("3", "50", "400"));
    const char *path = store_rows("curve.db", HEADER CURVE_LINE("1", "50", "20"));
    if (!CHECK_INT(profile_open(NULL, &shipped, &err), 0) || !CHECK_INT(profile_open(NULL, &profile, &err), 0))
        return;
    CHECK_INT(profile_layer(profile, path, &err), 0);
    CHECK_INT(profile_link(profile, "nvlink4", "h100-sxm", &link, &err), 0);
    curve = curve_of(&link, COLLECTIVE_ALL_REDUCE, 8);
    if (CHECK(curve != NULL) && CHECK_INT(curve->n_lines, 1)) {
        CHECK_DOUBLE(curve->line[0].alpha_s, 50e-6, 1e-12);
        CHECK_DOUBLE(curve->line[0].bytes_per_s, 20e9, 1e-12);
    }
    curve = curve_of(&link, COLLECTIVE_ALL_REDUCE, 4); /* of other ranks and operations: as shipped */
    CHECK(curve != NULL && curve->n_lines > 1);
    curve = curve_of(&link, COLLECTIVE_ALL_GATHER, 8);
    CHECK(curve != NULL && curve->n_lines > 1);
    CHECK_INT(profile_rows_of(profile)->n, profile_rows_of(shipped)->n - 4);
    CHECK_INT(err.count, 0);
    profile_close(profile);
    profile_close(shipped);
    unlink(path);
}

/* What was measured of one operation leaves the base's curves of the others. */
static void test_curves_inherited(void)
{
    struct err err = {0};
    struct profile *profile;
    struct link_profile link, base;
    const char *path = write_own("inherited.db"); /* my-gpu, based on h100-sxm: all_reduce and all_gather over 4 ranks */
    if (!CHECK_INT(profile_open(NULL, &profile, &err), 0))
        return;
    CHECK_INT(profile_layer(profile, path, &err), 0);
    CHECK_INT(profile_link(profile, "nvlink4", "my-gpu", &link, &err), 0);
    CHECK_INT(profile_link(profile, "nvlink4", "h100-sxm", &base, &err), 0);
    CHECK_INT(link.n_curves[COLLECTIVE_ALL_REDUCE], 1); /* its own alone */
    CHECK_INT(link.n_curves[COLLECTIVE_ALL_GATHER], 1);
    CHECK_INT(link.n_curves[COLLECTIVE_REDUCE_SCATTER], base.n_curves[COLLECTIVE_REDUCE_SCATTER]);
    CHECK_INT(link.n_curves[COLLECTIVE_ALL_TO_ALL], base.n_curves[COLLECTIVE_ALL_TO_ALL]);
    CHECK(base.n_curves[COLLECTIVE_ALL_TO_ALL] > 1);
    profile_close(profile);
}

/* Curves of a network, by ranks and nodes; those inside a node are the link's. */
static void test_network_curves(void)
{
    static const char rows[] =
        HEADER "accelerator,like-h100,,base,h100-sxm,name,,,assumed,2026,x\n"
               "alpha_beta,ib-ndr,h100-sxm/all_reduce/16/network-2/1,alpha_s,120,us,,,measured,2026,me\n"
               "alpha_beta,ib-ndr,h100-sxm/all_reduce/16/network-2/1,bytes_per_s,90,GB/s,,,measured,2026,me\n"
               "alpha_beta,ib-ndr,h100-sxm/all_reduce/16/network-16/1,alpha_s,150,us,,,measured,2026,me\n"
               "alpha_beta,ib-ndr,h100-sxm/all_reduce/16/network-16/1,bytes_per_s,40,GB/s,,,measured,2026,me\n"
               "alpha_beta,ib-ndr,h100-sxm/all_gather/32/network/1,alpha_s,150,us,,,measured,2026,me\n"
               "alpha_beta,ib-ndr,h100-sxm/all_gather/32/network/1,bytes_per_s,40,GB/s,,,measured,2026,me\n";
    struct err err = {0};
    struct profile *profile;
    struct fabric_profile fabric;
    const char *path = store_rows("network.db", rows);
    if (!CHECK_INT(profile_open(NULL, &profile, &err), 0))
        return;
    CHECK_INT(profile_layer(profile, path, &err), 0);
    CHECK_INT(profile_fabric(profile, "ib-ndr", "like-h100", &fabric, &err), 0);
    if (CHECK_INT(fabric.n_curves[COLLECTIVE_ALL_REDUCE], 2)) {
        CHECK_INT(fabric.curve[COLLECTIVE_ALL_REDUCE][0].nodes, 2);
        CHECK_DOUBLE(fabric.curve[COLLECTIVE_ALL_REDUCE][1].line[0].bytes_per_s, 40e9, 1e-12);
    }
    CHECK_INT(fabric.n_curves[COLLECTIVE_ALL_GATHER], 1);
    CHECK_INT(fabric.curve[COLLECTIVE_ALL_GATHER][0].nodes, 0);
    CHECK_INT(profile_fabric(profile, "ib-ndr", "a100-sxm-80gb", &fabric, &err), 0);
    CHECK_INT(fabric.n_curves[COLLECTIVE_ALL_REDUCE], 0);
    CHECK_INT(profile_fabric(profile, "roce", "h100-sxm", &fabric, &err), 0); /* based on ib-ndr, but another network */
    CHECK_INT(fabric.n_curves[COLLECTIVE_ALL_REDUCE], 0);
    CHECK_INT(err.count, 0);
    profile_close(profile);
    refused(HEADER "alpha_beta,x,y/all_reduce/8/network-1/1,alpha_s,8,us,,,measured,2026,s\n", "is not accelerator/op/ranks/level/line");
    refused(HEADER "alpha_beta,x,y/all_reduce/8/network-9/1,alpha_s,8,us,,,measured,2026,s\n", "or h100-sxm/all_reduce/16/network-2/1");
}

static void test_bases(void)
{
    static const char circle[] =
        HEADER "accelerator,a,,base,b,name,,,assumed,2026,x\naccelerator,b,,base,a,name,,,assumed,2026,x\n"
               "accelerator,c,,base,nowhere,name,,,assumed,2026,x\n"
               "accelerator,d,,memory_bytes,40,GiB,,,measured,2026,x\n";
    struct profile_rows rows;
    struct err err = {0};
    struct profile *profile;
    struct accelerator a;
    const char *path = path_of("circle.db");
    CHECK_INT(parse(circle, &rows, &err), 0);
    CHECK_INT(profile_store_write(path, &rows, "2026-01-01", &err), 0);
    profile_rows_release(&rows);
    if (!CHECK_INT(profile_open(path, &profile, &err), 0))
        return;
    CHECK(profile_accelerator(profile, "a", &a, &err) < 0);
    CHECK_CONTAINS(err.text, "or on itself");
    err_clear(&err);
    CHECK(profile_accelerator(profile, "c", &a, &err) < 0);
    CHECK_CONTAINS(err.text, "accelerator 'c' is based on 'nowhere', which is not in the profile");
    err_clear(&err);
    CHECK(profile_accelerator(profile, "d", &a, &err) < 0);
    CHECK_CONTAINS(err.text, "accelerator 'd' has no peak_16bit_flop_per_s in the profile");
    CHECK(err.count >= 3); /* all that is missing */
    profile_close(profile);
}

/* Rows -> CSV -> rows -> store -> rows: the same content. */
static void test_round_trip(void)
{
    struct profile_rows rows = {0}, back = {0}, stored = {0};
    struct err err = {0};
    struct profile *profile;
    char first[65], second[65], third[65], *text;
    size_t length;
    if (!CHECK_INT(profile_open(NULL, &profile, &err), 0))
        return;
    const struct profile_rows *all = profile_rows_of(profile);
    FILE *file = fopen(path_of("all.csv"), "w");
    fprintf(file, "%s\n", profile_csv_header);
    for (size_t i = 0; i < all->n; i++)
        profile_csv_print(&all->row[i], file);
    fclose(file);
    CHECK_INT(file_read(path_of("all.csv"), FILE_MAX_BYTES, &text, &length, &err), 0);
    CHECK_INT(profile_csv_parse(text, length, "all.csv", &back, &err), 0);
    free(text);
    CHECK_INT(back.n, all->n);
    profile_rows_hash(all, first);
    profile_rows_hash(&back, second);
    CHECK_STR(second, first);
    CHECK_INT(profile_store_write(path_of("all.db"), &back, "2026-01-01", &err), 0);
    CHECK_INT(profile_store_load(path_of("all.db"), &stored, &err), 0);
    profile_rows_sort(&stored, "all.db", NULL);
    profile_rows_hash(&stored, third);
    CHECK_STR(third, first);
    CHECK_STR(profile_sha256(profile), first);
    profile_rows_release(&rows);
    profile_rows_release(&back);
    profile_rows_release(&stored);
    profile_close(profile);
}

/* The file must be refused, with these words, and be the same afterwards; writing to it as well. */
static void refused_file(const char *path, const char *why, bool also_write)
{
    struct profile_rows rows = {0};
    struct err err = {0};
    char before[65], after[65];
    hash_file(path, before);
    CHECK(profile_store_load(path, &rows, &err) < 0);
    CHECK_CONTAINS(err.text, why);
    CHECK_CONTAINS(err.text, path);
    CHECK_INT(err.count, 1);
    CHECK_INT(rows.n, 0);
    if (also_write) {
        err_clear(&err);
        CHECK_INT(parse(own_rows, &rows, &err), 0);
        CHECK(profile_store_write(path, &rows, "2026-01-01", &err) < 0);
        CHECK_CONTAINS(err.text, why);
    }
    profile_rows_release(&rows);
    hash_file(path, after);
    CHECK_STR(after, before);
}

static void run_sql(const char *path, const char *sql)
{
    sqlite3 *db;
    if (CHECK_INT(sqlite3_open(path, &db), SQLITE_OK))
        CHECK_INT(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void test_strange_files(void)
{
    struct profile_rows rows = {0};
    struct err err = {0};
    CHECK(profile_store_load(path_of("missing.db"), &rows, &err) < 0);
    CHECK_CONTAINS(err.text, "No such file or directory");
    err_clear(&err);
    CHECK(profile_store_load(directory, &rows, &err) < 0);
    CHECK_CONTAINS(err.text, "is a directory; expected an SQLite file");
    err_clear(&err);
    CHECK(profile_store_load("/dev/zero", &rows, &err) < 0);
    CHECK_CONTAINS(err.text, "is not a regular file");
    write_file(path_of("empty.db"), "", 0);
    refused_file(path_of("empty.db"), "is empty", true);
    write_file(path_of("text.db"), own_rows, sizeof(own_rows) - 1);
    refused_file(path_of("text.db"), "is not an SQLite file", true);
    write_file(path_of("short.db"), "SQLite format 3", 16);
    refused_file(path_of("short.db"), "is damaged: it ends after 16 bytes", true);
    run_sql(path_of("foreign.db"), "CREATE TABLE cats(name TEXT); INSERT INTO cats VALUES ('Tom');");
    refused_file(path_of("foreign.db"), "is the SQLite file of another program", true);
    write_own("version.db");
    run_sql(path_of("version.db"), "PRAGMA user_version = 7;");
    refused_file(path_of("version.db"), "has schema version 7; this program reads version 1", true);
    write_own("edited.db");
    run_sql(path_of("edited.db"), "UPDATE stack SET value = 0.5;");
    refused_file(path_of("edited.db"), "was edited by hand", true);
    write_own("range.db");
    run_sql(path_of("range.db"), "UPDATE stack SET value = -1;");
    refused_file(path_of("range.db"), "stack 'megatron' gemm_speed is -1 1; allowed: 0.01..10 1", true);
    write_own("nan.db");
    run_sql(path_of("nan.db"), "UPDATE stack SET value = 9e999;");
    refused_file(path_of("nan.db"), "gemm_speed is inf", true);
    write_own("typed.db");
    run_sql(path_of("typed.db"), "UPDATE stack SET value = 'fast';");
    refused_file(path_of("typed.db"), "gemm_speed must be a number", true);
    write_own("table.db");
    run_sql(path_of("table.db"), "DROP TABLE stack;");
    refused_file(path_of("table.db"), "no such table: stack", true);
    profile_rows_release(&rows);
}

/* An endless view in the place of a table is given up. */
static void test_endless(void)
{
    write_own("endless.db");
    run_sql(path_of("endless.db"),
            "DROP TABLE stack; CREATE VIEW stack AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
            " SELECT 'megatron' AS name, 'gemm_speed' AS field, i AS value, '1' AS unit, NULL AS low, NULL AS high,"
            " 'measured' AS provenance, '2026' AS date, 'x' AS source FROM n WHERE i < 0;");
    refused_file(path_of("endless.db"), "takes too long to read", false);
}

static void test_truncated(void)
{
    char *data;
    size_t n = read_whole(write_own("whole.db"), &data);
    CHECK(n > 8192);
    for (size_t keep = 100; keep < n; keep += n / 13) {
        write_file(path_of("cut.db"), data, keep);
        refused_file(path_of("cut.db"), "profile '", true);
    }
    int refusals = 0, tried = 0; /* one byte changed anywhere: refused, or the content is what it was */
    for (size_t at = 100; at < n; at += 97, tried++) {
        struct profile_rows rows = {0};
        char old = data[at];
        data[at] = (char)(old ^ 0x55);
        write_file(path_of("flip.db"), data, n);
        data[at] = old;
        refusals += profile_store_load(path_of("flip.db"), &rows, NULL) != 0;
        CHECK(rows.n == 0 || rows.n == OWN_ROWS);
        profile_rows_release(&rows);
    }
    printf("%d of %d files with one changed byte refused, the others had it in unused space\n", refusals, tried);
    free(data);
}

static void test_locked(void)
{
    const char *path = write_own("locked.db");
    sqlite3 *db;
    sqlite3_open(path, &db);
    CHECK_INT(sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
    int ready[2];
    CHECK_INT(pipe(ready), 0);
    pid_t child = fork(); /* SQLite's locks are per process */
    if (child == 0) {
        struct profile_rows rows = {0};
        struct err err = {0};
        int result = profile_store_load(path, &rows, &err);
        _exit(result == PROFILE_STORE_MACHINE && strstr(err.text, "is locked by another program (waited 2 s)") != NULL
                  ? 0
                  : 1);
    }
    int status = -1;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    sqlite3_close(db);
    close(ready[0]);
    close(ready[1]);
}

static void test_read_only(void)
{
    struct profile_rows rows = {0};
    struct err err = {0};
    struct stat before, after;
    const char *path = write_own("readonly.db");
    run_sql(path, "PRAGMA journal_mode = DELETE;");
    chmod(path, 0444);
    chmod(directory, 0555);
    stat(path, &before);
    CHECK_INT(profile_store_load(path, &rows, &err), 0);
    CHECK_INT(rows.n, OWN_ROWS);
    if (geteuid() != 0) {
        CHECK_INT(profile_store_write(path, &rows, "2026-01-01", &err), PROFILE_STORE_MACHINE);
        CHECK_CONTAINS(err.text, "cannot be written");
    }
    stat(path, &after);
    CHECK_INT(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
    chmod(directory, 0755);
    chmod(path, 0644);
    profile_rows_release(&rows);
}

/* A second import replaces rows by identity and keeps the others; a bad one changes nothing. */
static void test_import(void)
{
    struct profile_rows rows, loaded = {0};
    struct err err = {0};
    const char *path = write_own("import.db");
    CHECK_INT(parse(HEADER "stack,megatron,,gemm_speed,0.8,1,,,measured,2026,later\n", &rows, &err), 0);
    CHECK_INT(profile_store_write(path, &rows, "2026-02-02", &err), 0);
    profile_rows_release(&rows);
    CHECK_INT(profile_store_load(path, &loaded, &err), 0);
    CHECK_INT(loaded.n, OWN_ROWS);
    profile_rows_sort(&loaded, path, NULL);
    const struct profile_row *row = profile_rows_find(&loaded, SECTION_STACK, "megatron", "", "gemm_speed");
    CHECK(row != NULL && row->value < 0.81 && strcmp(row->source, "later") == 0);
    profile_rows_release(&loaded);
    CHECK(profile_store_write("/nonexistent/directory/x.db", &loaded, "2026-01-01", &err) == PROFILE_STORE_MACHINE);
}

static void test_environment(void)
{
    struct err err = {0};
    struct profile *profile = NULL;
    const char *path = write_own("environment.db");
    setenv("PLANSIM_PROFILE", path, 1);
    CHECK_INT(profile_open(NULL, &profile, &err), 0);
    if (profile != NULL)
        CHECK_STR(profile_name(profile), "environment.db");
    profile_close(profile);
    setenv("PLANSIM_PROFILE", "/nonexistent.db", 1);
    CHECK(profile_open(NULL, &profile, &err) < 0);
    CHECK_CONTAINS(err.text, "profile '/nonexistent.db': No such file");
    unsetenv("PLANSIM_PROFILE");
}

int main(void)
{
    if (!CHECK(mkdtemp(directory) != NULL))
        return test_report();
    unsetenv("PLANSIM_PROFILE");
    test_hash();
    test_shipped();
    test_unknown();
    test_curves();
    test_csv();
    test_layer();
    test_curve_replaced();
    test_curves_inherited();
    test_network_curves();
    test_bases();
    test_round_trip();
    test_strange_files();
    test_endless();
    test_truncated();
    test_locked();
    test_read_only();
    test_import();
    test_environment();
    char command[TEST_PATH_MAX];
    snprintf(command, sizeof(command), "rm -rf '%s'", directory);
    CHECK_INT(system(command), 0);
    return test_report();
}

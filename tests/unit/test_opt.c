/* Command lines from a table. */
#include "cost/base/opt.h"

#include "cost/base/err.h"
#include "tests/unit/test.h"

static const char *const choices[] = {"table", "json", NULL};

struct values {
    const char *model;
    int64_t seq;
    double share;
    bool why;
    int format;
    struct opt_list plans;
};

static struct values v;
static struct err err;
static const char *positional[2];
static int n_positional;
static bool help;

static const struct opt table[] = {
    {"model", OPT_STRING, &v.model, 0, 0, NULL, "FILE", "the model"},
    {"seq", OPT_INT, &v.seq, 1, 1e6, NULL, "N", "sequence length"},
    {"share", OPT_DOUBLE, &v.share, 0, 1, NULL, "X", "a share"},
    {"why", OPT_FLAG, &v.why, 0, 0, NULL, NULL, "say why"},
    {"format", OPT_CHOICE, &v.format, 0, 0, choices, "F", "how to print"},
    {"plan", OPT_LIST, &v.plans, 0, 0, NULL, "FILE", "a plan; may be repeated"},
    {NULL, OPT_FLAG, NULL, 0, 0, NULL, NULL, NULL},
};

static int run(int argc, char **argv)
{
    memset(&v, 0, sizeof(v));
    err_clear(&err);
    return opt_parse(table, argc, argv, positional, 2, &n_positional, &help, &err);
}

#define RUN(...) run((int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)), (char *[]){__VA_ARGS__})

static void test_good(void)
{
    CHECK_INT(RUN("--model", "a.json", "--seq=4096", "--why", "x", "--format", "json", "--share", "0.5", "-", "--"), 0);
    CHECK_STR(v.model, "a.json");
    CHECK_INT(v.seq, 4096);
    CHECK(v.why);
    CHECK_INT(v.format, 1);
    CHECK_DOUBLE(v.share, 0.5, 0);
    CHECK_INT(n_positional, 2);
    CHECK_STR(positional[0], "x");
    CHECK_STR(positional[1], "-");
    CHECK(!help);
    CHECK_INT(RUN("--", "--model"), 0);
    CHECK_STR(positional[0], "--model");
    CHECK_INT(RUN("--help"), 0);
    CHECK(help);
    CHECK_INT(RUN("--model=-"), 0);
    CHECK_STR(v.model, "-");
    CHECK_INT(run(0, NULL), 0);
    CHECK_INT(v.plans.n, 0);
    CHECK_INT(RUN("--plan", "a.json", "--why", "--plan=b.json"), 0);
    CHECK_INT(v.plans.n, 2);
    CHECK_STR(v.plans.value[0], "a.json");
    CHECK_STR(v.plans.value[1], "b.json");
}

static void test_list_full(void)
{
    char *many[2 * (OPT_LIST_MAX + 1)];
    for (int i = 0; i <= OPT_LIST_MAX; i++) {
        many[2 * i] = "--plan";
        many[2 * i + 1] = "x.json";
    }
    CHECK_INT(run(2 * OPT_LIST_MAX, many), 0);
    CHECK(run(2 * OPT_LIST_MAX + 2, many) < 0);
    CHECK_STR(err.text, "option '--plan': given more than 64 times");
}

static void test_bad(void)
{
    CHECK_INT(RUN("--modle", "a.json"), -1);
    CHECK_STR(err.text, "unknown option '--modle'; did you mean '--model'?");
    CHECK_INT(RUN("--seq-length", "8"), -1);
    CHECK_CONTAINS(err.text, "did you mean '--seq'?");
    CHECK_INT(RUN("--seq_length", "8"), -1);
    CHECK_CONTAINS(err.text, "see --help");
    CHECK_INT(RUN("--nonsense"), -1);
    CHECK_STR(err.text, "unknown option '--nonsense'; see --help");
    CHECK_INT(RUN("--model"), -1);
    CHECK_STR(err.text, "option '--model' needs a value (FILE)");
    CHECK_INT(RUN("--model", "--why"), -1);
    CHECK_INT(RUN("--why=1"), -1);
    CHECK_STR(err.text, "option '--why' takes no value");
    CHECK_INT(RUN("--seq", "0"), -1);
    CHECK_STR(err.text, "option '--seq': 0 is out of range; allowed: 1 to 1000000");
    CHECK_INT(RUN("--seq", "4k"), -1);
    CHECK_STR(err.text, "option '--seq': '4k' is not a whole number");
    CHECK_INT(RUN("--share", "nan"), -1);
    CHECK_INT(RUN("--format", "xml"), -1);
    CHECK_STR(err.text, "option '--format': 'xml' is not one of table, json");
    CHECK_INT(RUN("-x"), -1);
    CHECK_INT(RUN("a", "b", "c"), -1);
    CHECK_STR(err.text, "unexpected argument 'c'");
    CHECK_INT(RUN("--seq", "0", "--format", "xml"), -1); /* all problems at once */
    CHECK_INT(err.count, 2);
}

static void test_help(void)
{
    char text[4096] = "";
    FILE *out = tmpfile();
    if (!CHECK(out != NULL))
        return;
    opt_print_help(out, "plansim x FILE", "About.", table, "plansim x a.json");
    rewind(out);
    size_t n = fread(text, 1, sizeof(text) - 1, out);
    text[n] = '\0';
    fclose(out);
    CHECK_CONTAINS(text, "usage: plansim x FILE\n");
    CHECK_CONTAINS(text, "  --model FILE  the model\n");
    CHECK_CONTAINS(text, "how to print [table, json]\n");
    CHECK_CONTAINS(text, "example:\n  plansim x a.json\n");
}

int main(void)
{
    test_good();
    test_list_full();
    test_bad();
    test_help();
    return test_report();
}

/* Words that people mistype. */
#include "cost/base/names.h"

#include "tests/unit/test.h"

static const char *const names[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "micro_batch", "tp", NULL};

int main(void)
{
    char buffer[64];
    CHECK_INT(names_find(names, "1f1b"), 1);
    CHECK_INT(names_find(names, "1F1B"), -1);
    CHECK_STR(names_nearest(names, "interleavd"), "interleaved");
    CHECK_STR(names_nearest(names, "itnerleaved"), "interleaved"); /* a swap is one edit */
    CHECK_STR(names_nearest(names, "INTERLEAVED"), "interleaved");
    CHECK_STR(names_nearest(names, "micro-batch"), "micro_batch");
    CHECK_STR(names_nearest(names, "zb-h3"), "zb-h1"); /* the first of equals */
    CHECK_STR(names_nearest(names, "gpip"), "gpipe");
    CHECK(names_nearest(names, "pp") == NULL); /* short words are never near */
    CHECK(names_nearest(names, "dualpipe") == NULL);
    CHECK(names_nearest(names, "") == NULL);
    char word[300];
    memset(word, 'a', sizeof(word) - 1);
    word[sizeof(word) - 1] = '\0';
    CHECK(names_nearest(names, word) == NULL);
    CHECK_STR(names_join(names, buffer, sizeof(buffer)), "gpipe, 1f1b, interleaved, zb-h1, zb-h2, micro_batch, tp");
    CHECK_STR(names_join(names, buffer, 16), "gpipe, 1f1b...");
    CHECK_STR(names_join(names + 7, buffer, sizeof(buffer)), "");
    FILE *out = tmpfile();
    char lines[400] = {0};
    names_print_unknown(out, "prog", names, "gpip");
    names_print_unknown(out, "prog", names + 5, "tpp");
    names_print_unknown(out, "prog", names, "--versoin");
    names_print_unknown(out, "prog", names, "--gpipe");
    rewind(out);
    CHECK(fread(lines, 1, sizeof(lines) - 1, out) > 0);
    fclose(out);
    CHECK_STR(lines, "prog: unknown command 'gpip'; did you mean 'gpipe'?\n"
                     "prog: unknown command 'tpp'; did you mean 'tp'?\n"
                     "prog: unknown option '--versoin'; did you mean '--version'?\n"
                     "prog: unknown option '--gpipe'; the options are --help, --version\n");
    for (size_t size = 1; size < sizeof(buffer); size++)
        CHECK(strlen(names_join(names, buffer, size)) < size);
    return test_report();
}

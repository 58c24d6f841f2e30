#include "cost/base/command.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/names.h"

enum { WORDS_MAX = 32 };

static void print_help(const struct command_front *front)
{
    printf("usage: %s\n\n%s\n\n", front->usage, front->about);
    for (const struct command_word *word = front->words; word->name; word++)
        printf("  %-10s%s\n", word->name, word->help);
    printf("\n"
           "%s COMMAND --help explains a command; %s --version names the version.\n"
           "\n"
           "Exit: 0 answered, 1 answered and the answer is no, 2 usage, 3 bad input file,\n"
           "4 machine trouble.\n"
           "\n"
           "example:\n"
           "  %s\n",
           front->program, front->program, front->example);
}

int command_pick(const struct command_front *front, int argc, char **argv, int *ret_code)
{
    *ret_code = EXIT_USAGE;
    if (argc < 2) {
        fprintf(stderr, "%s: no command given; try '%s --help'\n", front->program, front->program);
        return COMMAND_DONE;
    }
    bool help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0, version = strcmp(argv[1], "--version") == 0;
    if (help)
        print_help(front);
    if (version)
        printf("%s %s\n", front->program, front->version);
    if (help || version) {
        *ret_code = EXIT_ANSWERED;
        return COMMAND_DONE;
    }
    for (int i = 0; front->words[i].name; i++)
        if (strcmp(argv[1], front->words[i].name) == 0)
            return i;
    return COMMAND_UNKNOWN;
}

int command_unknown(const struct command_front *front, const char *word)
{
    const char *names[WORDS_MAX + 1] = {NULL};
    for (int i = 0; i < WORDS_MAX && front->words[i].name; i++)
        names[i] = front->words[i].name;
    names_print_unknown(stderr, front->program, names, word);
    return EXIT_USAGE;
}

int command_finish(const struct command_front *front, int code)
{
    bool failed = fflush(stdout) != 0 || ferror(stdout);
    if (!failed || (code != EXIT_ANSWERED && code != EXIT_NO))
        return code;
    fprintf(stderr, "%s: cannot write to standard output\n", front->program);
    return EXIT_MACHINE;
}

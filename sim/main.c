/* plansim: picks the command. Options, loading and writing are the commands' own. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/names.h"
#include "sim/commands.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
};

static const struct command commands[] = {
    {"search", cmd_search, "rank the plans for a model on a cluster, fastest first"},
    {"predict", cmd_predict, "step time, memory and where both go, of one plan"},
    {"explain", cmd_explain, "what bounds a plan, and why another one is slower"},
    {"export", cmd_export, "a plan as flags or configuration of Megatron-LM, DeepSpeed or torchtitan"},
    {"schedule", cmd_schedule, "one pipeline schedule, or a program from a file, priced and drawn"},
    {"compare", cmd_compare, "all pipeline schedules side by side"},
    {"validate", cmd_validate, "predictions against a table of measured runs"},
    {"calibrate", cmd_calibrate, "numbers of a profile learned from measured runs"},
    {"model", cmd_model, "parameters and FLOPs of a config.json"},
    {"profile", cmd_profile, "what is known of accelerators, links, networks and stacks"},
    {"chart", cmd_chart, "pictures of what predict and search found"},
};
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static int print_help(void)
{
    puts("usage: plansim COMMAND [OPTION]...\n"
         "\n"
         "Plans the training of large language models: which parallelism to launch, how\n"
         "fast it will be, whether it fits, and what bounds it.\n");
    for (int i = 0; i < COMMANDS; i++)
        printf("  %-10s%s\n", commands[i].name, commands[i].help);
    puts("\n"
         "plansim COMMAND --help explains a command; plansim --version names the version.\n"
         "\n"
         "Exit: 0 answered, 1 answered and the answer is no, 2 usage, 3 bad input file,\n"
         "4 machine trouble.\n"
         "\n"
         "example:\n"
         "  plansim search --model config.json --cluster hw.json --out plan.json");
    return EXIT_ANSWERED;
}

static int unknown(const char *word)
{
    const char *names[COMMANDS + 1] = {NULL};
    for (int i = 0; i < COMMANDS; i++)
        names[i] = commands[i].name;
    names_print_unknown(stderr, "plansim", names, word);
    return EXIT_USAGE;
}

/* An answer that did not reach its file is no answer. */
static int finish(int code)
{
    int failed = fflush(stdout) != 0 || ferror(stdout);
    if (failed && (code == EXIT_ANSWERED || code == EXIT_NO)) {
        fputs("plansim: cannot write to standard output\n", stderr);
        return EXIT_MACHINE;
    }
    return code;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fputs("plansim: no command given; try 'plansim --help'\n", stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
        return finish(print_help());
    if (strcmp(argv[1], "--version") == 0) {
        puts("plansim " PLANSIM_VERSION);
        return finish(EXIT_ANSWERED);
    }
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return finish(commands[i].run(argc - 2, argv + 2));
    return unknown(argv[1]);
}

/* planexec: starts MPI, picks the command, ends all ranks together. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/names.h"
#include "exec/commands_exec.h"

struct command {
    const char *name;
    int (*run)(struct world *world, int argc, char **argv);
    const char *help;
};

static const struct command commands[] = {
    {"run", cmd_run, "train a model under a plan; time, loss and memory of every step"},
    {"check", cmd_check, "a plan's losses, gradients and weights against the one-rank run"},
    {"profile", cmd_profile, "measure this machine's kernels and collectives into a profile"},
};
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static int print_help(void)
{
    puts("usage: mpirun -np N planexec COMMAND [OPTION]...\n"
         "\n"
         "Runs a parallelism plan on real ranks: tensor, sequence, context, pipeline, data and\n"
         "expert parallelism, ZeRO, recomputation, every pipeline schedule.\n");
    for (int i = 0; i < COMMANDS; i++)
        printf("  %-10s%s\n", commands[i].name, commands[i].help);
    puts("\n"
         "planexec COMMAND --help explains a command; planexec --version names the version.\n"
         "\n"
         "Exit: 0 answered, 1 answered and the answer is no, 2 usage, 3 bad input file,\n"
         "4 machine trouble.\n"
         "\n"
         "example:\n"
         "  mpirun -np 4 planexec run --model config.json --plan plan.json --steps 10");
    return EXIT_ANSWERED;
}

static int unknown(const char *word)
{
    const char *names[COMMANDS + 1] = {NULL};
    for (int i = 0; i < COMMANDS; i++)
        names[i] = commands[i].name;
    names_print_unknown(stderr, "planexec", names, word);
    return EXIT_USAGE;
}

static int pick(struct world *world, int argc, char **argv)
{
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(world, argc - 2, argv + 2);
    return world->rank == 0 ? unknown(argv[1]) : EXIT_USAGE;
}

int main(int argc, char **argv)
{
    struct world world;
    struct err err = {0};
    if (argc < 2) {
        fputs("planexec: no command given; try 'planexec --help'\n", stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
        return print_help();
    if (strcmp(argv[1], "--version") == 0) {
        puts("planexec " PLANSIM_VERSION);
        return EXIT_ANSWERED;
    }
    if (world_start(&world, &argc, &argv, &err) < 0) {
        fprintf(stderr, "planexec: %s\n", err.text);
        return EXIT_MACHINE;
    }
    int code = pick(&world, argc, argv);
    if (world.rank == 0 && (fflush(stdout) != 0 || ferror(stdout)) && code <= EXIT_NO) {
        fputs("planexec: cannot write to standard output\n", stderr);
        code = EXIT_MACHINE;
    }
    world_release(&world);
    world_stop();
    return code;
}

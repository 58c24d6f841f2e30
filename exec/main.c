/* planexec: starts MPI, picks the command, ends all ranks together. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "cost/base/command.h"
#include "cost/base/err.h"
#include "exec/commands_exec.h"

/* In one order: what is said of a command, and who runs it. */
static const struct command_word words[] = {
    {"run", "train a model under a plan; time, loss and memory of every step"},
    {"check", "a plan's losses, gradients and weights against the one-rank run"},
    {"profile", "measure this machine's kernels and collectives into a profile"},
    {NULL, NULL},
};
static int (*const runners[])(struct world *world, int argc, char **argv) = {cmd_run, cmd_check, cmd_profile};
_Static_assert(sizeof words / sizeof *words == sizeof runners / sizeof *runners + 1, "one runner per command");

static const struct command_front front = {
    .program = "planexec",
    .version = PLANSIM_VERSION,
    .usage = "mpirun -np N planexec COMMAND [OPTION]...",
    .about = "Runs a parallelism plan on real ranks: tensor, sequence, context, pipeline, data and\n"
             "expert parallelism, ZeRO, recomputation, every pipeline schedule.",
    .example = "mpirun -np 4 planexec run --model config.json --plan plan.json --steps 10",
    .words = words,
};

int main(int argc, char **argv)
{
    struct world world;
    struct err err = {0};
    setenv("NO_COLOR", "1", 0); /* mpirun gives ranks a terminal, wherever their output goes */
    int code, command = command_pick(&front, argc, argv, &code);
    if (command == COMMAND_DONE)
        return command_finish(&front, code);
    if (world_start(&world, &argc, &argv, &err) < 0) {
        fprintf(stderr, "planexec: %s\n", err.text);
        return EXIT_MACHINE;
    }
    if (command >= 0)
        code = runners[command](&world, argc - 2, argv + 2);
    else /* one of all ranks says it */
        code = world.rank == 0 ? command_unknown(&front, argv[1]) : EXIT_USAGE;
    if (world.rank == 0)
        code = command_finish(&front, code);
    world_release(&world);
    world_stop();
    return code;
}

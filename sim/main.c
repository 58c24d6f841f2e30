/* plansim: picks the command. Options, loading and writing are the commands' own. */
#include "config.h"

#include <stddef.h>

#include "cost/base/command.h"
#include "sim/commands.h"

/* In one order: what is said of a command, and who runs it. */
static const struct command_word words[] = {
    {"search", "rank the plans for a model on a cluster, fastest first"},
    {"predict", "step time, memory and where both go, of one plan"},
    {"explain", "what bounds a plan, and why another one is slower"},
    {"export", "a plan as flags or configuration of Megatron-LM, DeepSpeed or torchtitan"},
    {"schedule", "one pipeline schedule, or a program from a file, priced and drawn"},
    {"compare", "all pipeline schedules side by side"},
    {"validate", "predictions against a table of measured runs"},
    {"calibrate", "numbers of a profile learned from measured runs"},
    {"model", "parameters and FLOPs of a config.json"},
    {"profile", "what is known of accelerators, links, networks and stacks"},
    {"chart", "pictures of what predict and search found"},
    {NULL, NULL},
};
static int (*const runners[])(int argc, char **argv) = {
    cmd_search, cmd_predict, cmd_explain, cmd_export, cmd_schedule, cmd_compare, cmd_validate, cmd_calibrate, cmd_model, cmd_profile, cmd_chart,
};
_Static_assert(sizeof words / sizeof *words == sizeof runners / sizeof *runners + 1, "one runner per command");

static const struct command_front front = {
    .program = "plansim",
    .version = PLANSIM_VERSION,
    .usage = "plansim COMMAND [OPTION]...",
    .about = "Plans the training of large language models: which parallelism to launch, how\n"
             "fast it will be, whether it fits, and what bounds it.",
    .example = "plansim search --model config.json --cluster hw.json --out plan.json",
    .words = words,
};

int main(int argc, char **argv)
{
    int code, command = command_pick(&front, argc, argv, &code);
    if (command == COMMAND_UNKNOWN)
        code = command_unknown(&front, argv[1]);
    else if (command >= 0)
        code = runners[command](argc - 2, argv + 2);
    return command_finish(&front, code);
}

/* The front door of a program with commands: help, version, misuse, and an answer
 * that has to reach its file.
 *
 * `PROGRAM COMMAND [OPTION]...`; --help, -h or help, and --version stand in the
 * command's place. Both programs answer alike. */
#ifndef COST_BASE_COMMAND_H
#define COST_BASE_COMMAND_H

struct command_word {
    const char *name, *help;
};

struct command_front {
    const char *program, *version;
    const char *usage;    /* "plansim COMMAND [OPTION]..." */
    const char *about;    /* a paragraph */
    const char *example;  /* one command line */
    const struct command_word *words; /* ends with name NULL */
};

enum { COMMAND_DONE = -1, COMMAND_UNKNOWN = -2 };

/* The index of the command that argv[1] names, or COMMAND_DONE: help or version is on standard output, or a sentence on
 * standard error, and *ret_code is what the program ends with; or COMMAND_UNKNOWN: nothing is printed yet. */
int command_pick(const struct command_front *front, int argc, char **argv, int *ret_code);
/* The sentence about an unknown word; returns the exit code. */
int command_unknown(const struct command_front *front, const char *word);
/* An answer that did not reach its file is no answer: flushes standard output, and turns success into machine trouble. */
int command_finish(const struct command_front *front, int code);

#endif

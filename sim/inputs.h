/* The files of one question - model, cluster, profile - loaded once, with all
 * their problems reported at once. */
#ifndef SIM_INPUTS_H
#define SIM_INPUTS_H

#include "cost/base/err.h"
#include "cost/cluster.h"
#include "cost/model.h"
#include "sim/predict.h"
#include "sim/writers/export.h"

struct profile;

enum { INPUT_STACKS_MAX = 8 };

struct input_options {
    const char *model, *cluster, *profile; /* paths; profile NULL = the default alone */
    const char *max_memory;                /* "0.9" of the accelerator's memory, or "72GiB"; NULL = the cluster's share */
};

struct inputs {
    struct model model;
    struct model_words words; /* of the same file */
    struct cluster cluster;
    struct profile *profile;
    struct stack stacks[INPUT_STACKS_MAX];
    struct question question; /* points into this struct: do not copy */
    struct err warnings;
};

/* Standard input can be one file only: counts the "-" among the options' paths and
 * two plans (NULL = none), and refuses a profile from there. */
int inputs_check_stdin(const struct input_options *options, const char *plan, const char *other, struct err *err);

/* 0 or -1; release in both cases. *ret_code: the exit code that fits the problem. */
int inputs_load(struct inputs *ret, const struct input_options *options, int *ret_code, struct err *err);
/* A config.json, and what it says beside shapes. */
int inputs_load_model(const char *path, struct model *ret_model, struct model_words *ret_words, struct err *warn, struct err *err);
/* Makes a stack's parameters part of the question (once per name). */
int inputs_add_stack(struct inputs *inputs, const char *name, struct err *err);
void inputs_release(struct inputs *inputs);

/* Prints "plansim COMMAND: sentence" for each sentence to standard error. */
void inputs_print(const char *command, const char *kind, const struct err *messages);

#endif

/* A plan in the words of a training framework: Megatron-LM's command line,
 * DeepSpeed's ds_config.json, torchtitan's TOML.
 *
 * What the framework cannot run is an error, all of one plan at once; what it does
 * otherwise than the plan says, or leaves to the user's own code, is a warning that
 * names the field. No field of a plan is dropped without one of the two. The plan
 * keeps the launch rules (plan_check). */
#ifndef SIM_WRITERS_EXPORT_H
#define SIM_WRITERS_EXPORT_H

#include <stdbool.h>

struct cluster;
struct err;
struct json;
struct model;
struct plan;

enum export_target { EXPORT_MEGATRON, EXPORT_DEEPSPEED, EXPORT_TORCHTITAN, EXPORT_TARGETS };
extern const char *const export_target_names[]; /* "megatron", "deepspeed", "torchtitan", NULL */

/* What config.json says beside shapes, and a command line needs. */
struct model_words {
    char activation[32]; /* hidden_act, "" = not stated */
    char rope_type[32];  /* of rope_scaling, "" = none */
    double norm_epsilon, rope_base, rope_factor, rope_share; /* 0 = not stated; share of a head that rotates */
    double rope_mscale, rope_mscale_all_dim;                 /* of yarn, 0 = not stated */
    double routed_scale;                                     /* of the chosen experts' weights, 0 = not stated */
    bool raw_topk;                                           /* these weights are not brought to a sum of 1 */
};
void model_words_read(const struct json *root, struct model_words *ret);

struct export_request {
    const struct plan *plan;
    const struct model *model;       /* NULL = not given: architecture flags are left out */
    const struct model_words *words; /* beside model */
    const struct cluster *cluster;   /* NULL = not given: launcher and environment are left out */
    bool json;                       /* Megatron-LM: one JSON document instead of shell text */
};

/* *ret_text: malloc'd, ends with '\n'; caller frees. 0, or -1 when the framework cannot run the plan. */
int export_plan(enum export_target target, const struct export_request *request, char **ret_text, struct err *warn, struct err *err);

#endif

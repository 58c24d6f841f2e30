/* Shared by export*.c only. */
#ifndef SIM_WRITERS_EXPORT_INTERNAL_H
#define SIM_WRITERS_EXPORT_INTERNAL_H

#include <stdint.h>
#include <stdio.h>

#include "cost/base/arena.h"
#include "cost/plan.h"
#include "sim/writers/export.h"

struct exporter {
    const struct export_request *request;
    const struct plan *plan;
    const char *framework; /* "Megatron-LM" */
    struct err *warn, *err;
};

/* "field 'F' is V, but Megatron-LM takes T; nearest valid: N" */
void export_refuse(const struct exporter *e, const char *field, const char *value, const char *takes, const char *nearest);

/* A number or words as a value of one call. */
struct export_value {
    char text[96];
};
struct export_value export_number(int64_t number);
struct export_value export_fraction(double number);
struct export_value export_list(const char *const *names, uint32_t bits, const char *between); /* names of set bits */

bool export_has_experts(const struct exporter *e); /* as far as is known */
int64_t export_data_ranks(const struct plan *plan); /* dp x cp: what zero shards over */
/* Ranks that share one copy of what zero shards. */
int64_t export_shard_ranks(const struct plan *plan);
/* Whether ranks lie as in the given order; sizes of 1 have no place. */
bool export_order_is(const struct exporter *e, const enum axis order[AXES]);
/* Nodes and ranks of each; false where the groups of a cluster differ. */
bool export_nodes(const struct cluster *cluster, int64_t *ret_nodes, int *ret_per_node);

/* A command line: words, of which some begin a flag. */
enum { FLAG_WORDS_MAX = 512 };
struct flag_list {
    struct arena arena;
    int n;
    const char *word[FLAG_WORDS_MAX];
};
void flag_add(struct flag_list *list, const char *flag);
void flag_add_text(struct flag_list *list, const char *flag, const char *value);
void flag_add_words(struct flag_list *list, const char *flag, const char *const *names, uint32_t bits);
void flag_add_int(struct flag_list *list, const char *flag, int64_t value);
void flag_add_double(struct flag_list *list, const char *flag, double value);

/* export_megatron_model.c */
void megatron_add_model(const struct exporter *e, struct flag_list *list);

void export_megatron(const struct exporter *e, FILE *out);
void export_deepspeed(const struct exporter *e, FILE *out);
void export_torchtitan(const struct exporter *e, FILE *out);

#endif

/* Parts of cluster.c: hardware that hw.json names or spells out, and the slowest
 * member of a mixed cluster. */
#ifndef COST_CLUSTER_INTERNAL_H
#define COST_CLUSTER_INTERNAL_H

#include "cost/base/json.h"
#include "cost/cluster.h"

struct err;
struct profile;

/* What hw.json says of hardware: a name, or an object with the fields of a profile and `base`. at: where the field
 * `key` is; it must be there. Numbers are SI, as the field's name says, or strings with a unit ("3.35TB/s"). */
int cluster_read_accelerator(struct json_at at, const char *key, const struct profile *profile, struct accelerator *ret,
                             struct err *warn, struct err *err);
/* accelerator: whose curves to take in; for an inline one its base. */
int cluster_read_link(struct json_at at, const char *key, const struct profile *profile, const char *accelerator,
                      struct link_profile *ret, struct err *warn, struct err *err);
int cluster_read_fabric(struct json_at at, const char *key, const struct profile *profile, const char *accelerator,
                        struct fabric_profile *ret, struct err *warn, struct err *err);
/* The name in the profile that an accelerator goes back to: its own, or `base` of an inline object. NULL when none. */
const char *cluster_base_name(struct json_at at, const char *key);

/* Every field the worst of the groups; fitted forms from the accelerator with the lowest peak x efficiency. Are they mixed? */
bool cluster_slowest(const struct cluster *cluster, struct accelerator *ret);

#endif

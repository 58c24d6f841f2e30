/* All accelerators, links, fabrics and stacks of a profile with their main
 * figures. Each returns 0, or -1 when some name cannot be resolved (sentences in
 * err; the others are printed all the same). */
#ifndef SIM_WRITERS_PROFILE_LIST_H
#define SIM_WRITERS_PROFILE_LIST_H

#include <stdio.h>

#include "cost/profile_fields.h"

struct err;
struct json;
struct profile;

int profile_list_table(const struct profile *profile, FILE *out, struct err *err);
int profile_list_json(const struct profile *profile, FILE *out,
                      struct err *err); /* SI, under the names of cost/profile_fields.c */
int profile_list_csv(const struct profile *profile, FILE *out,
                     struct err *err); /* kind,name,provenance,field,value,unit */
/* Resolves one name only for its problems. */
int profile_list_check(const struct profile *profile, enum profile_section kind, const char *name, struct err *err);
void profile_list_put(struct json *root, const struct profile *profile); /* "profile": name and sha256 */

#endif

/* A profile as rows: one number or word each, with unit, provenance, date and
 * source beside it. This is what CSV files and the SQLite store hold; profile.c
 * resolves rows into the structs of profile.h.
 *
 * A row is identified by (section, name, key, field); a set of rows is sorted by
 * that and holds each once. Strings live in the set's arena. Not thread-safe
 * while rows are added; read-only sets may be shared. */
#ifndef COST_PROFILE_ROWS_H
#define COST_PROFILE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "cost/base/arena.h"
#include "cost/profile.h"
#include "cost/profile_fields.h"

struct profile_row {
    enum profile_section section;
    const char *name, *key, *field; /* key "" when the section has none */
    double value;                   /* in `unit`; of words NaN */
    const char *text;               /* the word, or NULL for numbers */
    const char *unit;
    double low, high; /* plausible range in `unit`; NaN = not stated */
    enum provenance provenance;
    const char *date, *source;
    int line; /* of the CSV file, 0 = from a store */
};

enum { PROFILE_ROWS_MAX = 1000000, PROFILE_NAME_MAX = 47, PROFILE_KEY_MAX = 120, PROFILE_SOURCE_MAX = 400 };

struct profile_rows {
    struct arena arena;
    struct profile_row *row; /* malloc'd */
    size_t n, capacity;
};

void profile_rows_release(struct profile_rows *rows);
/* Appends a copy (strings too). Fails when there are too many. */
int profile_rows_add(struct profile_rows *rows, const struct profile_row *row, struct err *err);
/* Checks one row by itself: names, key, field, unit, range. All its problems are added, with `where` before them. */
int profile_row_check(const struct profile_row *row, const char *where, struct err *err);
/* Sorts; of rows with the same identity the one added last stays. With err, twins are an error instead. */
int profile_rows_sort(struct profile_rows *rows, const char *file, struct err *err);
/* Curves are replaced whole. The rows before `first`, which are sorted, are below those from `first` on: of the
 * collectives (an alpha_beta key but for its line) that the upper rows state, the lower rows are dropped. Returns how
 * many were; the rest stay in order. */
size_t profile_rows_drop_curves(struct profile_rows *rows, size_t first);
/* The row, or NULL; the set must be sorted. */
const struct profile_row *profile_rows_find(const struct profile_rows *rows, enum profile_section section,
                                            const char *name, const char *key, const char *field);
/* Index of the first row not before (section, name, key, ""); n when there is none. */
size_t profile_rows_seek(const struct profile_rows *rows, enum profile_section section, const char *name,
                         const char *key);
void profile_rows_hash(const struct profile_rows *rows, char ret_hex[65]); /* of the sorted content */

/* "a/b/c": the part of a key, copied; false when there is no such part or it does not fit. */
bool profile_key_part(const char *key, int part, char *buffer, size_t size);
/* A key of alpha_beta. level: "node" (one NVLink or PCIe domain), "network-N" (over N nodes, evenly), or "network" (over
 * whole nodes, as many as the cluster needs for the ranks). */
struct alpha_beta_key {
    char accelerator[48]; /* "any" = whichever */
    enum collective_op op;
    int ranks;
    bool network;
    int nodes; /* of network-N, else 0 */
    int line; /* 1..3 */
};
int profile_alpha_beta_key(const char *key, struct alpha_beta_key *ret); /* 0 or -1 */

/* The merged rows of an open profile, and its names in one section (sorted, each once; NULL-terminated,
 * up to PROFILE_NAMES_MAX - 1). Pointers live as long as the profile. */
enum { PROFILE_NAMES_MAX = 512 };
const struct profile_rows *profile_rows_of(const struct profile *profile);
int profile_names(const struct profile *profile, enum profile_section section, const char *names[PROFILE_NAMES_MAX]);
/* name, its base, the base of that, ...: where absent values come from. Returns how many (0 = unknown name), -1 for a
 * base that is missing or runs in a circle. */
enum { PROFILE_CHAIN_MAX = 8 };
int profile_chain(const struct profile *profile, enum profile_section section, const char *name,
                  const char *chain[PROFILE_CHAIN_MAX], struct err *err);
/* One sentence for a name that is not there: the nearest and the known ones. */
int profile_unknown(const struct profile *profile, enum profile_section section, const char *name, struct err *err);

/* CSV with the header table,name,key,field,value,unit,low,high,provenance,date,source; lines that begin
 * with '#' are comments. All bad lines are reported together. `file` is for messages. */
int profile_csv_parse(const char *text, size_t length, const char *file, struct profile_rows *rows, struct err *err);
int profile_csv_load(const char *path, struct profile_rows *rows, struct err *err);
extern const char profile_csv_header[];
void profile_csv_print(const struct profile_row *row, FILE *out);

#endif

/* Rows of a profile in an SQLite file (schema: top of profile_store.c and
 * hwprofiles/README.md). The one place that includes sqlite3.h; no handle
 * outlives a call.
 *
 * Loading never writes: the file is opened read-only, and one that is damaged,
 * locked, foreign, of another version or no SQLite file at all is refused with a
 * sentence. Writing is one transaction, all or nothing, and only into a file that
 * does not exist or is a profile already. */
#ifndef COST_PROFILE_STORE_H
#define COST_PROFILE_STORE_H

#include "cost/profile_rows.h"

struct err;

enum { PROFILE_SCHEMA_VERSION = 1, PROFILE_APPLICATION_ID = 0x706c7370 /* "plsp" */ };

enum { PROFILE_STORE_MACHINE = -2 }; /* returned when the file is locked, read-only, or the disk is full */

/* Appends the rows of `path`; they are checked one by one, all problems together. */
int profile_store_load(const char *path, struct profile_rows *rows, struct err *err);

/* Adds or replaces rows (sorted), curves of collectives whole (profile_rows_drop_curves); creates the file when missing. `created` is the date for meta (YYYY-MM-DD). */
int profile_store_write(const char *path, const struct profile_rows *rows, const char *created, struct err *err);

#endif

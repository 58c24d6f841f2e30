/* Words that people mistype: the nearest of a list, and lists for messages. */
#ifndef COST_BASE_NAMES_H
#define COST_BASE_NAMES_H

#include <stddef.h>
#include <stdio.h>

/* Index of `word` in the NULL-terminated list, or -1. */
int names_find(const char *const *names, const char *word);
/* The nearest name by edit distance (case ignored), or NULL when none is near
 * enough to be a misspelling (distance <= 2, and at most a third of the word). */
const char *names_nearest(const char *const *names, const char *word);
/* "a, b, c" into buffer (truncated with "..."); returns buffer. */
const char *names_join(const char *const *names, char *buffer, size_t size);

/* "PROGRAM: unknown command 'word'; did you mean ...", for a program's first argument, which may be an option too. */
void names_print_unknown(FILE *out, const char *program, const char *const *commands, const char *word);

#endif

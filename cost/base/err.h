/* Messages for people: what went wrong, in whole sentences.
 *
 * A fallible function returns 0 on success or a negative number, and takes
 * `struct err *err` last. On success err is untouched; on failure it holds one
 * or more complete sentences (one per line, all problems of one input at once):
 * lower case, subject in quotes, no full stop, with the place and what was
 * allowed: `plan 'a.json': tp 6 does not divide num_attention_heads 32; nearest
 * valid: 4, 8`. The same type collects warnings. err may be NULL everywhere. */
#ifndef COST_BASE_ERR_H
#define COST_BASE_ERR_H

enum { ERR_TEXT_MAX = 8192 };

struct err {
    int count;               /* sentences held */
    int length;              /* bytes used of text */
    char text[ERR_TEXT_MAX]; /* sentences separated by '\n'; what does not fit is replaced by "... and N more" */
};

/* Exit codes of both programs (contract.md). */
enum exit_code {
    EXIT_ANSWERED = 0,
    EXIT_NO = 1,      /* answered, and the answer is no */
    EXIT_USAGE = 2,   /* unknown option, bad value */
    EXIT_INPUT = 3,   /* bad input file or data */
    EXIT_MACHINE = 4, /* no device, MPI, disk full */
};

void err_clear(struct err *err);
int err_add(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3))); /* appends a sentence; returns -1 */
int err_prefix(struct err *err, int from_count, const char *format, ...)
    __attribute__((format(printf, 3, 4))); /* puts a prefix before every sentence from number from_count on; returns -1 */
int err_append(struct err *err, const struct err *from); /* every sentence of another one; returns -1, or 0 when from is empty */

#endif

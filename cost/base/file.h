/* Whole files in, whole files out.
 *
 * file_read refuses directories, unreadable files, empty files and anything
 * larger than max_bytes (without reading it); "-" is standard input.
 * file_write_atomic writes to a temporary file beside the target, flushes it
 * and renames it over the target, so that a half-written file never replaces a
 * good one; it keeps an existing file's mode and follows a symbolic link. */
#ifndef COST_BASE_FILE_H
#define COST_BASE_FILE_H

#include <stddef.h>

struct err;

enum { FILE_MAX_BYTES = 64 << 20 };

/* *ret_text: malloc'd, NUL-terminated, UTF-8 BOM removed; caller frees. */
int file_read(const char *path, size_t max_bytes, char **ret_text, size_t *ret_length, struct err *err);
/* Before long work: -1 with a sentence when the folder that path lies in is not there, or path is a folder. "-" is fine. */
int file_check_folder(const char *path, struct err *err);
/* The same of a file beside an answer on standard output, which cannot be "-". */
int file_check_output(const char *path, const char *option, struct err *err);
/* path "-" writes to standard output. */
int file_write_atomic(const char *path, const char *text, size_t length, struct err *err);

#endif

#include "cost/base/err.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { SENTENCE_MAX = 2048, MORE_MAX = 32 }; /* MORE_MAX: room kept for "... and N more" */

static const char more_start[] = "... and ";

void err_clear(struct err *err)
{
    if (err == NULL)
        return;
    err->count = 0;
    err->length = 0;
    err->text[0] = '\0';
}

/* Start of the last line, and how many lines there are. */
static char *last_line(struct err *err, int *ret_lines)
{
    char *start = err->text;
    *ret_lines = err->length > 0 ? 1 : 0;
    for (char *newline = err->text; (newline = strchr(newline, '\n')) != NULL; newline++) {
        start = newline + 1;
        (*ret_lines)++;
    }
    return start;
}

static void append_line(struct err *err, const char *line, size_t length)
{
    if (err->length > 0)
        err->text[err->length++] = '\n';
    memcpy(err->text + err->length, line, length);
    err->length += (int)length;
    err->text[err->length] = '\0';
}

static void add_sentence(struct err *err, const char *sentence, size_t length)
{
    if (err->count == 0)
        err_clear(err);
    err->count++;
    int lines;
    char *last = last_line(err, &lines);
    if (strncmp(last, more_start, sizeof(more_start) - 1) == 0) {
        err->length = last > err->text ? (int)(last - err->text) - 1 : 0;
        lines--;
    } else if ((size_t)err->length + 1 + length + 1 + MORE_MAX < ERR_TEXT_MAX) {
        append_line(err, sentence, length);
        return;
    }
    char more[MORE_MAX];
    int n = snprintf(more, sizeof(more), "%s%d more", more_start, err->count - lines);
    append_line(err, more, (size_t)n);
}

/* One line, printable: what comes from a file must not draw on the terminal. */
static size_t format_line(char *line, const char *format, va_list args)
{
    int n = vsnprintf(line, SENTENCE_MAX, format, args);
    if (n < 0)
        n = 0;
    if (n >= SENTENCE_MAX) {
        n = SENTENCE_MAX - 1;
        while (n > 3 && ((unsigned char)line[n - 3] & 0xC0) == 0x80) /* not inside a UTF-8 character */
            n--;
        memcpy(line + n - 3, "...", 3);
        line[n] = '\0';
    }
    for (int i = 0; i < n; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7F)
            line[i] = '?';
    }
    return (size_t)n;
}

int err_add(struct err *err, const char *format, ...)
{
    if (err == NULL)
        return -1;
    char line[SENTENCE_MAX];
    va_list args;
    va_start(args, format);
    size_t length = format_line(line, format, args);
    va_end(args);
    add_sentence(err, line, length);
    return -1;
}

/* Adds the sentences of text, each with prefix; the first `skip` without. */
static void add_lines(struct err *err, const char *text, const char *prefix, int skip)
{
    char line[2 * SENTENCE_MAX];
    for (int i = 0; *text != '\0'; i++) {
        size_t length = strcspn(text, "\n");
        bool dropped = strncmp(text, more_start, sizeof(more_start) - 1) == 0;
        int n = snprintf(line, sizeof(line), "%s%.*s", i < skip || dropped ? "" : prefix, (int)length, text);
        add_sentence(err, line, n < (int)sizeof(line) ? (size_t)n : sizeof(line) - 1);
        text += length + (text[length] == '\n');
    }
}

int err_prefix(struct err *err, int from_count, const char *format, ...)
{
    if (err == NULL || from_count >= err->count)
        return -1;
    char prefix[SENTENCE_MAX];
    va_list args;
    va_start(args, format);
    format_line(prefix, format, args);
    va_end(args);
    struct err old = *err;
    err_clear(err);
    add_lines(err, old.text, prefix, from_count);
    return -1;
}

int err_append(struct err *err, const struct err *from)
{
    if (from == NULL || from->count == 0)
        return 0;
    if (err != NULL)
        add_lines(err, from->text, "", 0);
    return -1;
}

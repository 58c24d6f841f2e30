#include "cost/base/names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { WORD_MAX = 64 };

int names_find(const char *const *names, const char *word)
{
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], word) == 0)
            return i;
    }
    return -1;
}

/* Case is ignored, and '-' is '_': these are how people spell the same word. */
static char fold(char c)
{
    return c == '-' ? '_' : (char)tolower((unsigned char)c);
}

static int smallest(int a, int b, int c)
{
    int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Edits (insert, delete, replace, swap of neighbours) from a to b; both shorter than WORD_MAX. */
static int distance(const char *a, const char *b)
{
    int rows[3][WORD_MAX + 1];
    int *before = rows[0], *previous = rows[1], *current = rows[2];
    int n = (int)strlen(b);
    for (int j = 0; j <= n; j++)
        previous[j] = j;
    for (int i = 1; a[i - 1] != '\0'; i++) {
        current[0] = i;
        for (int j = 1; j <= n; j++) {
            int change = fold(a[i - 1]) != fold(b[j - 1]);
            current[j] = smallest(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + change);
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1]))
                current[j] = smallest(current[j], before[j - 2] + 1, current[j]);
        }
        int *oldest = before;
        before = previous;
        previous = current;
        current = oldest;
    }
    return previous[n];
}

const char *names_nearest(const char *const *names, const char *word)
{
    const char *best = NULL;
    int length = (int)strnlen(word, WORD_MAX);
    int limit = length / 3 < 2 ? length / 3 : 2;
    int best_distance = limit + 1;
    if (length >= WORD_MAX)
        return NULL;
    for (int i = 0; names[i] != NULL; i++) {
        int difference = (int)strnlen(names[i], WORD_MAX) - length;
        if (difference > limit || difference < -limit || strlen(names[i]) >= WORD_MAX)
            continue;
        int d = distance(word, names[i]);
        if (d < best_distance) {
            best = names[i];
            best_distance = d;
        }
    }
    return best;
}

const char *names_join(const char *const *names, char *buffer, size_t size)
{
    size_t used = 0;
    if (size == 0)
        return buffer;
    buffer[0] = '\0';
    for (int i = 0; names[i] != NULL; i++) {
        int n = snprintf(buffer + used, size - used, "%s%s", i > 0 ? ", " : "", names[i]);
        if (n < 0 || (size_t)n >= size - used) {
            if (size > 3)
                memcpy(buffer + (used + 3 < size ? used : size - 4), "...", 4);
            break;
        }
        used += (size_t)n;
    }
    return buffer;
}

void names_print_unknown(FILE *out, const char *program, const char *const *commands, const char *word)
{
    static const char *const options[] = {"--help", "--version", NULL};
    const char *kind = *word == '-' ? "option" : "command";
    const char *const *known = *word == '-' ? options : commands;
    const char *nearest = names_nearest(known, word);
    char all[256];
    if (nearest)
        fprintf(out, "%s: unknown %s '%s'; did you mean '%s'?\n", program, kind, word, nearest);
    else
        fprintf(out, "%s: unknown %s '%s'; the %ss are %s\n", program, kind, word, kind, names_join(known, all, sizeof(all)));
}

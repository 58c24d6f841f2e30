/* Sets of rows: adding, checking, sorting, finding, hashing. */
#include "cost/profile_rows.h"

#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/names.h"
#include "cost/base/unit.h"
#include "cost/profile_hash.h"

void profile_rows_release(struct profile_rows *rows)
{
    arena_release(&rows->arena);
    free(rows->row);
    *rows = (struct profile_rows){0};
}

int profile_rows_add(struct profile_rows *rows, const struct profile_row *row, struct err *err)
{
    if (rows->n >= PROFILE_ROWS_MAX)
        return err_add(err, "a profile holds at most %d rows", PROFILE_ROWS_MAX);
    if (rows->n == rows->capacity) {
        size_t capacity = rows->capacity > 0 ? 2 * rows->capacity : 1024;
        struct profile_row *grown = realloc(rows->row, capacity * sizeof(*grown));
        if (grown == NULL)
            return err_add(err, "out of memory for %zu rows of a profile", capacity);
        rows->row = grown;
        rows->capacity = capacity;
    }
    struct profile_row *copy = &rows->row[rows->n++];
    *copy = *row;
    copy->name = arena_strdup(&rows->arena, row->name);
    copy->key = arena_strdup(&rows->arena, row->key);
    copy->field = arena_strdup(&rows->arena, row->field);
    copy->text = row->text != NULL ? arena_strdup(&rows->arena, row->text) : NULL;
    copy->unit = arena_strdup(&rows->arena, row->unit);
    copy->date = arena_strdup(&rows->arena, row->date);
    copy->source = arena_strdup(&rows->arena, row->source);
    return 0;
}

/* Words of a profile are letters, digits and ._+-; keys also / and such as 4096x128. */
static bool is_word(const char *text, size_t max, const char *extra)
{
    size_t n = 0;
    for (; text[n] != '\0'; n++) {
        if (n >= max ||
            (!isalnum((unsigned char)text[n]) && strchr("._+-", text[n]) == NULL && strchr(extra, text[n]) == NULL))
            return false;
    }
    return n > 0;
}

static bool is_printable(const char *text, size_t max)
{
    size_t n = 0;
    for (; text[n] != '\0'; n++) {
        if (n >= max || (unsigned char)text[n] < 0x20 || text[n] == 0x7f)
            return false;
    }
    return n > 0;
}

/* YYYY, YYYY-MM or YYYY-MM-DD. */
static bool is_date(const char *text)
{
    size_t n = strlen(text);
    if (n != 4 && n != 7 && n != 10)
        return false;
    for (size_t i = 0; i < n; i++) {
        bool dash = i == 4 || i == 7;
        if (dash ? text[i] != '-' : !isdigit((unsigned char)text[i]))
            return false;
    }
    int month = n >= 7 ? (text[5] - '0') * 10 + text[6] - '0' : 1;
    int day = n >= 10 ? (text[8] - '0') * 10 + text[9] - '0' : 1;
    return month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

bool profile_key_part(const char *key, int part, char *buffer, size_t size)
{
    for (; part > 0; part--) {
        key = strchr(key, '/');
        if (key == NULL)
            return false;
        key++;
    }
    size_t length = strcspn(key, "/");
    if (length == 0 || length >= size)
        return false;
    memcpy(buffer, key, length);
    buffer[length] = '\0';
    return true;
}

static int key_parts(const char *key)
{
    int parts = 1;
    for (; *key != '\0'; key++)
        parts += *key == '/';
    return parts;
}

static int parse_level(const char *level, int64_t ranks, struct alpha_beta_key *ret)
{
    static const char over[] = "network-";
    int64_t nodes = 0;
    ret->network = strcmp(level, "node") != 0;
    if (strncmp(level, over, strlen(over)) == 0) {
        if (unit_parse_int(level + strlen(over), 2, ranks, &nodes, NULL) != 0)
            return -1;
    } else if (ret->network && strcmp(level, "network") != 0) {
        return -1;
    }
    ret->nodes = (int)nodes;
    return 0;
}

int profile_alpha_beta_key(const char *key, struct alpha_beta_key *ret)
{
    struct alpha_beta_key k;
    char op[32], ranks[16], level[20], line[8];
    int64_t n_ranks, n_line;
    if (key_parts(key) != 5 || !profile_key_part(key, 0, k.accelerator, sizeof(k.accelerator)) ||
        !profile_key_part(key, 1, op, sizeof(op)) || !profile_key_part(key, 2, ranks, sizeof(ranks)) ||
        !profile_key_part(key, 3, level, sizeof(level)) || !profile_key_part(key, 4, line, sizeof(line)))
        return -1;
    int op_index = names_find(collective_names, op);
    if (op_index < 0 || unit_parse_int(ranks, 2, 1000000, &n_ranks, NULL) != 0 ||
        parse_level(level, n_ranks, &k) != 0 || unit_parse_int(line, 1, 3, &n_line, NULL) != 0)
        return -1;
    k.op = (enum collective_op)op_index;
    k.ranks = (int)n_ranks;
    k.line = (int)n_line;
    *ret = k;
    return 0;
}

static int check_key(const struct profile_row *row, const char *where, struct err *err)
{
    struct alpha_beta_key parsed;
    int64_t head_dim;
    char list[64];
    switch (row->section) {
    case SECTION_ACCELERATOR:
    case SECTION_LINK:
    case SECTION_FABRIC:
    case SECTION_STACK:
        return row->key[0] == '\0' ? 0
                                   : err_add(err, "%s: key '%s': a row of table '%s' has none", where, row->key,
                                             profile_section_names[row->section]);
    case SECTION_GEMM:
    case SECTION_EXPERT:
        if (names_find(profile_rate_names, row->key) >= 0)
            return 0;
        return err_add(err, "%s: key '%s' is no rate class; known: %s", where, row->key,
                       names_join(profile_rate_names, list, sizeof(list)));
    case SECTION_ATTENTION:
        if (unit_parse_int(row->key, 8, 1024, &head_dim, NULL) == 0)
            return 0;
        return err_add(err, "%s: key '%s' is no head dimension of 8..1024", where, row->key);
    case SECTION_ALPHA_BETA:
        if (profile_alpha_beta_key(row->key, &parsed) == 0)
            return 0;
        return err_add(err,
                       "%s: key '%s' is not accelerator/op/ranks/level/line, such as h100-sxm/all_reduce/8/node/1 or "
                       "h100-sxm/all_reduce/16/network-2/1",
                       where, row->key);
    case SECTION_KERNEL_POINT:
        if (is_word(row->key, PROFILE_KEY_MAX, "/") && key_parts(row->key) == 3)
            return 0;
        return err_add(err, "%s: key '%s' is not kernel/variant/shape, such as gemm/16bit/4096x4096x4096", where,
                       row->key);
    case SECTION_RESIDUAL:
        return is_word(row->key, PROFILE_KEY_MAX, "/=,: ")
                   ? 0
                   : err_add(err, "%s: key '%s' is not a word", where, row->key);
    case SECTIONS:
        break;
    }
    return err_add(err, "%s: unknown table", where);
}

static int check_number(const struct profile_row *row, const struct profile_field *field, double factor,
                        const char *where, struct err *err)
{
    double si = row->value * factor;
    if (!isfinite(si) || si < field->min || si > field->max)
        return err_add(err, "%s: %s '%s' %s is %g %s; allowed: %g..%g %s", where, profile_section_names[row->section],
                       row->name, field->name, row->value, row->unit, field->min, field->max,
                       profile_unit_si(field->dimension));
    if (field->type != FIELD_DOUBLE && floor(si) < si)
        return err_add(err, "%s: %s '%s' %s is %g, not a whole number", where, profile_section_names[row->section],
                       row->name, field->name, row->value);
    bool low = !isnan(row->low), high = !isnan(row->high);
    if ((low && !isfinite(row->low)) || (high && !isfinite(row->high)) || (low && row->low > row->value) ||
        (high && row->high < row->value))
        return err_add(err, "%s: %s '%s' %s: the range %g..%g does not hold the value %g", where,
                       profile_section_names[row->section], row->name, field->name, row->low, row->high, row->value);
    return 0;
}

static int check_value(const struct profile_row *row, const char *where, struct err *err)
{
    char list[512];
    const char *section = profile_section_names[row->section];
    const struct profile_field *field = profile_field_find(row->section, row->field);
    if (field == NULL) {
        const char *names[64];
        int n = 0;
        for (const struct profile_field *f = profile_fields(row->section); f->name != NULL && n < 63; f++)
            names[n++] = f->name;
        names[n] = NULL;
        const char *near = names_nearest(names, row->field);
        if (near != NULL)
            return err_add(err, "%s: table '%s' has no field '%s'; nearest: '%s'", where, section, row->field, near);
        return err_add(err, "%s: table '%s' has no field '%s'; known: %s", where, section, row->field,
                       names_join(names, list, sizeof(list)));
    }
    if ((field->dimension == DIMENSION_NAME) != (row->text != NULL))
        return err_add(err, "%s: %s '%s' %s must be a %s", where, section, row->name, field->name,
                       row->text != NULL ? "number" : "word");
    double factor = profile_unit_factor(row->unit, field->dimension);
    if (!(factor > 0))
        return err_add(err, "%s: %s '%s' %s has the unit '%s'; allowed: %s", where, section, row->name, field->name,
                       row->unit, profile_unit_list(field->dimension, list, sizeof(list)));
    if (row->text == NULL)
        return check_number(row, field, factor, where, err);
    if (!is_word(row->text, PROFILE_NAME_MAX, ""))
        return err_add(err, "%s: %s '%s' %s is not a name", where, section, row->name, field->name);
    if (field->type == FIELD_LINK_CLASS && names_find(link_class_names, row->text) < 0)
        return err_add(err, "%s: %s '%s' link_class is '%s'; known: %s", where, section, row->name, row->text,
                       names_join(link_class_names, list, sizeof(list)));
    return 0;
}

int profile_row_check(const struct profile_row *row, const char *where, struct err *err)
{
    int bad = 0;
    if (!is_word(row->name, PROFILE_NAME_MAX, ""))
        bad = err_add(err, "%s: '%s' is not a name (letters, digits, . _ + -, at most %d)", where, row->name,
                      PROFILE_NAME_MAX);
    bad |= check_key(row, where, err);
    bad |= check_value(row, where, err);
    if (row->provenance >= PROVENANCES)
        bad = err_add(err, "%s: unknown provenance", where);
    if (!is_date(row->date))
        bad = err_add(err, "%s: date '%s' is not YYYY, YYYY-MM or YYYY-MM-DD", where, row->date);
    if (!is_printable(row->source, PROFILE_SOURCE_MAX))
        bad = err_add(err, "%s: source is missing, longer than %d bytes or has control characters", where,
                      PROFILE_SOURCE_MAX);
    return bad;
}

static int compare(const struct profile_row *a, enum profile_section section, const char *name, const char *key,
                   const char *field)
{
    if (a->section != section)
        return a->section < section ? -1 : 1;
    int c = strcmp(a->name, name);
    c = c != 0 ? c : strcmp(a->key, key);
    return c != 0 ? c : strcmp(a->field, field);
}

static int compare_rows(const void *left, const void *right)
{
    const struct profile_row *a = left, *b = right;
    int c = compare(a, b->section, b->name, b->key, b->field);
    return c != 0 ? c : a->line - b->line; /* line: order of arrival while sorting */
}

int profile_rows_sort(struct profile_rows *rows, const char *file, struct err *err)
{
    int bad = 0;
    int *lines = malloc((rows->n + 1) * sizeof(*lines));
    if (lines == NULL)
        return err_add(err, "out of memory for %zu rows of a profile", rows->n);
    for (size_t i = 0; i < rows->n; i++) {
        lines[i] = rows->row[i].line;
        rows->row[i].line = (int)i;
    }
    if (rows->n > 1)
        qsort(rows->row, rows->n, sizeof(*rows->row), compare_rows);
    size_t kept = 0;
    for (size_t i = 0; i < rows->n; i++) {
        struct profile_row row = rows->row[i];
        row.line = lines[row.line];
        if (kept > 0 && compare(&rows->row[kept - 1], row.section, row.name, row.key, row.field) == 0) {
            if (err != NULL)
                bad = err_add(err, "'%s' line %d: %s '%s' %s%s%s is there already, on line %d", file, row.line,
                              profile_section_names[row.section], row.name, row.key, row.key[0] != '\0' ? " " : "",
                              row.field, rows->row[kept - 1].line);
            kept--;
        }
        rows->row[kept++] = row;
    }
    rows->n = kept;
    free(lines);
    return bad;
}

size_t profile_rows_seek(const struct profile_rows *rows, enum profile_section section, const char *name,
                         const char *key)
{
    size_t low = 0, high = rows->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare(&rows->row[middle], section, name, key, "") < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct profile_row *profile_rows_find(const struct profile_rows *rows, enum profile_section section,
                                            const char *name, const char *key, const char *field)
{
    for (size_t i = profile_rows_seek(rows, section, name, key); i < rows->n; i++) {
        int c = compare(&rows->row[i], section, name, key, field);
        if (c >= 0)
            return c == 0 ? &rows->row[i] : NULL;
    }
    return NULL;
}

/* Length of an alpha_beta key without its line, the last slash included. */
static size_t curve_length(const char *key)
{
    const char *slash = strrchr(key, '/');
    return slash != NULL ? (size_t)(slash - key) + 1 : strlen(key);
}

enum { DROPPED = -1 }; /* profile_row.line */

static void mark_curve(const struct profile_rows *lower, const struct profile_row *upper)
{
    char curve[PROFILE_KEY_MAX + 1];
    size_t length = curve_length(upper->key);
    snprintf(curve, sizeof(curve), "%.*s", (int)length, upper->key);
    for (size_t i = profile_rows_seek(lower, SECTION_ALPHA_BETA, upper->name, curve); i < lower->n; i++) {
        struct profile_row *row = &lower->row[i];
        if (row->section != SECTION_ALPHA_BETA || strcmp(row->name, upper->name) != 0 ||
            strncmp(row->key, curve, length) != 0)
            return;
        row->line = DROPPED;
    }
}

size_t profile_rows_drop_curves(struct profile_rows *rows, size_t first)
{
    const struct profile_rows lower = {.row = rows->row, .n = first};
    const struct profile_row *last = NULL; /* whose curve is marked */
    size_t kept = 0, n = rows->n;
    for (size_t i = first; i < n && first > 0; i++) {
        const struct profile_row *row = &rows->row[i];
        if (row->section != SECTION_ALPHA_BETA)
            continue;
        if (last == NULL || strcmp(last->name, row->name) != 0 ||
            strncmp(last->key, row->key, curve_length(row->key)) != 0)
            mark_curve(&lower, row);
        last = row;
    }
    for (size_t i = 0; i < n; i++)
        if (i >= first || rows->row[i].line != DROPPED)
            rows->row[kept++] = rows->row[i];
    rows->n = kept;
    return n - kept;
}

static void hash_text(struct profile_hash *hash, const char *text)
{
    profile_hash_add(hash, text, strlen(text) + 1); /* with the NUL, so that fields cannot run together */
}

static void hash_number(struct profile_hash *hash, double value)
{
    char text[40];
    snprintf(text, sizeof(text), "%.17g", isnan(value) ? 0 : value);
    hash_text(hash, isnan(value) ? "" : text);
}

void profile_rows_hash(const struct profile_rows *rows, char ret_hex[65])
{
    struct profile_hash hash;
    profile_hash_init(&hash);
    for (size_t i = 0; i < rows->n; i++) {
        const struct profile_row *row = &rows->row[i];
        hash_text(&hash, profile_section_names[row->section]);
        hash_text(&hash, row->name);
        hash_text(&hash, row->key);
        hash_text(&hash, row->field);
        hash_text(&hash, row->text != NULL ? row->text : "");
        hash_number(&hash, row->text != NULL ? (double)NAN : row->value);
        hash_text(&hash, row->unit);
        hash_number(&hash, row->low);
        hash_number(&hash, row->high);
        hash_text(&hash, provenance_names[row->provenance]);
        hash_text(&hash, row->date);
        hash_text(&hash, row->source);
    }
    profile_hash_hex(&hash, ret_hex);
}

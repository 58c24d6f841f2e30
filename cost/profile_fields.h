/* Every quantity a profile may hold, declared once: its name (that of the struct
 * member of profile.h, so the unit is in it), what it measures, its range, what
 * stands in when it is absent, and which direction is slower.
 *
 * From these tables come the checks of rows on loading, the resolved structs of
 * profile.h, inline objects in hw.json, the slowest member of a mixed cluster and
 * the text of `plansim profile show`. Names and strings are static. */
#ifndef COST_PROFILE_FIELDS_H
#define COST_PROFILE_FIELDS_H

#include <stdbool.h>
#include <stddef.h>

struct err;

/* The tables of a profile, as the `table` column of its CSV spells them. */
enum profile_section {
    SECTION_ACCELERATOR,  /* name = accelerator, no key */
    SECTION_GEMM,         /* key = rate class, e.g. 16bit */
    SECTION_ATTENTION,    /* key = head dimension */
    SECTION_EXPERT,       /* key = rate class */
    SECTION_LINK,         /* name = link, no key */
    SECTION_ALPHA_BETA,   /* name = link or fabric, key = accelerator/op/ranks/level/line */
    SECTION_FABRIC,       /* name = fabric, no key */
    SECTION_STACK,        /* name = stack, no key */
    SECTION_KERNEL_POINT, /* name = accelerator, key = kernel/variant/shape, e.g. gemm/16bit/4096x4096x4096 */
    SECTION_RESIDUAL,     /* name = what it belongs to, key free */
    SECTIONS
};
extern const char *const profile_section_names[]; /* "accelerator", "gemm", ... NULL */
extern const char *const profile_rate_names[];    /* "fp32", "tf32", "16bit", "fp8", "fp4", NULL */

enum profile_dimension {
    DIMENSION_ONE,
    DIMENSION_SECONDS,
    DIMENSION_BYTES,
    DIMENSION_BYTES_PER_S,
    DIMENSION_FLOP_PER_S,
    DIMENSION_NAME, /* a word, not a number */
    DIMENSIONS
};

enum profile_field_type { FIELD_DOUBLE, FIELD_INT, FIELD_BOOL, FIELD_TEXT, FIELD_LINK_CLASS };

struct profile_field {
    const char *name;
    enum profile_field_type type;
    enum profile_dimension dimension;
    size_t offset; /* in the struct of its section */
    double min, max;
    bool required;
    double fallback; /* when absent and not required */
    int slower;      /* +1 greater is slower or worse, -1 smaller is, 0 neither */
    const char *help;
};

/* The fields of a section; the list ends with name == NULL. */
const struct profile_field *profile_fields(enum profile_section section);
const struct profile_field *profile_field_find(enum profile_section section, const char *name); /* NULL when unknown */

/* Factor from `unit` to SI when it measures this dimension, else 0. */
double profile_unit_factor(const char *unit, enum profile_dimension dimension);
const char *profile_unit_si(enum profile_dimension dimension); /* "s", "B", "B/s", "FLOP/s", "1", "name" */
const char *profile_unit_list(enum profile_dimension dimension, char *buffer, size_t size); /* allowed, for messages */

/* Stores a number (SI) or a word into the struct. The word of a FIELD_LINK_CLASS must be known (checked before). */
void profile_field_set(const struct profile_field *field, void *object, double value, const char *text);
double profile_field_get(const struct profile_field *field, const void *object); /* of numbers; NaN for words */

#endif

/* Rows -> the structs of profile.h.
 *
 * A value is looked up under the name, then under its `base`, then the base of
 * that; what is nowhere takes the stand-in of profile_fields.c, or is an error
 * when it has none. The provenance of a struct is that of the numbers that carry
 * it: GEMM and attention efficiency of an accelerator, curves (else efficiency)
 * of a link, all-reduce efficiency of a fabric, everything of a stack; inheriting
 * weakens it to the provenance of the `base` row. */
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/profile.h"
#include "cost/profile_rows.h"

/* A name being resolved: where values come from and how well they are known. */
struct lookup {
    const struct profile_rows *rows;
    const char *chain[PROFILE_CHAIN_MAX];
    enum provenance base[PROFILE_CHAIN_MAX]; /* of the base rows on the way to chain[i] */
    int n;
};

static int lookup_start(const struct profile *profile, enum profile_section section, const char *name,
                        struct lookup *ret, struct err *err)
{
    const struct profile_rows *rows = ret->rows = profile_rows_of(profile);
    ret->n = profile_chain(profile, section, name, ret->chain, err);
    if (ret->n == 0)
        return profile_unknown(profile, section, name, err);
    for (int i = 0; i < ret->n; i++) {
        ret->base[i] = i > 0 ? ret->base[i - 1] : PROVENANCE_MEASURED;
        if (i == 0)
            continue;
        const struct profile_row *base = profile_rows_find(rows, section, ret->chain[i - 1], "", "base");
        ret->base[i] = base->provenance > ret->base[i] ? base->provenance : ret->base[i];
    }
    return ret->n < 0 ? -1 : 0;
}

/* The row of a field, with the provenance it has for chain[0]; NULL when nobody states it. */
static const struct profile_row *lookup_row(const struct lookup *lookup, enum profile_section section, const char *key,
                                            const char *field, enum provenance *ret_provenance)
{
    for (int i = 0; i < lookup->n; i++) {
        const struct profile_row *row = profile_rows_find(lookup->rows, section, lookup->chain[i], key, field);
        if (row == NULL)
            continue;
        if (ret_provenance != NULL)
            *ret_provenance = row->provenance > lookup->base[i] ? row->provenance : lookup->base[i];
        return row;
    }
    return NULL;
}

static double si_value(const struct profile_row *row)
{
    const struct profile_field *field = profile_field_find(row->section, row->field);
    return row->value * profile_unit_factor(row->unit, field->dimension);
}

/* All fields of (section, key) into object. weakest: of everything that was stated. */
static int fill(const struct lookup *lookup, enum profile_section section, const char *key, void *object,
                enum provenance *weakest, struct err *err)
{
    int bad = 0;
    *weakest = PROVENANCE_MEASURED;
    for (const struct profile_field *field = profile_fields(section); field->name != NULL; field++) {
        enum provenance provenance;
        const struct profile_row *row = lookup_row(lookup, section, key, field->name, &provenance);
        if (row == NULL && field->required)
            bad = err_add(err, "%s '%s'%s%s has no %s in the profile", profile_section_names[section], lookup->chain[0],
                          key[0] != '\0' ? " " : "", key, field->name);
        else if (row != NULL)
            profile_field_set(field, object, row->text == NULL ? si_value(row) : 0, row->text);
        else if (field->dimension != DIMENSION_NAME)
            profile_field_set(field, object, field->fallback, NULL);
        if (row != NULL && provenance > *weakest)
            *weakest = provenance;
    }
    return bad;
}

static enum provenance provenance_of(const struct lookup *lookup, enum profile_section section, const char *key,
                                     const char *field)
{
    enum provenance provenance = PROVENANCE_ASSUMED;
    lookup_row(lookup, section, key, field, &provenance);
    return provenance;
}

/* A fitted form is taken whole from the first of the chain that has one: its parameters belong together.
 * Leaves object and provenance untouched when there is none. */
static int fill_form(const struct lookup *lookup, enum profile_section section, const char *key, void *object,
                     enum provenance *ret_provenance, struct err *err)
{
    enum provenance weakest;
    for (int i = 0; i < lookup->n; i++) {
        struct lookup one = {.rows = lookup->rows, .chain = {lookup->chain[i]}, .base = {lookup->base[i]}, .n = 1};
        size_t at = profile_rows_seek(lookup->rows, section, one.chain[0], key);
        const struct profile_row *row = at < lookup->rows->n ? &lookup->rows->row[at] : NULL;
        if (row == NULL || row->section != section || strcmp(row->name, one.chain[0]) != 0 ||
            strcmp(row->key, key) != 0)
            continue;
        *ret_provenance = provenance_of(&one, section, key, "eff");
        return fill(&one, section, key, object, &weakest, err);
    }
    return 0;
}

static int fill_rates(const struct lookup *lookup, struct accelerator *a, struct err *err)
{
    int bad = 0;
    for (int rate = 0; rate < RATES; rate++) {
        const char *key = profile_rate_names[rate];
        bad |= fill_form(lookup, SECTION_GEMM, key, &a->gemm[rate], &a->gemm[rate].provenance, err);
        bad |= fill_form(lookup, SECTION_EXPERT, key, &a->expert[rate], &a->expert[rate].provenance, err);
    }
    return bad;
}

static int compare_head_dim(const void *left, const void *right)
{
    const struct attention_form *a = left, *b = right;
    return a->head_dim - b->head_dim;
}

static int fill_attention(const struct lookup *lookup, struct accelerator *a, struct err *err)
{
    enum { FORMS = sizeof(a->attention) / sizeof(a->attention[0]) };
    const struct profile_rows *rows = lookup->rows;
    int bad = 0;
    for (int c = 0; c < lookup->n; c++) {
        for (size_t i = profile_rows_seek(rows, SECTION_ATTENTION, lookup->chain[c], ""); i < rows->n; i++) {
            const struct profile_row *row = &rows->row[i];
            if (row->section != SECTION_ATTENTION || strcmp(row->name, lookup->chain[c]) != 0)
                break;
            int head_dim = atoi(row->key), known = 0;
            while (known < a->n_attention && a->attention[known].head_dim != head_dim)
                known++;
            if (known < a->n_attention)
                continue;
            if (a->n_attention == FORMS)
                return err_add(err, "accelerator '%s' has attention of more than %d head dimensions", a->name,
                               (int)FORMS);
            struct attention_form *form = &a->attention[a->n_attention++];
            bad |= fill_form(lookup, SECTION_ATTENTION, row->key, form, &form->provenance, err);
            form->head_dim = head_dim;
        }
    }
    qsort(a->attention, (size_t)a->n_attention, sizeof(a->attention[0]), compare_head_dim);
    return bad;
}

int profile_accelerator(const struct profile *profile, const char *name, struct accelerator *ret, struct err *err)
{
    struct lookup lookup;
    struct accelerator a = {0};
    enum provenance weakest;
    if (lookup_start(profile, SECTION_ACCELERATOR, name, &lookup, err) != 0)
        return -1;
    snprintf(a.name, sizeof(a.name), "%s", name);
    int bad = fill(&lookup, SECTION_ACCELERATOR, "", &a, &weakest, err);
    bad |= fill_rates(&lookup, &a, err);
    bad |= fill_attention(&lookup, &a, err);
    a.provenance = provenance_of(&lookup, SECTION_GEMM, profile_rate_names[RATE_16BIT], "eff");
    for (int i = 0; i < a.n_attention; i++) {
        if (a.attention[i].head_dim == 128 && a.attention[i].provenance > a.provenance)
            a.provenance = a.attention[i].provenance;
    }
    const struct profile_rows *rows = profile_rows_of(profile);
    if (!profile_rows_find(rows, SECTION_ACCELERATOR, name, "", "calibrated_runs"))
        a.calibrated_runs = 0; /* what its base was fitted to says less of it */
    size_t point = profile_rows_seek(rows, SECTION_KERNEL_POINT, name, "");
    if (point < rows->n && rows->row[point].section == SECTION_KERNEL_POINT && strcmp(rows->row[point].name, name) == 0)
        a.points = profile;
    if (bad == 0)
        *ret = a;
    return bad;
}

/* The curves of a link or a fabric, where they go. */
struct curves {
    enum profile_section section;
    const char *name;
    int *n; /* [COLLECTIVE_OPS] */
    struct alpha_beta (*curve)[ALPHA_BETA_RANKS_MAX];
};

static bool comes_before(const struct alpha_beta *curve, const struct alpha_beta_key *key)
{
    return curve->ranks < key->ranks || (curve->ranks == key->ranks && curve->nodes < key->nodes);
}

/* The curve of (op, ranks, nodes), made when it is not there; NULL when there are too many. Kept in order. */
static struct alpha_beta *find_curve(const struct curves *curves, const struct alpha_beta_key *key)
{
    struct alpha_beta *curve = curves->curve[key->op];
    int n = curves->n[key->op], at = 0;
    while (at < n && comes_before(&curve[at], key))
        at++;
    if (at < n && curve[at].ranks == key->ranks && curve[at].nodes == key->nodes)
        return &curve[at];
    if (n == ALPHA_BETA_RANKS_MAX)
        return NULL;
    memmove(&curve[at + 1], &curve[at], (size_t)(n - at) * sizeof(*curve));
    curve[at] = (struct alpha_beta){.ranks = key->ranks, .nodes = key->nodes, .provenance = PROVENANCE_MEASURED};
    curves->n[key->op]++;
    return &curve[at];
}

static int add_line(const struct curves *curves, const struct alpha_beta_key *key, const struct profile_row *row,
                    struct err *err)
{
    struct alpha_beta *curve = find_curve(curves, key);
    if (curve == NULL)
        return err_add(err, "%s '%s' has curves of %s for more than %d rank counts",
                       profile_section_names[curves->section], row->name, collective_names[key->op],
                       ALPHA_BETA_RANKS_MAX);
    struct alpha_beta_line *line = &curve->line[key->line - 1];
    if (strcmp(row->field, "alpha_s") == 0)
        line->alpha_s = si_value(row);
    else if (strcmp(row->field, "bytes_per_s") == 0)
        line->bytes_per_s = si_value(row);
    else if (strcmp(row->field, "from_bytes") == 0)
        line->from_bytes = si_value(row);
    else
        line->bytes_per_s = si_value(row) * collective_bus_factor(key->op, key->ranks);
    curve->n_lines = key->line > curve->n_lines ? key->line : curve->n_lines;
    curve->provenance = row->provenance > curve->provenance ? row->provenance : curve->provenance;
    return 0;
}

/* The curves of one (link or fabric, accelerator) pair, of operations that have none yet: those of an operation are all one
 * accelerator's. Returns how many rows there were, -1 when they are wrong. */
static int take_curves(const struct profile *profile, const char *accelerator, const struct curves *curves,
                       struct err *err)
{
    int taken = 0, known[COLLECTIVE_OPS];
    struct alpha_beta_key key;
    const struct profile_rows *rows = profile_rows_of(profile);
    memcpy(known, curves->n, sizeof(known));
    for (size_t i = profile_rows_seek(rows, SECTION_ALPHA_BETA, curves->name, ""); i < rows->n; i++) {
        const struct profile_row *row = &rows->row[i];
        if (row->section != SECTION_ALPHA_BETA || strcmp(row->name, curves->name) != 0)
            break;
        if (profile_alpha_beta_key(row->key, &key) != 0 || key.network != (curves->section == SECTION_FABRIC) || strcmp(key.accelerator, accelerator) != 0 ||
            known[key.op] > 0)
            continue;
        if (add_line(curves, &key, row, err) != 0)
            return -1;
        taken++;
    }
    return taken;
}

static int check_curves(const struct curves *curves, enum provenance *ret_weakest, struct err *err)
{
    int bad = 0;
    *ret_weakest = PROVENANCE_MEASURED;
    for (int op = 0; op < COLLECTIVE_OPS; op++) {
        for (int c = 0; c < curves->n[op]; c++) {
            const struct alpha_beta *curve = &curves->curve[op][c];
            *ret_weakest = curve->provenance > *ret_weakest ? curve->provenance : *ret_weakest;
            for (int i = 0; i < curve->n_lines; i++) {
                if (!(curve->line[i].bytes_per_s > 0))
                    bad = err_add(err, "%s '%s': %s of %d ranks has no bytes_per_s in line %d",
                                  profile_section_names[curves->section], curves->name, collective_names[op],
                                  curve->ranks, i + 1);
            }
        }
    }
    return bad;
}

/* All curves for an accelerator: each operation's from the first of it, its bases and "any" that has some. Returns how
 * many rows there were, -1 when they are wrong. */
static int fill_curves(const struct profile *profile, const char *accelerator, const struct curves *curves,
                       enum provenance *ret_weakest, struct err *err)
{
    const char *owner[PROFILE_CHAIN_MAX + 1];
    int owners = accelerator != NULL ? profile_chain(profile, SECTION_ACCELERATOR, accelerator, owner, err) : 0;
    int taken = 0;
    if (owners < 0)
        return -1;
    owner[owners++] = "any";
    for (int i = 0; i < owners; i++) {
        int more = take_curves(profile, owner[i], curves, err);
        if (more < 0)
            return -1;
        taken += more;
    }
    return check_curves(curves, ret_weakest, err) == 0 ? taken : -1;
}

int profile_link(const struct profile *profile, const char *name, const char *accelerator, struct link_profile *ret,
                 struct err *err)
{
    struct lookup lookup;
    struct link_profile link = {0};
    enum provenance weakest;
    if (lookup_start(profile, SECTION_LINK, name, &lookup, err) != 0)
        return -1;
    snprintf(link.name, sizeof(link.name), "%s", name);
    int bad = fill(&lookup, SECTION_LINK, "", &link, &weakest, err);
    link.provenance = provenance_of(&lookup, SECTION_LINK, "", "efficiency");
    const struct curves curves = {SECTION_LINK, name, link.n_curves, link.curve};
    int taken = bad == 0 ? fill_curves(profile, accelerator, &curves, &weakest, err) : -1;
    if (taken < 0)
        return -1;
    link.provenance = taken > 0 ? weakest : link.provenance;
    *ret = link;
    return 0;
}

int profile_fabric(const struct profile *profile, const char *name, const char *accelerator, struct fabric_profile *ret,
                   struct err *err)
{
    struct lookup lookup;
    struct fabric_profile fabric = {0};
    const struct curves curves = {SECTION_FABRIC, name, fabric.n_curves, fabric.curve};
    enum provenance weakest;
    if (lookup_start(profile, SECTION_FABRIC, name, &lookup, err) != 0 ||
        fill(&lookup, SECTION_FABRIC, "", &fabric, &weakest, err) != 0 ||
        fill_curves(profile, accelerator, &curves, &weakest, err) < 0)
        return -1;
    snprintf(fabric.name, sizeof(fabric.name), "%s", name);
    fabric.provenance = provenance_of(&lookup, SECTION_FABRIC, "", "ar_eta");
    *ret = fabric;
    return 0;
}

/* A residual of the stack in one situation, else that of any stack, else the stand-in. */
static double spread_value(const struct lookup *lookup, const char *key, const char *field)
{
    const struct profile_row *row = lookup_row(lookup, SECTION_RESIDUAL, key, field, NULL);
    if (row == NULL)
        row = profile_rows_find(lookup->rows, SECTION_RESIDUAL, "any", key, field);
    return row != NULL ? si_value(row) : profile_field_find(SECTION_RESIDUAL, field)->fallback;
}

static void fill_spread(const struct lookup *lookup, struct stack *stack)
{
    static const char *const keys[SPREAD_MOE][SPREAD_NODES] = {{"dense/one-node", "dense/nodes"}, {"moe/one-node", "moe/nodes"}};
    for (int moe = 0; moe < SPREAD_MOE; moe++)
        for (int nodes = 0; nodes < SPREAD_NODES; nodes++)
            stack->spread[moe][nodes] = (struct factor_range){spread_value(lookup, keys[moe][nodes], "low"), spread_value(lookup, keys[moe][nodes], "high")};
}

int profile_stack(const struct profile *profile, const char *name, struct stack *ret, struct err *err)
{
    struct lookup lookup;
    struct stack stack = {0};
    if (lookup_start(profile, SECTION_STACK, name, &lookup, err) != 0 ||
        fill(&lookup, SECTION_STACK, "", &stack, &stack.provenance, err) != 0)
        return -1;
    snprintf(stack.name, sizeof(stack.name), "%s", name);
    fill_spread(&lookup, &stack);
    *ret = stack;
    return 0;
}

/* Opening and layering profiles, and rows -> the structs of profile.h.
 *
 * A value is looked up under the name, then under its `base`, then the base of
 * that; what is nowhere takes the stand-in of profile_fields.c, or is an error
 * when it has none. The provenance of a struct is that of the numbers that carry
 * it: GEMM and attention efficiency of an accelerator, curves (else efficiency)
 * of a link, all-reduce efficiency of a fabric, everything of a stack; inheriting
 * weakens it to the provenance of the `base` row. */
#include "config.h"

#include "cost/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cost/base/err.h"
#include "cost/base/names.h"
#include "cost/base/unit.h"
#include "cost/profile_rows.h"
#include "cost/profile_store.h"

const char *const provenance_names[] = {"measured", "published", "datasheet", "assumed", NULL};
const char *const collective_names[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p", NULL};
const char *const link_class_names[] = {"nvlink", "pcie", "xgmi", "ib", "roce", "efa", "slingshot", "ethernet", NULL};
_Static_assert(sizeof(provenance_names) / sizeof(provenance_names[0]) == PROVENANCES + 1, "one name each");
_Static_assert(sizeof(collective_names) / sizeof(collective_names[0]) == COLLECTIVE_OPS + 1, "one name each");
_Static_assert(sizeof(link_class_names) / sizeof(link_class_names[0]) == LINK_CLASSES + 1, "one name each");

struct profile {
    struct profile_rows rows;
    char *name; /* "default", or "default + my.db" */
    char sha256[65];
    bool has_points;
};

enum { PATH_BYTES = 4096, LEVELS_UP = 4 };
static const char default_file[] = "default.profile.db";

/* Places where the default profile may be, best first; ret is the first that is there. */
static bool find_default(char ret[PATH_BYTES], char *tried, size_t tried_size)
{
    char exe[PATH_BYTES];
    int n_written;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash != NULL)
        *slash = '\0';
    tried[0] = '\0';
    for (int level = -1; level <= LEVELS_UP && slash != NULL; level++) {
        if (level < 0)
            n_written = snprintf(ret, PATH_BYTES, "%s/../share/plansim/%s", exe, default_file);
        else
            n_written = snprintf(ret, PATH_BYTES, "%s/hwprofiles/%s", exe, default_file);
        if (level <= 0)
            snprintf(tried + strlen(tried), tried_size - strlen(tried), "%s'%s'", tried[0] != '\0' ? ", " : "", ret);
        if (n_written < PATH_BYTES && access(ret, F_OK) == 0)
            return true;
        slash = level >= 0 ? strrchr(exe, '/') : slash;
        if (level >= 0 && slash != NULL)
            *slash = '\0';
    }
    snprintf(ret, PATH_BYTES, "%s/%s", PLANSIM_DATA_DIR, default_file);
    snprintf(tried + strlen(tried), tried_size - strlen(tried), "%s'%s'", tried[0] != '\0' ? ", " : "", ret);
    return access(ret, F_OK) == 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static int add_name(struct profile *profile, const char *name)
{
    size_t old = profile->name != NULL ? strlen(profile->name) + 3 : 0;
    char *joined = malloc(old + strlen(name) + 1);
    if (joined == NULL)
        return -1;
    sprintf(joined, "%s%s%s", old > 0 ? profile->name : "", old > 0 ? " + " : "", name);
    free(profile->name);
    profile->name = joined;
    return 0;
}

static int load(struct profile *profile, const char *path, const char *name, struct err *err)
{
    if (profile_store_load(path, &profile->rows, err) != 0)
        return -1;
    if (profile_rows_sort(&profile->rows, path, NULL) != 0 || add_name(profile, name) != 0)
        return err_add(err, "out of memory for profile '%s'", path);
    profile_rows_hash(&profile->rows, profile->sha256);
    size_t first = profile_rows_seek(&profile->rows, SECTION_KERNEL_POINT, "", "");
    profile->has_points = first < profile->rows.n && profile->rows.row[first].section == SECTION_KERNEL_POINT;
    return 0;
}

int profile_open(const char *path_override, struct profile **ret, struct err *err)
{
    char found[PATH_BYTES], tried[3 * PATH_BYTES];
    const char *path = path_override != NULL ? path_override : getenv("PLANSIM_PROFILE");
    const char *name = path;
    if (path == NULL || path[0] == '\0') {
        if (!find_default(found, tried, sizeof(tried)))
            return err_add(err, "the default profile is in none of %s; name it by the environment variable PLANSIM_PROFILE", tried);
        path = found;
        name = "default";
    }
    struct profile *profile = calloc(1, sizeof(*profile));
    if (profile == NULL)
        return err_add(err, "out of memory for profile '%s'", path);
    if (load(profile, path, name == path ? base_name(path) : name, err) != 0) {
        profile_close(profile);
        return -1;
    }
    *ret = profile;
    return 0;
}

int profile_layer(struct profile *profile, const char *path, struct err *err)
{
    return load(profile, path, base_name(path), err);
}

void profile_close(struct profile *profile)
{
    if (profile == NULL)
        return;
    profile_rows_release(&profile->rows);
    free(profile->name);
    free(profile);
}

const char *profile_name(const struct profile *profile)
{
    return profile->name;
}

const char *profile_sha256(const struct profile *profile)
{
    return profile->sha256;
}

const struct profile_rows *profile_rows_of(const struct profile *profile)
{
    return &profile->rows;
}

int profile_names(const struct profile *profile, enum profile_section section, const char *names[PROFILE_NAMES_MAX])
{
    int n = 0;
    for (size_t i = profile_rows_seek(&profile->rows, section, "", "");
         i < profile->rows.n && profile->rows.row[i].section == section && n < PROFILE_NAMES_MAX - 1; i++) {
        if (n == 0 || strcmp(names[n - 1], profile->rows.row[i].name) != 0)
            names[n++] = profile->rows.row[i].name;
    }
    names[n] = NULL;
    return n;
}

int profile_unknown(const struct profile *profile, enum profile_section section, const char *name, struct err *err)
{
    const char *names[PROFILE_NAMES_MAX];
    char list[1500];
    profile_names(profile, section, names);
    const char *near = names_nearest(names, name);
    const char *part = NULL; /* "h100" is part of "h100-sxm": the shortest such name */
    for (int i = 0; near == NULL && names[i] != NULL && strlen(name) >= 3; i++) {
        if (strstr(names[i], name) != NULL && (part == NULL || strlen(names[i]) < strlen(part)))
            part = names[i];
    }
    near = near != NULL ? near : part;
    names_join(names, list, sizeof(list));
    const char *kind = profile_section_names[section];
    if (near != NULL)
        return err_add(err, "unknown %s '%s'; nearest: '%s'; known: %s", kind, name, near, list);
    return err_add(err, "unknown %s '%s'; known: %s", kind, name, list);
}

static bool has_name(const struct profile *profile, enum profile_section section, const char *name)
{
    size_t i = profile_rows_seek(&profile->rows, section, name, "");
    return i < profile->rows.n && profile->rows.row[i].section == section && strcmp(profile->rows.row[i].name, name) == 0;
}

int profile_chain(const struct profile *profile, enum profile_section section, const char *name,
                  const char *chain[PROFILE_CHAIN_MAX], struct err *err)
{
    int n = 0;
    if (!has_name(profile, section, name))
        return 0;
    for (;;) {
        chain[n++] = name;
        const struct profile_row *base = profile_rows_find(&profile->rows, section, name, "", "base");
        if (base == NULL)
            return n;
        if (!has_name(profile, section, base->text))
            return err_add(err, "%s '%s' is based on '%s', which is not in the profile", profile_section_names[section], name,
                           base->text);
        if (n == PROFILE_CHAIN_MAX)
            return err_add(err, "%s '%s' is based on a chain of more than %d others, or on itself",
                           profile_section_names[section], chain[0], PROFILE_CHAIN_MAX);
        name = base->text;
    }
}

/* A name being resolved: where values come from and how well they are known. */
struct lookup {
    const struct profile *profile;
    const char *chain[PROFILE_CHAIN_MAX];
    enum provenance base[PROFILE_CHAIN_MAX]; /* of the base rows on the way to chain[i] */
    int n;
};

static int lookup_start(const struct profile *profile, enum profile_section section, const char *name, struct lookup *ret,
                        struct err *err)
{
    ret->profile = profile;
    ret->n = profile_chain(profile, section, name, ret->chain, err);
    if (ret->n == 0)
        return profile_unknown(profile, section, name, err);
    for (int i = 0; i < ret->n; i++) {
        ret->base[i] = i > 0 ? ret->base[i - 1] : PROVENANCE_MEASURED;
        if (i == 0)
            continue;
        const struct profile_row *base = profile_rows_find(&profile->rows, section, ret->chain[i - 1], "", "base");
        ret->base[i] = base->provenance > ret->base[i] ? base->provenance : ret->base[i];
    }
    return ret->n < 0 ? -1 : 0;
}

/* The row of a field, with the provenance it has for chain[0]; NULL when nobody states it. */
static const struct profile_row *lookup_row(const struct lookup *lookup, enum profile_section section, const char *key,
                                            const char *field, enum provenance *ret_provenance)
{
    for (int i = 0; i < lookup->n; i++) {
        const struct profile_row *row = profile_rows_find(&lookup->profile->rows, section, lookup->chain[i], key, field);
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

static enum provenance provenance_of(const struct lookup *lookup, enum profile_section section, const char *key, const char *field)
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
        struct lookup one = {.profile = lookup->profile, .chain = {lookup->chain[i]}, .base = {lookup->base[i]}, .n = 1};
        size_t at = profile_rows_seek(&lookup->profile->rows, section, one.chain[0], key);
        const struct profile_row *row = at < lookup->profile->rows.n ? &lookup->profile->rows.row[at] : NULL;
        if (row == NULL || row->section != section || strcmp(row->name, one.chain[0]) != 0 || strcmp(row->key, key) != 0)
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
    const struct profile_rows *rows = &lookup->profile->rows;
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
                return err_add(err, "accelerator '%s' has attention of more than %d head dimensions", a->name, (int)FORMS);
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
    if (bad == 0)
        *ret = a;
    return bad;
}

/* nccl-tests bus factor: V = S * factor. */
static double bus_factor(enum collective_op op, int ranks)
{
    switch (op) {
    case COLLECTIVE_ALL_REDUCE:
        return 2.0 * (ranks - 1) / ranks;
    case COLLECTIVE_ALL_GATHER:
    case COLLECTIVE_REDUCE_SCATTER:
    case COLLECTIVE_ALL_TO_ALL:
        return (ranks - 1.0) / ranks;
    case COLLECTIVE_P2P:
    case COLLECTIVE_OPS:
        break;
    }
    return 1;
}

/* The curve of (op, ranks), made when it is not there; NULL when there are too many. Kept in order of ranks. */
static struct alpha_beta *link_curve(struct link_profile *link, enum collective_op op, int ranks)
{
    struct alpha_beta *curve = link->curve[op];
    int n = link->n_curves[op], at = 0;
    while (at < n && curve[at].ranks < ranks)
        at++;
    if (at < n && curve[at].ranks == ranks)
        return &curve[at];
    if (n == ALPHA_BETA_RANKS_MAX)
        return NULL;
    memmove(&curve[at + 1], &curve[at], (size_t)(n - at) * sizeof(*curve));
    curve[at] = (struct alpha_beta){.ranks = ranks, .provenance = PROVENANCE_MEASURED};
    link->n_curves[op]++;
    return &curve[at];
}

static int add_line(struct link_profile *link, const struct alpha_beta_key *key, const struct profile_row *row,
                    struct err *err)
{
    struct alpha_beta *curve = link_curve(link, key->op, key->ranks);
    if (curve == NULL)
        return err_add(err, "link '%s' has curves of %s for more than %d rank counts", row->name, collective_names[key->op],
                       ALPHA_BETA_RANKS_MAX);
    struct alpha_beta_line *line = &curve->line[key->line - 1];
    if (strcmp(row->field, "alpha_s") == 0)
        line->alpha_s = si_value(row);
    else if (strcmp(row->field, "bytes_per_s") == 0)
        line->bytes_per_s = si_value(row);
    else
        line->bytes_per_s = si_value(row) * bus_factor(key->op, key->ranks);
    curve->n_lines = key->line > curve->n_lines ? key->line : curve->n_lines;
    curve->provenance = row->provenance > curve->provenance ? row->provenance : curve->provenance;
    return 0;
}

/* The curves of one (link, accelerator) pair. Returns how many rows there were, -1 when they are wrong. */
static int take_curves(const struct profile *profile, const char *name, const char *accelerator, struct link_profile *link,
                       struct err *err)
{
    int taken = 0;
    struct alpha_beta_key key;
    for (size_t i = profile_rows_seek(&profile->rows, SECTION_ALPHA_BETA, name, ""); i < profile->rows.n; i++) {
        const struct profile_row *row = &profile->rows.row[i];
        if (row->section != SECTION_ALPHA_BETA || strcmp(row->name, name) != 0)
            break;
        if (profile_alpha_beta_key(row->key, &key) != 0 || key.network || strcmp(key.accelerator, accelerator) != 0)
            continue;
        if (add_line(link, &key, row, err) != 0)
            return -1;
        taken++;
    }
    return taken;
}

static int check_curves(const struct link_profile *link, enum provenance *ret_weakest, struct err *err)
{
    int bad = 0;
    *ret_weakest = PROVENANCE_MEASURED;
    for (int op = 0; op < COLLECTIVE_OPS; op++) {
        for (int c = 0; c < link->n_curves[op]; c++) {
            const struct alpha_beta *curve = &link->curve[op][c];
            *ret_weakest = curve->provenance > *ret_weakest ? curve->provenance : *ret_weakest;
            for (int i = 0; i < curve->n_lines; i++) {
                if (!(curve->line[i].bytes_per_s > 0))
                    bad = err_add(err, "link '%s': %s of %d ranks has no bytes_per_s in line %d", link->name,
                                  collective_names[op], curve->ranks, i + 1);
            }
        }
    }
    return bad;
}

int profile_link(const struct profile *profile, const char *name, const char *accelerator, struct link_profile *ret, struct err *err)
{
    struct lookup lookup;
    struct link_profile link = {0};
    const char *owner[PROFILE_CHAIN_MAX + 1];
    enum provenance weakest;
    if (lookup_start(profile, SECTION_LINK, name, &lookup, err) != 0)
        return -1;
    snprintf(link.name, sizeof(link.name), "%s", name);
    int bad = fill(&lookup, SECTION_LINK, "", &link, &weakest, err);
    link.provenance = provenance_of(&lookup, SECTION_LINK, "", "efficiency");
    int owners = accelerator != NULL ? profile_chain(profile, SECTION_ACCELERATOR, accelerator, owner, err) : 0;
    if (owners < 0 || bad != 0)
        return -1;
    owner[owners++] = "any";
    int taken = 0;
    for (int i = 0; i < owners && taken == 0; i++)
        taken = take_curves(profile, name, owner[i], &link, err);
    if (taken < 0 || check_curves(&link, &weakest, err) != 0)
        return -1;
    link.provenance = taken > 0 ? weakest : link.provenance;
    *ret = link;
    return 0;
}

int profile_fabric(const struct profile *profile, const char *name, struct fabric_profile *ret, struct err *err)
{
    struct lookup lookup;
    struct fabric_profile fabric = {0};
    enum provenance weakest;
    if (lookup_start(profile, SECTION_FABRIC, name, &lookup, err) != 0 ||
        fill(&lookup, SECTION_FABRIC, "", &fabric, &weakest, err) != 0)
        return -1;
    snprintf(fabric.name, sizeof(fabric.name), "%s", name);
    fabric.provenance = provenance_of(&lookup, SECTION_FABRIC, "", "ar_eta");
    *ret = fabric;
    return 0;
}

int profile_stack(const struct profile *profile, const char *name, struct stack *ret, struct err *err)
{
    struct lookup lookup;
    struct stack stack = {0};
    if (lookup_start(profile, SECTION_STACK, name, &lookup, err) != 0 ||
        fill(&lookup, SECTION_STACK, "", &stack, &stack.provenance, err) != 0)
        return -1;
    snprintf(stack.name, sizeof(stack.name), "%s", name);
    *ret = stack;
    return 0;
}

double profile_gemm_point_s(const struct profile *profile, const char *accelerator, enum rate rate, int64_t m, int64_t n, int64_t k)
{
    char key[PROFILE_KEY_MAX];
    if (!profile->has_points)
        return 0;
    snprintf(key, sizeof(key), "gemm/%s/%lldx%lldx%lld", profile_rate_names[rate], (long long)m, (long long)n, (long long)k);
    const struct profile_row *row = profile_rows_find(&profile->rows, SECTION_KERNEL_POINT, accelerator, key, "time_s");
    return row != NULL ? si_value(row) : 0;
}

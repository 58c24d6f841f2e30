/* Opening and layering profiles; names, bases, measured points. Rows become the
 * structs of profile.h in profile_resolve.c. */
#include "config.h"

#include "cost/profile.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cost/base/err.h"
#include "cost/base/names.h"
#include "cost/profile_rows.h"
#include "cost/profile_store.h"

const char *const provenance_names[] = {"measured", "published", "datasheet", "assumed", NULL};
const char *const collective_names[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p", NULL};
const char *const link_class_names[] = {"nvlink", "pcie", "xgmi", "ib", "roce", "efa", "slingshot", "ethernet", NULL};
_Static_assert(sizeof(provenance_names) / sizeof(provenance_names[0]) == PROVENANCES + 1, "one name each");
_Static_assert(sizeof(collective_names) / sizeof(collective_names[0]) == COLLECTIVE_OPS + 1, "one name each");
_Static_assert(sizeof(link_class_names) / sizeof(link_class_names[0]) == LINK_CLASSES + 1, "one name each");

double collective_bus_factor(enum collective_op op, double ranks)
{
    switch (op) {
    case COLLECTIVE_ALL_REDUCE: return 2 * (ranks - 1) / ranks;
    case COLLECTIVE_P2P: return 1;
    default: return (ranks - 1) / ranks;
    }
}

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
    size_t below = profile->rows.n;
    if (profile_store_load(path, &profile->rows, err) != 0)
        return -1;
    profile_rows_drop_curves(&profile->rows, below);
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
            return err_add(err,
                           "the default profile is in none of %s; name it by the environment variable PLANSIM_PROFILE",
                           tried);
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
    return i < profile->rows.n && profile->rows.row[i].section == section &&
           strcmp(profile->rows.row[i].name, name) == 0;
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
            return err_add(err, "%s '%s' is based on '%s', which is not in the profile", profile_section_names[section],
                           name, base->text);
        if (n == PROFILE_CHAIN_MAX)
            return err_add(err, "%s '%s' is based on a chain of more than %d others, or on itself",
                           profile_section_names[section], chain[0], PROFILE_CHAIN_MAX);
        name = base->text;
    }
}

double profile_point_s(const struct profile *profile, const char *accelerator, const char *kernel, enum rate rate,
                       int64_t m, int64_t n, int64_t k)
{
    char key[PROFILE_KEY_MAX];
    if (!profile->has_points)
        return 0;
    snprintf(key, sizeof(key), "%s/%s/%lldx%lldx%lld", kernel, profile_rate_names[rate], (long long)m, (long long)n,
             (long long)k);
    const struct profile_row *row = profile_rows_find(&profile->rows, SECTION_KERNEL_POINT, accelerator, key, "time_s");
    return row != NULL ? row->value * profile_unit_factor(row->unit, DIMENSION_SECONDS) : 0;
}

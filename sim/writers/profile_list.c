/* plansim profile list: tables, JSON and CSV. */
#include "sim/writers/profile_list.h"

#include <stdlib.h>

#include "cost/base/json.h"
#include "cost/base/unit.h"
#include "cost/profile_rows.h"
#include "sim/writers/table.h"

enum { TEXT_MAX = 64 };

/* The sections that have names of their own, and what a list of them is called. */
static const enum profile_section kinds[] = {SECTION_ACCELERATOR, SECTION_LINK, SECTION_FABRIC, SECTION_STACK};
static const char *const kind_plurals[] = {"accelerators", "links", "fabrics", "stacks"};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static const char *rate_text(double flop_per_s, char *buffer)
{
    if (flop_per_s > 0)
        snprintf(buffer, TEXT_MAX, "%.0f", flop_per_s / 1e12);
    else
        snprintf(buffer, TEXT_MAX, "-");
    return buffer;
}

static int list_accelerators(const struct profile *profile, const char **names, FILE *out, struct err *err)
{
    static const char *const titles[] = {"accelerator", "16-bit TFLOP/s", "fp8",  "fp4",       "memory",
                                         "GB/s",        "per node",       "link", "provenance"};
    struct table *table = table_new("  ");
    char text[TEXT_MAX];
    int bad = 0;
    for (int i = 0; i < 9; i++)
        table_column(table, titles[i], i == 0 || i >= 7 ? TABLE_LEFT : TABLE_RIGHT);
    for (int i = 0; names[i] != NULL; i++) {
        struct accelerator a;
        if (profile_accelerator(profile, names[i], &a, err) != 0) {
            bad = -1;
            continue;
        }
        table_cell(table, "%s", a.name);
        table_cell(table, "%s", rate_text(a.peak_flop_per_s[RATE_16BIT], text));
        table_cell(table, "%s", rate_text(a.peak_flop_per_s[RATE_FP8], text));
        table_cell(table, "%s", rate_text(a.peak_flop_per_s[RATE_FP4], text));
        table_cell(table, "%s", unit_format_bytes(a.memory_bytes, text, sizeof(text)));
        table_cell(table, "%.0f", a.hbm_bytes_per_s / 1e9);
        table_cell(table, "%d", a.default_per_node);
        table_cell(table, "%s", a.default_link);
        table_cell(table, "%s", provenance_names[a.provenance]);
    }
    table_print(table, out);
    table_free(table);
    return bad;
}

static int list_links(const struct profile *profile, const char **names, FILE *out, struct err *err)
{
    struct table *table = table_new("  ");
    int bad = 0;
    table_column(table, "link", TABLE_LEFT);
    table_column(table, "class", TABLE_LEFT);
    table_column(table, "GB/s per direction", TABLE_RIGHT);
    table_column(table, "reached", TABLE_RIGHT);
    table_column(table, "all pairs", TABLE_LEFT);
    table_column(table, "provenance", TABLE_LEFT);
    for (int i = 0; names[i] != NULL; i++) {
        struct link_profile link;
        if (profile_link(profile, names[i], NULL, &link, err) != 0) {
            bad = -1;
            continue;
        }
        table_cell(table, "%s", link.name);
        table_cell(table, "%s", link_class_names[link.link_class]);
        table_cell(table, "%.0f", link.bytes_per_s / 1e9);
        table_cell(table, "%.0f %%", 100 * link.efficiency);
        table_cell(table, "%s", link.full_mesh ? "yes" : "no");
        table_cell(table, "%s", provenance_names[link.provenance]);
    }
    table_print(table, out);
    table_free(table);
    return bad;
}

static int list_fabrics(const struct profile *profile, const char **names, FILE *out, struct err *err)
{
    struct table *table = table_new("  ");
    int bad = 0;
    table_column(table, "fabric", TABLE_LEFT);
    table_column(table, "class", TABLE_LEFT);
    table_column(table, "of the line", TABLE_RIGHT);
    table_column(table, "send/receive us", TABLE_RIGHT);
    table_column(table, "provenance", TABLE_LEFT);
    for (int i = 0; names[i] != NULL; i++) {
        struct fabric_profile fabric;
        if (profile_fabric(profile, names[i], NULL, &fabric, err) != 0) {
            bad = -1;
            continue;
        }
        table_cell(table, "%s", fabric.name);
        table_cell(table, "%s", link_class_names[fabric.link_class]);
        table_cell(table, "%.0f %%", 100 * fabric.ar_eta);
        table_cell(table, "%.1f", fabric.p2p_base_s * 1e6);
        table_cell(table, "%s", provenance_names[fabric.provenance]);
    }
    table_print(table, out);
    table_free(table);
    return bad;
}

static int list_stacks(const struct profile *profile, const char **names, FILE *out, struct err *err)
{
    struct table *table = table_new("  ");
    int bad = 0;
    table_column(table, "stack", TABLE_LEFT);
    table_column(table, "host us per launch", TABLE_RIGHT);
    table_column(table, "memory-bound ops x", TABLE_RIGHT);
    table_column(table, "attention x", TABLE_RIGHT);
    table_column(table, "provenance", TABLE_LEFT);
    for (int i = 0; names[i] != NULL; i++) {
        struct stack stack;
        if (profile_stack(profile, names[i], &stack, err) != 0) {
            bad = -1;
            continue;
        }
        table_cell(table, "%s", stack.name);
        table_cell(table, "%.1f", stack.host_launch_s * 1e6);
        table_cell(table, "%.2f", stack.pointwise);
        table_cell(table, "%.2f", stack.attention_speed);
        table_cell(table, "%s", provenance_names[stack.provenance]);
    }
    table_print(table, out);
    table_free(table);
    return bad;
}

int profile_list_table(const struct profile *profile, FILE *out, struct err *err)
{
    static int (*const list[KINDS])(const struct profile *, const char **, FILE *,
                                    struct err *) = {list_accelerators, list_links, list_fabrics, list_stacks};
    const char *names[PROFILE_NAMES_MAX];
    int bad = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        if (profile_names(profile, kinds[kind], names) == 0)
            continue;
        if (kind > 0)
            putc('\n', out);
        bad |= list[kind](profile, names, out, err);
    }
    fprintf(out, "\nprofile '%s', sha256 %.16s\n", profile_name(profile), profile_sha256(profile));
    return bad;
}

/* One name resolved; the struct that goes with its section is filled. */
struct resolved {
    enum profile_section kind;
    struct accelerator accelerator;
    struct link_profile link;
    struct fabric_profile fabric;
    struct stack stack;
    const void *object; /* the one that is filled */
    enum provenance provenance;
};

static int resolve(const struct profile *profile, enum profile_section kind, const char *name, struct resolved *ret,
                   struct err *err)
{
    int bad = -1;
    ret->kind = kind;
    switch (kind) {
    case SECTION_ACCELERATOR:
        bad = profile_accelerator(profile, name, &ret->accelerator, err);
        ret->object = &ret->accelerator;
        ret->provenance = ret->accelerator.provenance;
        break;
    case SECTION_LINK:
        bad = profile_link(profile, name, NULL, &ret->link, err);
        ret->object = &ret->link;
        ret->provenance = ret->link.provenance;
        break;
    case SECTION_FABRIC:
        bad = profile_fabric(profile, name, NULL, &ret->fabric, err);
        ret->object = &ret->fabric;
        ret->provenance = ret->fabric.provenance;
        break;
    case SECTION_STACK:
        bad = profile_stack(profile, name, &ret->stack, err);
        ret->object = &ret->stack;
        ret->provenance = ret->stack.provenance;
        break;
    default:
        break;
    }
    return bad;
}

int profile_list_check(const struct profile *profile, enum profile_section kind, const char *name, struct err *err)
{
    struct resolved *resolved = calloc(1, sizeof(*resolved));
    int bad = resolved != NULL ? resolve(profile, kind, name, resolved, err) : -1;
    free(resolved);
    return bad;
}

void profile_list_put(struct json *root, const struct profile *profile)
{
    struct json *object = json_put_object(root, "profile");
    json_put_string(object, "name", profile_name(profile));
    json_put_string(object, "sha256", profile_sha256(profile));
}

static void put_entry(const struct resolved *r, const char *name, struct json *list)
{
    struct json *entry = json_new_object();
    json_put_string(entry, "name", name);
    json_put_string(entry, "provenance", provenance_names[r->provenance]);
    if (r->kind == SECTION_ACCELERATOR)
        json_put_string(entry, "default_link", r->accelerator.default_link);
    for (const struct profile_field *f = profile_fields(r->kind); f->name != NULL; f++) {
        if (f->dimension != DIMENSION_NAME)
            json_put_number(entry, f->name, profile_field_get(f, r->object));
    }
    json_push(list, entry);
}

static void print_entry(const struct resolved *r, const char *name, FILE *out)
{
    for (const struct profile_field *f = profile_fields(r->kind); f->name != NULL; f++) {
        if (f->dimension != DIMENSION_NAME)
            fprintf(out, "%s,%s,%s,%s,%.15g,%s\n", profile_section_names[r->kind], name,
                    provenance_names[r->provenance], f->name, profile_field_get(f, r->object),
                    profile_unit_si(f->dimension));
    }
}

/* Every name: into root when it is there, else as CSV to out. */
static int list_all(const struct profile *profile, struct json *root, FILE *out, struct err *err)
{
    const char *names[PROFILE_NAMES_MAX];
    struct resolved *resolved = calloc(1, sizeof(*resolved));
    int bad = resolved != NULL ? 0 : -1;
    for (int kind = 0; kind < KINDS && resolved != NULL; kind++) {
        struct json *list = root != NULL ? json_put_array(root, kind_plurals[kind]) : NULL;
        profile_names(profile, kinds[kind], names);
        for (int i = 0; names[i] != NULL; i++) {
            if (resolve(profile, kinds[kind], names[i], resolved, err) != 0)
                bad = -1;
            else if (list != NULL)
                put_entry(resolved, names[i], list);
            else
                print_entry(resolved, names[i], out);
        }
    }
    free(resolved);
    return bad;
}

int profile_list_json(const struct profile *profile, FILE *out, struct err *err)
{
    struct json *root = json_new_object();
    int bad = list_all(profile, root, NULL, err);
    profile_list_put(root, profile);
    char *text = json_print(root);
    fputs(text, out);
    free(text);
    json_free(root);
    return bad;
}

int profile_list_csv(const struct profile *profile, FILE *out, struct err *err)
{
    fputs("kind,name,provenance,field,value,unit\n", out);
    return list_all(profile, NULL, out, err);
}

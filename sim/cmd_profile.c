/* plansim profile list | show NAME | import FILE | export NAME. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/base/names.h"
#include "cost/base/opt.h"
#include "cost/base/unit.h"
#include "cost/profile_rows.h"
#include "cost/profile_store.h"
#include "sim/commands.h"
#include "sim/inputs.h"
#include "sim/writers/profile_list.h"
#include "sim/writers/table.h"

enum action { ACTION_LIST, ACTION_SHOW, ACTION_IMPORT, ACTION_EXPORT };
static const char *const action_names[] = {"list", "show", "import", "export", NULL};
static const char *const formats[] = {"table", "json", "csv", NULL};
enum { FORMAT_TABLE, FORMAT_JSON, FORMAT_CSV };
enum { TEXT_MAX = 64, UNKNOWN = -2 };

/* The sections that have names of their own. */
static const enum profile_section kinds[] = {SECTION_ACCELERATOR, SECTION_LINK, SECTION_FABRIC, SECTION_STACK};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

struct arguments {
    enum action action;
    const char *subject; /* NAME or FILE */
    const char *profile;
    int format;
};

static int parse(struct arguments *a, int argc, char **argv, bool *ret_help, struct err *err)
{
    const struct opt table[] = {
        {"profile", OPT_STRING, &a->profile, 0, 0, NULL, "FILE",
         "your own profile: layered over the default; import writes to it"},
        {"format", OPT_CHOICE, &a->format, 0, 0, formats, "F", "table (default), json or csv"},
        {NULL, OPT_FLAG, NULL, 0, 0, NULL, NULL, NULL},
    };
    const char *words[2] = {NULL, NULL};
    char list[128];
    int n = 0;
    int result = opt_parse(table, argc, argv, words, 2, &n, ret_help, err);
    if (*ret_help) {
        opt_print_help(stdout, "plansim profile list|show NAME|import FILE|export NAME [OPTION]...",
                       "What is known of accelerators, links, fabrics and software stacks: every figure with\n"
                       "unit, provenance (measured, published, datasheet, assumed), date and source.\n\n"
                       "  list          all names with their main figures\n"
                       "  show NAME     every value, with where it is from\n"
                       "  import FILE   rows of a CSV (- is standard input) into your profile, all or none\n"
                       "  export NAME   its rows as CSV, for import; 'all' exports everything",
                       table, "plansim profile show h100-sxm");
        return result;
    }
    if (result != 0)
        return result;
    if (n == 0)
        return err_add(err, "no action given; the actions are %s", names_join(action_names, list, sizeof(list)));
    int action = names_find(action_names, words[0]);
    if (action < 0) {
        const char *near = names_nearest(action_names, words[0]);
        return near != NULL ? err_add(err, "unknown action '%s'; did you mean '%s'?", words[0], near)
                            : err_add(err, "unknown action '%s'; the actions are %s", words[0],
                                      names_join(action_names, list, sizeof(list)));
    }
    a->action = (enum action)action;
    a->subject = words[1];
    if (a->action != ACTION_LIST && a->subject == NULL)
        return err_add(err, "%s needs a %s", words[0],
                       a->action == ACTION_IMPORT ? "FILE: a CSV of profile rows" : "NAME; see 'plansim profile list'");
    if (a->action == ACTION_LIST && a->subject != NULL)
        return err_add(err, "list takes no name; did you mean 'show %s'?", a->subject);
    if (a->action == ACTION_IMPORT && a->profile == NULL)
        return err_add(err, "import needs --profile FILE, the profile to write to (created when missing)");
    return 0;
}

static int list(const struct profile *profile, int format, struct err *err)
{
    return format == FORMAT_TABLE  ? profile_list_table(profile, stdout, err)
           : format == FORMAT_JSON ? profile_list_json(profile, stdout, err)
                                   : profile_list_csv(profile, stdout, err);
}

/* ---- show, export ---- */

/* Calls back for every row. */
struct row_writer {
    void (*write)(struct row_writer *writer, const struct profile_row *row, const char *owner);
    struct table *table;
    struct json *list;
    int rows;
};

static void write_csv(struct row_writer *writer, const struct profile_row *row, const char *owner)
{
    (void)owner;
    if (writer->rows++ == 0)
        puts(profile_csv_header);
    profile_csv_print(row, stdout);
}

static void number_text(double value, const char *text, char *buffer)
{
    if (text != NULL)
        snprintf(buffer, TEXT_MAX, "%s", text);
    else
        snprintf(buffer, TEXT_MAX, "%.15g", value);
}

static void write_table(struct row_writer *writer, const struct profile_row *row, const char *owner)
{
    char text[TEXT_MAX], range[TEXT_MAX] = "";
    number_text(row->value, row->text, text);
    if (!isnan(row->low) || !isnan(row->high))
        snprintf(range, sizeof(range), "%.6g..%.6g", row->low, row->high);
    writer->rows++;
    table_cell(writer->table, "%s%s%s", profile_section_names[row->section], row->key[0] != '\0' ? " " : "", row->key);
    table_cell(writer->table, "%s", row->field);
    table_cell(writer->table, "%s", text);
    table_cell(writer->table, "%s", strcmp(row->unit, "1") == 0 ? "" : row->unit);
    table_cell(writer->table, "%s", range);
    table_cell(writer->table, "%s", provenance_names[row->provenance]);
    table_cell(writer->table, "%s", row->date);
    table_cell(writer->table, "%s%s%s%s", owner[0] != '\0' ? "(" : "", owner, owner[0] != '\0' ? ") " : "",
               row->source);
}

static void write_json(struct row_writer *writer, const struct profile_row *row, const char *owner)
{
    struct json *entry = json_new_object();
    const struct profile_field *field = profile_field_find(row->section, row->field);
    json_put_string(entry, "table", profile_section_names[row->section]);
    json_put_string(entry, "name", row->name);
    json_put_string(entry, "key", row->key[0] != '\0' ? row->key : NULL);
    json_put_string(entry, "field", row->field);
    if (row->text != NULL)
        json_put_string(entry, "value", row->text);
    else
        json_put_number(entry, "value", row->value);
    json_put_string(entry, "unit", row->unit);
    json_put_number(entry, "low", row->low);
    json_put_number(entry, "high", row->high);
    json_put_string(entry, "provenance", provenance_names[row->provenance]);
    json_put_string(entry, "date", row->date);
    json_put_string(entry, "source", row->source);
    json_put_string(entry, "inherited_from", owner[0] != '\0' ? owner : NULL);
    json_put_string(entry, "meaning", field != NULL ? field->help : NULL);
    json_push(writer->list, entry);
    writer->rows++;
}

static bool is_form(enum profile_section section)
{
    return section == SECTION_GEMM || section == SECTION_ATTENTION || section == SECTION_EXPERT;
}

/* Does an earlier one of the chain state this already? Forms are taken whole. */
static bool overridden(const struct profile_rows *rows, const struct profile_row *row, const char *const *chain,
                       int before)
{
    for (int i = 0; i < before; i++) {
        if (is_form(row->section)) {
            size_t at = profile_rows_seek(rows, row->section, chain[i], row->key);
            if (at < rows->n && rows->row[at].section == row->section && strcmp(rows->row[at].name, chain[i]) == 0 &&
                strcmp(rows->row[at].key, row->key) == 0)
                return true;
        } else if (profile_rows_find(rows, row->section, chain[i], row->key, row->field) != NULL) {
            return true;
        }
    }
    return false;
}

static void write_section(const struct profile_rows *rows, enum profile_section section, const char *const *chain,
                          int n, struct row_writer *writer)
{
    for (int c = 0; c < n; c++) {
        for (size_t i = profile_rows_seek(rows, section, chain[c], ""); i < rows->n; i++) {
            const struct profile_row *row = &rows->row[i];
            if (row->section != section || strcmp(row->name, chain[c]) != 0)
                break;
            if (!overridden(rows, row, chain, c) && (c == 0 || strcmp(row->field, "base") != 0))
                writer->write(writer, row, c > 0 ? chain[c] : "");
        }
    }
}

/* Curves that were measured with this accelerator, whatever the link. */
static void write_curves_of(const struct profile_rows *rows, const char *accelerator, struct row_writer *writer)
{
    struct alpha_beta_key key;
    for (size_t i = profile_rows_seek(rows, SECTION_ALPHA_BETA, "", "");
         i < rows->n && rows->row[i].section == SECTION_ALPHA_BETA; i++) {
        if (profile_alpha_beta_key(rows->row[i].key, &key) == 0 && strcmp(key.accelerator, accelerator) == 0)
            writer->write(writer, &rows->row[i], "");
    }
}

/* Every row of a name; inherit: those of its base, too. Returns how many sections know the name, -1 for a broken base. */
static int write_name(const struct profile *profile, const char *name, bool inherit, struct row_writer *writer,
                      struct err *err)
{
    const struct profile_rows *rows = profile_rows_of(profile);
    const char *chain[PROFILE_CHAIN_MAX];
    int known = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        int n = profile_chain(profile, kinds[kind], name, chain, err);
        if (n < 0)
            return -1;
        if (n == 0)
            continue;
        known++;
        n = inherit ? n : 1;
        write_section(rows, kinds[kind], chain, n, writer);
        if (kinds[kind] == SECTION_ACCELERATOR) {
            for (int form = 0; form < SECTIONS; form++) {
                if (is_form((enum profile_section)form))
                    write_section(rows, (enum profile_section)form, chain, n, writer);
            }
            write_section(rows, SECTION_KERNEL_POINT, chain, 1, writer);
            write_curves_of(rows, name, writer);
        }
        if (kinds[kind] == SECTION_LINK || kinds[kind] == SECTION_FABRIC)
            write_section(rows, SECTION_ALPHA_BETA, chain, 1, writer);
    }
    const char *self[] = {name};
    write_section(rows, SECTION_RESIDUAL, self, 1, writer);
    return known;
}

static int unknown_name(const struct profile *profile, const char *name, struct err *err)
{
    const char *all[KINDS * PROFILE_NAMES_MAX], *names[PROFILE_NAMES_MAX];
    char list[1800];
    int n = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        profile_names(profile, kinds[kind], names);
        for (int i = 0; names[i] != NULL; i++)
            all[n++] = names[i];
    }
    all[n] = NULL;
    const char *near = names_nearest(all, name),
               *part = NULL; /* "h100" is part of "h100-sxm": the shortest such name */
    for (int i = 0; near == NULL && all[i] != NULL && strlen(name) >= 3; i++)
        part = strstr(all[i], name) != NULL && (part == NULL || strlen(all[i]) < strlen(part)) ? all[i] : part;
    near = near != NULL ? near : part;
    names_join(all, list, sizeof(list));
    if (near != NULL)
        return err_add(err, "unknown name '%s'; did you mean '%s'? known: %s", name, near, list);
    return err_add(err, "unknown name '%s'; known: %s", name, list);
}

static int show(const struct profile *profile, const struct arguments *a, struct err *err)
{
    static const char *const titles[] = {"of", "field", "value", "unit", "range", "provenance", "date", "source"};
    struct row_writer writer = {.write = a->format == FORMAT_CSV    ? write_csv
                                         : a->format == FORMAT_JSON ? write_json
                                                                    : write_table};
    struct json *root = json_new_object();
    writer.table = table_new("  ");
    json_put_string(root, "name", a->subject);
    writer.list = json_put_array(root, "values");
    for (int i = 0; i < 8; i++)
        table_column(writer.table, titles[i], i == 2 ? TABLE_RIGHT : TABLE_LEFT);
    table_shrink(writer.table);
    int known = write_name(profile, a->subject, true, &writer, err);
    if (known > 0 && a->format == FORMAT_TABLE)
        table_print(writer.table, stdout);
    profile_list_put(root, profile);
    char *text = json_print(root);
    if (known > 0 && a->format == FORMAT_JSON)
        fputs(text, stdout);
    free(text);
    json_free(root);
    table_free(writer.table);
    return known == 0 ? unknown_name(profile, a->subject, err), UNKNOWN : known;
}

static int export_rows(const struct profile *profile, const char *name, struct err *err)
{
    const struct profile_rows *rows = profile_rows_of(profile);
    struct row_writer writer = {.write = write_csv};
    if (strcmp(name, "all") == 0) {
        for (size_t i = 0; i < rows->n; i++)
            writer.write(&writer, &rows->row[i], "");
        return 1;
    }
    int known = write_name(profile, name, false, &writer, err);
    return known == 0 ? unknown_name(profile, name, err), UNKNOWN : known;
}

/* ---- import ---- */

/* What the rows leave open, seen over the default profile: warnings, as more rows may follow. */
static void check_import(const struct profile_rows *rows, const char *path)
{
    struct profile *profile;
    struct err warn = {0};
    const char *last = "";
    if (profile_open(NULL, &profile, NULL) != 0)
        return;
    bool layered = profile_layer(profile, path, &warn) == 0;
    for (size_t i = 0; i < rows->n && layered; i++) {
        const struct profile_row *row = &rows->row[i];
        bool named = row->section == SECTION_ACCELERATOR || row->section == SECTION_LINK ||
                     row->section == SECTION_FABRIC || row->section == SECTION_STACK;
        if (named && strcmp(row->name, last) != 0)
            profile_list_check(profile, row->section, row->name, &warn);
        last = named ? row->name : last;
    }
    inputs_print("profile", "warning: ", &warn);
    profile_close(profile);
}

static int import_rows(const struct arguments *a, struct err *err)
{
    struct profile_rows rows = {0};
    char today[16];
    time_t now = time(NULL);
    struct tm utc;
    strftime(today, sizeof(today), "%Y-%m-%d", gmtime_r(&now, &utc));
    int code = profile_csv_load(a->subject, &rows, err) != 0 ? EXIT_INPUT : EXIT_ANSWERED;
    if (code == EXIT_ANSWERED) {
        int result = profile_store_write(a->profile, &rows, today, err);
        code = result == 0 ? EXIT_ANSWERED : result == PROFILE_STORE_MACHINE ? EXIT_MACHINE : EXIT_INPUT;
    }
    if (code == EXIT_ANSWERED) {
        printf("%zu rows into '%s'\n", rows.n, a->profile);
        check_import(&rows, a->profile);
    }
    profile_rows_release(&rows);
    return code;
}

static int answer(const struct arguments *a, struct err *err)
{
    struct profile *profile;
    if (profile_open(NULL, &profile, err) != 0)
        return EXIT_INPUT;
    int code = EXIT_ANSWERED, known = 1;
    if (a->profile != NULL && profile_layer(profile, a->profile, err) != 0)
        code = EXIT_INPUT;
    else if (a->action == ACTION_LIST && list(profile, a->format, err) != 0)
        code = EXIT_INPUT;
    else if (a->action == ACTION_SHOW || a->action == ACTION_EXPORT)
        known = a->action == ACTION_SHOW ? show(profile, a, err) : export_rows(profile, a->subject, err);
    if (known == UNKNOWN)
        code = EXIT_USAGE;
    else if (known < 0)
        code = EXIT_INPUT;
    profile_close(profile);
    return code;
}

int cmd_profile(int argc, char **argv)
{
    struct arguments a = {0};
    struct err err = {0};
    bool help = false;
    int code = EXIT_USAGE;
    if (parse(&a, argc, argv, &help, &err) == 0)
        code = help ? EXIT_ANSWERED : a.action == ACTION_IMPORT ? import_rows(&a, &err) : answer(&a, &err);
    else if (help)
        code = EXIT_ANSWERED;
    inputs_print("profile", "", &err);
    return code;
}

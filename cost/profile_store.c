/* The SQLite file of a profile.
 *
 * One row of a table is one number or word. Every table ends with the columns
 *   field       what it is: a name of profile_fields.c; its unit is in the name, SI
 *   value       number, or word when unit is 'name', in `unit`
 *   unit        's', 'us', 'GB/s', 'TFLOP/s', '1', 'name', ...
 *   low, high   plausible range, NULL = not stated
 *   provenance  measured | published | datasheet | assumed
 *   date        of the source, YYYY[-MM[-DD]]
 *   source      where the number is from
 * and begins with the columns that say whose number it is:
 *   spec          kind (accelerator | link | fabric), name
 *   kernel_fit    kernel (gemm | attention | expert), accelerator, variant (rate class or head dimension)
 *   kernel_point  accelerator, kernel, variant, shape ('4096x4096x4096')
 *   alpha_beta    link, accelerator ('any'), op, ranks, level ('node' | 'network'), line (regime 1..3)
 *   stack         name
 *   residual      name, key
 * meta(key, value): 'created', 'content_sha256' (over all rows, profile_rows_hash).
 * PRAGMA application_id = 0x706c7370, user_version = schema version. */
#include "cost/profile_store.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cost/base/err.h"
#include "cost/base/names.h"

enum { BUSY_MS = 2000, STEPS_MAX = 100000000, STEPS_UNIT = 10000, COLUMN_MAX = 6 };
#define FILE_BYTES_MAX ((int64_t)512 << 20)

#define VALUE_COLUMNS                                                                                                  \
    " field TEXT NOT NULL, value NOT NULL, unit TEXT NOT NULL, low REAL, high REAL,"                                   \
    " provenance TEXT NOT NULL CHECK (provenance IN ('measured', 'published', 'datasheet', 'assumed')),"               \
    " date TEXT NOT NULL, source TEXT NOT NULL,"

static const char schema[] =
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE spec (kind TEXT NOT NULL CHECK (kind IN ('accelerator', 'link', 'fabric')), name TEXT NOT NULL," VALUE_COLUMNS
    " PRIMARY KEY (kind, name, field)) WITHOUT ROWID;"
    "CREATE TABLE kernel_fit (kernel TEXT NOT NULL CHECK (kernel IN ('gemm', 'attention', 'expert')),"
    " accelerator TEXT NOT NULL, variant TEXT NOT NULL," VALUE_COLUMNS
    " PRIMARY KEY (kernel, accelerator, variant, field)) WITHOUT ROWID;"
    "CREATE TABLE kernel_point (accelerator TEXT NOT NULL, kernel TEXT NOT NULL, variant TEXT NOT NULL,"
    " shape TEXT NOT NULL," VALUE_COLUMNS " PRIMARY KEY (accelerator, kernel, variant, shape, field)) WITHOUT ROWID;"
    "CREATE TABLE alpha_beta (link TEXT NOT NULL, accelerator TEXT NOT NULL, op TEXT NOT NULL, ranks INTEGER NOT NULL,"
    " level TEXT NOT NULL, line INTEGER NOT NULL," VALUE_COLUMNS
    " PRIMARY KEY (link, accelerator, op, ranks, level, line, field)) WITHOUT ROWID;"
    "CREATE TABLE stack (name TEXT NOT NULL," VALUE_COLUMNS " PRIMARY KEY (name, field)) WITHOUT ROWID;"
    "CREATE TABLE residual (name TEXT NOT NULL, key TEXT NOT NULL," VALUE_COLUMNS
    " PRIMARY KEY (name, key, field)) WITHOUT ROWID;";

static const char value_columns[] = "field, value, unit, low, high, provenance, date, source";

/* Where the rows of a section lie: table, the column that tells sections apart, name, parts of the key. */
static const struct place {
    const char *table, *kind;
    const char *column[COLUMN_MAX]; /* name, then key parts; NULL-terminated when shorter */
} places[SECTIONS] = {
    [SECTION_ACCELERATOR] = {"spec", "kind", {"name"}},
    [SECTION_LINK] = {"spec", "kind", {"name"}},
    [SECTION_FABRIC] = {"spec", "kind", {"name"}},
    [SECTION_GEMM] = {"kernel_fit", "kernel", {"accelerator", "variant"}},
    [SECTION_ATTENTION] = {"kernel_fit", "kernel", {"accelerator", "variant"}},
    [SECTION_EXPERT] = {"kernel_fit", "kernel", {"accelerator", "variant"}},
    [SECTION_ALPHA_BETA] = {"alpha_beta", NULL, {"link", "accelerator", "op", "ranks", "level", "line"}},
    [SECTION_STACK] = {"stack", NULL, {"name"}},
    [SECTION_KERNEL_POINT] = {"kernel_point", NULL, {"accelerator", "kernel", "variant", "shape"}},
    [SECTION_RESIDUAL] = {"residual", NULL, {"name", "key"}},
};

static int place_columns(const struct place *place)
{
    int n = 0;
    while (n < COLUMN_MAX && place->column[n] != NULL)
        n++;
    return n;
}

static void list_columns(const struct place *place, char *buffer, size_t size)
{
    size_t used = 0;
    buffer[0] = '\0';
    for (int i = 0; i < place_columns(place) && used < size; i++)
        used += (size_t)snprintf(buffer + used, size - used, "%s, ", place->column[i]);
}

static int say_error(const char *path, sqlite3 *db, int code, struct err *err)
{
    switch (code) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_add(err, "profile '%s' is locked by another program (waited %d s); try again when it has finished",
                       path, BUSY_MS / 1000);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return err_add(err, "profile '%s' is damaged (%s); restore it, or build it again with 'plansim profile import'",
                       path, sqlite3_errmsg(db));
    case SQLITE_INTERRUPT:
        return err_add(err, "profile '%s' takes too long to read; expected the tables of a profile", path);
    case SQLITE_READONLY:
        return err_add(
            err, "profile '%s' cannot be written: it or its directory is read-only, or it must be recovered first",
            path);
    case SQLITE_CANTOPEN:
        return err_add(err, "profile '%s' cannot be opened (%s)", path, sqlite3_errmsg(db));
    case SQLITE_FULL:
        return err_add(err, "profile '%s' cannot be written: the disk is full", path);
    default:
        return err_add(err, "profile '%s': %s; expected a profile of schema version %d", path, sqlite3_errmsg(db),
                       PROFILE_SCHEMA_VERSION);
    }
}

/* One sentence for what SQLite says; returns PROFILE_STORE_MACHINE when the file's content is not to blame. */
static int store_error(const char *path, sqlite3 *db, int code, struct err *err)
{
    say_error(path, db, code & 0xff, err);
    switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_NOMEM:
        return PROFILE_STORE_MACHINE;
    default:
        return -1;
    }
}

static uint32_t big_endian(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Looks at the file before SQLite does: 0 fine, -1 refused. The header is that of sqlite.org/fileformat2.html 1.3. */
static int check_header(const char *path, int fd, struct err *err)
{
    unsigned char header[100];
    struct stat status;
    if (fstat(fd, &status) != 0)
        return err_add(err, "profile '%s': %s", path, strerror(errno));
    if (S_ISDIR(status.st_mode))
        return err_add(err, "profile '%s' is a directory; expected an SQLite file", path);
    if (!S_ISREG(status.st_mode))
        return err_add(err, "profile '%s' is not a regular file; expected an SQLite file", path);
    if (status.st_size == 0)
        return err_add(err, "profile '%s' is empty; expected an SQLite file", path);
    if (status.st_size > FILE_BYTES_MAX)
        return err_add(err, "profile '%s' is larger than %d MiB; expected a profile", path,
                       (int)(FILE_BYTES_MAX >> 20));
    ssize_t n = read(fd, header, sizeof(header));
    if (n < 16 || memcmp(header, "SQLite format 3", 16) != 0)
        return err_add(err, "profile '%s' is not an SQLite file; a CSV is taken in by 'plansim profile import'", path);
    if (n < (ssize_t)sizeof(header))
        return err_add(err, "profile '%s' is damaged: it ends after %d bytes", path, (int)n);
    if (big_endian(header + 68) != (uint32_t)PROFILE_APPLICATION_ID)
        return err_add(err, "profile '%s' is the SQLite file of another program (application id %u; a profile has %u)",
                       path, big_endian(header + 68), (uint32_t)PROFILE_APPLICATION_ID);
    uint32_t version = big_endian(header + 60);
    if (version != (uint32_t)PROFILE_SCHEMA_VERSION)
        return err_add(err, "profile '%s' has schema version %u; this program reads version %d", path, version,
                       PROFILE_SCHEMA_VERSION);
    uint32_t page = (uint32_t)header[16] << 8 | header[17], pages = big_endian(header + 28);
    page = page == 1 ? 65536 : page;
    bool counted = big_endian(header + 24) == big_endian(header + 92);
    if (counted && (int64_t)page * pages > status.st_size)
        return err_add(err, "profile '%s' is damaged: %lld bytes of %lld are there", path, (long long)status.st_size,
                       (long long)((int64_t)page * pages));
    return 0;
}

static int check_file(const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_add(err, "profile '%s': %s", path, strerror(errno));
    int result = check_header(path, fd, err);
    close(fd);
    return result;
}

static int too_many_steps(void *left)
{
    return --*(int *)left < 0;
}

static void guard(sqlite3 *db, int *steps_left)
{
    *steps_left = STEPS_MAX / STEPS_UNIT;
    sqlite3_progress_handler(db, STEPS_UNIT, too_many_steps, steps_left);
    sqlite3_busy_timeout(db, BUSY_MS);
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 1 << 20);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)NULL);
}

static const char *text_column(sqlite3_stmt *statement, int column)
{
    const unsigned char *text = sqlite3_column_text(statement, column);
    bool whole = text != NULL && strlen((const char *)text) == (size_t)sqlite3_column_bytes(statement, column);
    return whole ? (const char *)text : "";
}

static double number_column(sqlite3_stmt *statement, int column)
{
    int type = sqlite3_column_type(statement, column);
    return type == SQLITE_FLOAT || type == SQLITE_INTEGER ? sqlite3_column_double(statement, column) : (double)NAN;
}

static int read_row(sqlite3_stmt *statement, enum profile_section section, const char *path, struct profile_rows *rows,
                    struct err *err)
{
    int n = place_columns(&places[section]);
    char key[PROFILE_KEY_MAX + 64] = "", where[400];
    size_t used = 0;
    for (int i = 1; i < n && used < sizeof(key); i++)
        used += (size_t)snprintf(key + used, sizeof(key) - used, "%s%s", i > 1 ? "/" : "", text_column(statement, i));
    struct profile_row row = {.section = section,
                              .name = text_column(statement, 0),
                              .key = key,
                              .field = text_column(statement, n),
                              .value = number_column(statement, n + 1),
                              .unit = text_column(statement, n + 2),
                              .low = number_column(statement, n + 3),
                              .high = number_column(statement, n + 4),
                              .date = text_column(statement, n + 6),
                              .source = text_column(statement, n + 7)};
    if (sqlite3_column_type(statement, n + 1) == SQLITE_TEXT)
        row.text = text_column(statement, n + 1);
    snprintf(where, sizeof(where), "profile '%s'", path);
    int provenance = names_find(provenance_names, text_column(statement, n + 5));
    if (provenance < 0)
        return err_add(err, "%s: %s '%s' %s has the unknown provenance '%s'", where, profile_section_names[section],
                       row.name, row.field, text_column(statement, n + 5));
    row.provenance = (enum provenance)provenance;
    if (profile_row_check(&row, where, err) != 0)
        return -1;
    return profile_rows_add(rows, &row, err);
}

static int read_section(sqlite3 *db, enum profile_section section, const char *path, struct profile_rows *rows,
                        struct err *err)
{
    const struct place *place = &places[section];
    char columns[128], sql[400];
    sqlite3_stmt *statement = NULL;
    list_columns(place, columns, sizeof(columns));
    snprintf(sql, sizeof(sql), "SELECT %s%s FROM %s%s%s%s", columns, value_columns, place->table,
             place->kind != NULL ? " WHERE " : "", place->kind != NULL ? place->kind : "",
             place->kind != NULL ? " = ?1" : "");
    int code = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    if (code != SQLITE_OK)
        return store_error(path, db, code, err);
    if (place->kind != NULL)
        sqlite3_bind_text(statement, 1, profile_section_names[section], -1, SQLITE_STATIC);
    int bad = 0;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
        if (rows->n >= PROFILE_ROWS_MAX) {
            bad = err_add(err, "profile '%s' holds more than %d rows", path, PROFILE_ROWS_MAX);
            code = SQLITE_DONE;
            break;
        }
        bad |= read_row(statement, section, path, rows, err);
    }
    if (code != SQLITE_DONE)
        bad = store_error(path, db, code, err);
    sqlite3_finalize(statement);
    return bad;
}

static int read_meta(sqlite3 *db, const char *key, char *buffer, size_t size, const char *path, struct err *err)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(db, "SELECT value FROM meta WHERE key = ?1", -1, &statement, NULL);
    if (code != SQLITE_OK)
        return store_error(path, db, code, err);
    sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
    code = sqlite3_step(statement);
    buffer[0] = '\0';
    if (code == SQLITE_ROW)
        snprintf(buffer, size, "%s", text_column(statement, 0));
    sqlite3_finalize(statement);
    return code == SQLITE_ROW || code == SQLITE_DONE ? 0 : store_error(path, db, code, err);
}

/* All rows of an open file into an empty set, sorted, and the hash compared with the recorded one. */
static int read_all(sqlite3 *db, const char *path, struct profile_rows *rows, struct err *err)
{
    int bad = 0;
    char recorded[80], actual[65];
    for (int section = 0; section < SECTIONS && bad == 0; section++)
        bad = read_section(db, (enum profile_section)section, path, rows, err);
    if (bad == 0)
        bad = read_meta(db, "content_sha256", recorded, sizeof(recorded), path, err);
    if (bad == 0)
        bad = profile_rows_sort(rows, path, NULL);
    if (bad != 0)
        return bad;
    profile_rows_hash(rows, actual);
    if (strcmp(recorded, actual) != 0)
        return err_add(err,
                       "profile '%s' is damaged or was edited by hand: its content does not match the recorded sha256; "
                       "change it with 'plansim profile import'",
                       path);
    return 0;
}

static int open_readonly(const char *path, sqlite3 **ret, struct err *err)
{
    sqlite3 *db = NULL;
    int code = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK) {
        store_error(path, db, code, err);
        sqlite3_close(db);
        return -1;
    }
    *ret = db;
    return 0;
}

int profile_store_load(const char *path, struct profile_rows *rows, struct err *err)
{
    sqlite3 *db;
    int steps_left;
    struct profile_rows loaded = {0};
    if (check_file(path, err) != 0 || open_readonly(path, &db, err) != 0)
        return -1;
    guard(db, &steps_left);
    int code = sqlite3_exec(db, "BEGIN", NULL, NULL, NULL); /* one snapshot for all tables */
    int bad = code == SQLITE_OK ? read_all(db, path, &loaded, err) : store_error(path, db, code, err);
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    sqlite3_close(db);
    for (size_t i = 0; i < loaded.n && bad == 0; i++)
        bad = profile_rows_add(rows, &loaded.row[i], err);
    profile_rows_release(&loaded);
    return bad;
}

static void bind_number(sqlite3_stmt *statement, int column, double value)
{
    if (isnan(value))
        sqlite3_bind_null(statement, column);
    else
        sqlite3_bind_double(statement, column, value);
}

static int bind_row(sqlite3_stmt *statement, const struct profile_row *row)
{
    const struct place *place = &places[row->section];
    int at = 1;
    char part[PROFILE_KEY_MAX + 1];
    if (place->kind != NULL)
        sqlite3_bind_text(statement, at++, profile_section_names[row->section], -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, at++, row->name, -1, SQLITE_STATIC);
    for (int i = 1; i < place_columns(place); i++) {
        if (row->section == SECTION_RESIDUAL)
            snprintf(part, sizeof(part), "%s", row->key);
        else if (!profile_key_part(row->key, i - 1, part, sizeof(part)))
            part[0] = '\0';
        sqlite3_bind_text(statement, at++, part, -1, SQLITE_TRANSIENT);
    }
    sqlite3_bind_text(statement, at++, row->field, -1, SQLITE_STATIC);
    if (row->text != NULL)
        sqlite3_bind_text(statement, at++, row->text, -1, SQLITE_STATIC);
    else
        sqlite3_bind_double(statement, at++, row->value);
    sqlite3_bind_text(statement, at++, row->unit, -1, SQLITE_STATIC);
    bind_number(statement, at++, row->low);
    bind_number(statement, at++, row->high);
    sqlite3_bind_text(statement, at++, provenance_names[row->provenance], -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, at++, row->date, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, at++, row->source, -1, SQLITE_STATIC);
    return at - 1;
}

static int prepare_insert(sqlite3 *db, enum profile_section section, sqlite3_stmt **ret)
{
    const struct place *place = &places[section];
    char columns[128], sql[500], marks[64] = "?";
    list_columns(place, columns, sizeof(columns));
    int n = place_columns(place) + (place->kind != NULL) + 8;
    for (int i = 1; i < n; i++)
        strcat(marks, ",?");
    snprintf(sql, sizeof(sql), "INSERT OR REPLACE INTO %s (%s%s%s%s) VALUES (%s)", place->table,
             place->kind != NULL ? place->kind : "", place->kind != NULL ? ", " : "", columns, value_columns, marks);
    return sqlite3_prepare_v2(db, sql, -1, ret, NULL);
}

/* Of the curves in `rows` no line of an earlier measurement stays. */
static int delete_curves(sqlite3 *db, const char *path, const struct profile_rows *rows, struct err *err)
{
    static const char sql[] = "DELETE FROM alpha_beta WHERE link = ?1 AND accelerator = ?2 AND op = ?3 AND ranks = ?4 AND level = ?5";
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    for (size_t i = 0; i < rows->n && code == SQLITE_OK; i++) {
        const struct profile_row *row = &rows->row[i];
        char part[PROFILE_KEY_MAX + 1];
        if (row->section != SECTION_ALPHA_BETA)
            continue;
        sqlite3_bind_text(statement, 1, row->name, -1, SQLITE_STATIC);
        for (int k = 0; k < 4; k++)
            sqlite3_bind_text(statement, k + 2, profile_key_part(row->key, k, part, sizeof(part)) ? part : "", -1, SQLITE_TRANSIENT);
        code = sqlite3_step(statement) == SQLITE_DONE ? SQLITE_OK : sqlite3_errcode(db);
        sqlite3_reset(statement);
    }
    int bad = code == SQLITE_OK ? 0 : store_error(path, db, code, err);
    sqlite3_finalize(statement);
    return bad;
}

static int insert_rows(sqlite3 *db, const char *path, const struct profile_rows *rows, struct err *err)
{
    sqlite3_stmt *statement = NULL;
    int code = SQLITE_OK, last = -1;
    for (size_t i = 0; i < rows->n && code == SQLITE_OK; i++) {
        const struct profile_row *row = &rows->row[i];
        if ((int)row->section != last) {
            sqlite3_finalize(statement);
            statement = NULL;
            code = prepare_insert(db, row->section, &statement);
            last = (int)row->section;
        }
        if (code != SQLITE_OK)
            break;
        bind_row(statement, row);
        code = sqlite3_step(statement) == SQLITE_DONE ? SQLITE_OK : sqlite3_errcode(db);
        sqlite3_reset(statement);
    }
    int bad = code == SQLITE_OK ? 0 : store_error(path, db, code, err);
    sqlite3_finalize(statement);
    return bad;
}

static int write_meta(sqlite3 *db, const char *path, const char *key, const char *value, bool keep, struct err *err)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(db,
                                  keep ? "INSERT OR IGNORE INTO meta (key, value) VALUES (?1, ?2)"
                                       : "INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)",
                                  -1, &statement, NULL);
    if (code == SQLITE_OK) {
        sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
        sqlite3_bind_text(statement, 2, value, -1, SQLITE_STATIC);
        code = sqlite3_step(statement) == SQLITE_DONE ? SQLITE_OK : sqlite3_errcode(db);
    }
    sqlite3_finalize(statement);
    return code == SQLITE_OK ? 0 : store_error(path, db, code, err);
}

static int run(sqlite3 *db, const char *path, const char *sql, struct err *err)
{
    int code = sqlite3_exec(db, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? 0 : store_error(path, db, code, err);
}

/* Inside the transaction: schema when new, the old rows checked, the new ones in, the hash of all. */
static int write_all(sqlite3 *db, const char *path, bool fresh, const struct profile_rows *rows, const char *created,
                     struct err *err)
{
    struct profile_rows all = {0};
    char sql[128], hash[65];
    int bad = 0;
    if (fresh) {
        snprintf(sql, sizeof(sql), "PRAGMA application_id = %d; PRAGMA user_version = %d;", PROFILE_APPLICATION_ID,
                 PROFILE_SCHEMA_VERSION);
        bad = run(db, path, sql, err) != 0 ? -1 : run(db, path, schema, err);
    } else {
        bad = read_all(db, path, &all, err);
    }
    size_t below = all.n;
    for (size_t i = 0; i < rows->n && bad == 0; i++)
        bad = profile_rows_add(&all, &rows->row[i], err);
    if (bad == 0 && profile_rows_drop_curves(&all, below) > 0)
        bad = delete_curves(db, path, rows, err);
    if (bad == 0)
        bad = profile_rows_sort(&all, path, NULL);
    if (bad == 0) {
        profile_rows_hash(&all, hash);
        bad = insert_rows(db, path, rows, err);
    }
    if (bad == 0)
        bad = write_meta(db, path, "created", created, true, err);
    if (bad == 0)
        bad = write_meta(db, path, "content_sha256", hash, false, err);
    profile_rows_release(&all);
    return bad;
}

int profile_store_write(const char *path, const struct profile_rows *rows, const char *created, struct err *err)
{
    sqlite3 *db = NULL;
    int steps_left, bad;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool fresh = fd >= 0;
    if (fresh)
        close(fd);
    else if (errno != EEXIST)
        return err_add(err, "profile '%s' cannot be created: %s", path, strerror(errno)), PROFILE_STORE_MACHINE;
    else if (check_file(path, err) != 0)
        return -1;
    int code = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    bad = code == SQLITE_OK ? 0 : store_error(path, db, code, err);
    if (bad == 0) {
        guard(db, &steps_left);
        bad = run(db, path, "BEGIN IMMEDIATE", err);
    }
    if (bad == 0) {
        bad = write_all(db, path, fresh, rows, created, err);
        if (bad == 0)
            bad = run(db, path, "COMMIT", err);
        if (bad != 0)
            sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    }
    sqlite3_close(db);
    if (bad != 0 && fresh)
        unlink(path);
    return bad;
}

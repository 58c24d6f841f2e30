#include "exec/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cost/base/err.h"
#include "cost/base/file.h"
#include "cost/base/json.h"
#include "cost/model.h"
#include "exec/comm.h"
#include "exec/trainer.h"
#include "exec/world.h"

enum { PATH_SIZE = 4096, LATEST_MAX = 256 };
static const char magic[16] = "planexec ckpt 1";

/* Before the elements: n weights, n m, n v. */
struct record {
    char name[PARAM_NAME_MAX];
    int64_t first_row, first_column, columns; /* of the writing rank's part of the matrix */
    int64_t inside, n;                        /* elements [inside, inside + n) of that part */
};

/* --- a file and its checksum (FNV-1a over 4-byte words) ------------------------ */

struct stream {
    FILE *file;
    uint64_t checksum;
    int64_t bytes;
    bool failed;
};

static void sum_up(struct stream *s, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        uint32_t word;
        memcpy(&word, at + i, 4);
        s->checksum = (s->checksum ^ word) * 0x100000001b3u;
    }
    s->bytes += (int64_t)bytes;
}

static void put(struct stream *s, const void *data, size_t bytes)
{
    sum_up(s, data, bytes);
    s->failed |= fwrite(data, 1, bytes, s->file) != bytes;
}

static bool take(struct stream *s, void *data, size_t bytes)
{
    if (fread(data, 1, bytes, s->file) != bytes)
        return false;
    sum_up(s, data, bytes);
    return true;
}

/* --- writing -------------------------------------------------------------------- */

static void put_param(const struct trainer *t, struct stream *s, const struct unit *unit, const struct param *param)
{
    int64_t first, n = optimizer_part(unit, param, &first);
    if (n == 0 || !optimizer_counts(&t->executor, unit, param))
        return;
    struct record record = {.first_row = param->first_row,
                            .first_column = param->first_column,
                            .columns = param->columns,
                            .inside = first + unit->owned_first - param->offset,
                            .n = n};
    memcpy(record.name, param->name, sizeof record.name);
    put(s, &record, sizeof record);
    struct device *device = t->executor.device;
    float *host = malloc((size_t)n * sizeof *host);
    if (!host)
        abort();
    const float *parts[3] = {unit->owned_weight + first, unit->m + first, unit->v + first};
    for (int i = 0; i < 3; i++) {
        device->download(device, host, parts[i], (size_t)n * sizeof *host);
        put(s, host, (size_t)n * sizeof *host);
    }
    free(host);
}

static void rank_path(char *path, const char *directory, int rank)
{
    snprintf(path, PATH_SIZE, "%.4000s/rank-%05d.bin", directory, rank);
}

static int put_rank(const struct trainer *t, const char *directory, struct stream *s, struct err *err)
{
    char path[PATH_SIZE];
    const struct params *params = &t->executor.params;
    rank_path(path, directory, t->executor.world->rank);
    *s = (struct stream){.file = fopen(path, "wb"), .checksum = 0xcbf29ce484222325u};
    if (!s->file)
        return err_add(err, "checkpoint '%s' cannot be written: %s", path, strerror(errno));
    put(s, magic, sizeof magic);
    for (int u = 0; u < params->n; u++)
        for (int p = 0; p < params->unit[u]->n_params; p++)
            put_param(t, s, params->unit[u], &params->unit[u]->param[p]);
    uint64_t checksum = s->checksum;
    s->failed |=
        fwrite(&checksum, sizeof checksum, 1, s->file) != 1 || fflush(s->file) != 0 || fsync(fileno(s->file)) != 0;
    s->failed |= fclose(s->file) != 0;
    return s->failed ? err_add(err, "checkpoint '%s' cannot be written: %s", path, strerror(errno)) : 0;
}

/* What decides how large the weights are, and how they are used. */
struct shape_field {
    const char *name;
    int64_t value;
};
enum { SHAPE_FIELDS = 10 };

static void fill_shape(const struct model *model, struct shape_field ret[SHAPE_FIELDS])
{
    int64_t widths = 0;
    for (int i = 0; i < model->n_kinds; i++)
        widths = 31 * widths + (int64_t)model->kinds[i].ffn + 7 * (int64_t)model->kinds[i].shared_ffn;
    struct model_parameters all;
    model_count_parameters(model, &all);
    const struct shape_field fields[SHAPE_FIELDS] = {
        {"hidden", model->hidden},       {"layers", model->layers},     {"vocabulary", model->vocab},
        {"heads", model->heads},         {"kv_heads", model->kv_heads}, {"head_dim", model->head_dim},
        {"experts", model->experts},     {"tied", model->tied},         {"ffn", widths},
        {"parameters", all.total}};
    memcpy(ret, fields, sizeof fields);
}

static void put_shape(struct json *root, const struct model *model)
{
    struct shape_field field[SHAPE_FIELDS];
    fill_shape(model, field);
    for (int i = 0; i < SHAPE_FIELDS; i++)
        json_put_int(root, field[i].name, field[i].value);
}

/* lengths and checksums of all ranks: [rank][bytes, low half, high half] */
static int put_meta(const struct trainer *t, const char *directory, const double *files, struct err *err)
{
    char path[PATH_SIZE], word[32];
    struct json *root = json_new_object(), *list;
    json_put_int(root, "version", 1);
    json_put_int(root, "step", t->optimizer.step);
    json_put_int(root, "skipped", t->optimizer.skipped);
    json_put_int(root, "sequences", t->sequences);
    json_put_int(root, "seed", (int64_t)t->executor.params.seed);
    put_shape(json_put_object(root, "model"), t->executor.model);
    list = json_put_array(root, "files");
    for (int r = 0; r < t->executor.world->size; r++) {
        struct json *file = json_new_object();
        snprintf(word, sizeof word, "%08lx%08lx", (unsigned long)files[3 * r + 2], (unsigned long)files[3 * r + 1]);
        json_put_int(file, "bytes", (int64_t)files[3 * r]);
        json_put_string(file, "checksum", word);
        json_push(list, file);
    }
    char *text = json_print(root);
    snprintf(path, sizeof path, "%.4000s/meta.json", directory);
    int result = file_write_atomic(path, text, strlen(text), err);
    free(text);
    json_free(root);
    return result;
}

/* Did all ranks succeed? Those that did say that another did not. */
static int agree(const struct trainer *t, int result, struct err *err)
{
    double failed = result < 0;
    comm_all_reduce_doubles(t->executor.world->comm[WORLD_ALL], COMM_MAX, 1, &failed);
    if (failed > 0 && result == 0)
        return err_add(err, "another rank could not do its part of the checkpoint");
    return failed > 0 ? -1 : 0;
}

static int make_directory(const char *path, struct err *err)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return 0;
    return err_add(err, "checkpoint '%s' cannot be made: %s", path, strerror(errno));
}

int checkpoint_prepare(const char *directory, struct err *err)
{
    if (make_directory(directory, err) < 0)
        return -1;
    return access(directory, W_OK | X_OK) == 0 ? 0 : err_add(err, "checkpoint '%s' cannot be written: %s", directory, strerror(errno));
}

/* What a step of another run left there, file by file. */
static void remove_step(const char *directory)
{
    char path[PATH_SIZE];
    DIR *open = opendir(directory);
    for (const struct dirent *entry = open ? readdir(open) : NULL; entry; entry = readdir(open)) {
        snprintf(path, sizeof path, "%.3800s/%.255s", directory, entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(path);
    }
    if (open)
        closedir(open);
    rmdir(directory);
}

static int publish(const char *directory, const char *part, const char *name, struct err *err)
{
    char whole[PATH_SIZE];
    snprintf(whole, sizeof whole, "%.3800s/%.255s", directory, name);
    if (rename(part, whole) < 0 && (errno == EEXIST || errno == ENOTEMPTY)) { /* a run before this one came as far */
        char old[PATH_SIZE];
        snprintf(old, sizeof old, "%.3800s/%.250s.old", directory, name);
        if (rename(whole, old) == 0 && rename(part, whole) == 0)
            remove_step(old);
    }
    if (access(part, F_OK) == 0)
        return err_add(err, "checkpoint '%s' cannot be renamed to '%s': %s", part, whole, strerror(errno));
    snprintf(whole, sizeof whole, "%.4000s/latest", directory);
    return file_write_atomic(whole, name, strlen(name), err);
}

int checkpoint_save(const struct trainer *t, const char *directory, struct err *err)
{
    char part[PATH_SIZE], name[LATEST_MAX];
    int rank = t->executor.world->rank, size = t->executor.world->size, result = 0;
    struct stream s;
    snprintf(name, sizeof name, "step-%lld", (long long)(t->optimizer.step + t->optimizer.skipped));
    snprintf(part, sizeof part, "%.3800s/%.255s.part", directory, name);
    if (rank == 0)
        result = make_directory(directory, err) < 0 ? -1 : make_directory(part, err);
    if (agree(t, result, err) < 0 || agree(t, put_rank(t, part, &s, err), err) < 0)
        return -1;
    double *files = calloc((size_t)(3 * size), sizeof *files);
    if (!files)
        abort();
    files[3 * rank] = (double)(s.bytes + (int64_t)sizeof s.checksum);
    files[3 * rank + 1] = (double)(s.checksum & 0xffffffffu);
    files[3 * rank + 2] = (double)(s.checksum >> 32);
    comm_all_reduce_doubles(t->executor.world->comm[WORLD_ALL], COMM_SUM, 3 * size, files);
    if (rank == 0)
        result = put_meta(t, part, files, err) < 0 ? -1 : publish(directory, part, name, err);
    free(files);
    return agree(t, result, err);
}

/* --- reading -------------------------------------------------------------------- */

/* values: n weights, n m, n v of the record; those from `from` on go to owned elements [at, at + n). */
static void take_run(struct device *device, const struct unit *unit, const struct record *record, const float *values,
                     int64_t from, int64_t at, int64_t n)
{
    float *const to[3] = {unit->owned_weight, unit->m, unit->v};
    for (int i = 0; i < 3; i++)
        device->upload(device, to[i] + at, values + i * record->n + from, (size_t)n * sizeof *values);
}

/* Row by row: what record and parameter have in common, and is owned. Returns its elements, padding left out. */
static int64_t take_param(const struct trainer *t, const struct unit *unit, const struct param *param,
                          const struct record *record, const float *values)
{
    int64_t first, n = optimizer_part(unit, param, &first), inside = first + unit->owned_first - param->offset,
                   taken = 0, run;
    for (int64_t i = 0; i < record->n; i += run) {
        int64_t place = record->inside + i, from = place % record->columns;
        run = record->columns - from < record->n - i ? record->columns - from : record->n - i;
        int64_t row = record->first_row + place / record->columns - param->first_row;
        int64_t column = record->first_column + from - param->first_column, skip = column < 0 ? -column : 0;
        int64_t end = column + run < param->columns ? run : param->columns - column;
        int64_t at = row * param->columns + column - inside; /* of the run's start, among the owned */
        skip = at + skip < 0 ? -at : skip;
        end = at + end > n ? n - at : end;
        if (row < 0 || row >= param->rows || skip >= end)
            continue;
        take_run(t->executor.device, unit, record, values, i + skip, first + at + skip, end - skip);
        taken += row + param->first_row < param->all_rows ? end - skip : 0;
    }
    return taken;
}

/* Elements of the record that this rank owns. */
static int64_t take_over(const struct trainer *t, const struct record *record, const float *values)
{
    const struct params *params = &t->executor.params;
    int64_t taken = 0;
    for (int u = 0; u < params->n; u++)
        for (int p = 0; p < params->unit[u]->n_params; p++)
            if (strcmp(params->unit[u]->param[p].name, record->name) == 0)
                taken += take_param(t, params->unit[u], &params->unit[u]->param[p], record, values);
    return taken;
}

static int read_records(const struct trainer *t, struct stream *s, const char *path, int64_t end, int64_t *taken,
                        struct err *err)
{
    char head[sizeof magic];
    if (!take(s, head, sizeof head) || memcmp(head, magic, sizeof magic) != 0)
        return err_add(err, "checkpoint '%s' is no file of planexec", path);
    while (s->bytes < end) {
        struct record record;
        if (!take(s, &record, sizeof record) || record.n < 1 || record.columns < 1 || record.n > end / 12)
            return err_add(err, "checkpoint '%s' is damaged", path);
        float *values = malloc((size_t)record.n * 3 * sizeof *values);
        if (!values)
            abort();
        record.name[PARAM_NAME_MAX - 1] = '\0';
        bool whole = take(s, values, (size_t)record.n * 3 * sizeof *values);
        if (whole)
            *taken += take_over(t, &record, values);
        free(values);
        if (!whole)
            return err_add(err, "checkpoint '%s' is cut short", path);
    }
    return 0;
}

/* expected: as meta.json has it. Two passes would double the reading: a file that turns out wrong ends the run anyway.
 * */
static int read_file(const struct trainer *t, const char *path, const struct json *expected, int64_t *taken,
                     struct err *err)
{
    struct stat status;
    char word[32];
    int64_t bytes = (int64_t)json_double(json_get(expected, "bytes"));
    if (stat(path, &status) < 0)
        return err_add(err, "checkpoint '%s' is missing", path);
    if (status.st_size != bytes)
        return err_add(err, "checkpoint '%s' has %lld bytes instead of %lld", path, (long long)status.st_size,
                       (long long)bytes);
    struct stream s = {.file = fopen(path, "rb"), .checksum = 0xcbf29ce484222325u};
    if (!s.file)
        return err_add(err, "checkpoint '%s' cannot be read: %s", path, strerror(errno));
    int result = read_records(t, &s, path, bytes - (int64_t)sizeof s.checksum, taken, err);
    fclose(s.file);
    snprintf(word, sizeof word, "%08lx%08lx", (unsigned long)(s.checksum >> 32),
             (unsigned long)(s.checksum & 0xffffffffu));
    if (result == 0 && strcmp(word, json_text(json_get(expected, "checksum"))) != 0)
        return err_add(err, "checkpoint '%s' was changed: its checksum is not that of meta.json", path);
    return result;
}

static int check_shape(const struct trainer *t, const struct json *meta, const char *file, struct err *err)
{
    struct shape_field field[SHAPE_FIELDS];
    struct json_at root = {file, "", meta}, shape;
    int64_t version = 0, value;
    char path[64];
    if (json_read_int(root, "version", 1, 1, &version, err) < 0 ||
        json_read_object(root, "model", &shape, path, sizeof path, err) != 1)
        return err_add(err, "checkpoint '%s' is not complete", file);
    fill_shape(t->executor.model, field);
    int before = err->count;
    for (int i = 0; i < SHAPE_FIELDS; i++) {
        value = field[i].value;
        if (json_read_int(shape, field[i].name, 0, INT64_MAX / 2, &value, err) < 0 || (i < 3 && !json_has(shape.node, field[i].name)))
            return err_add(err, "checkpoint '%s' is not complete", file);
        if (value != field[i].value)
            err_add(err, "checkpoint '%s' is of another model: %s %lld, not %lld", file, field[i].name, (long long)value, (long long)field[i].value);
    }
    return err->count > before ? -1 : 0;
}

/* Real elements that this rank owns. */
static int64_t count_owned(const struct trainer *t)
{
    int64_t count = 0;
    for (int u = 0; u < t->executor.params.n; u++)
        for (int p = 0; p < t->executor.params.unit[u]->n_params; p++) {
            const struct unit *unit = t->executor.params.unit[u];
            const struct param *param = &unit->param[p];
            int64_t first, n = optimizer_part(unit, param, &first), inside = first + unit->owned_first - param->offset;
            int64_t real = (param->all_rows - param->first_row) * param->columns - inside;
            count += n < real ? n : real > 0 ? real : 0;
        }
    return count;
}

static int read_all(struct trainer *t, const char *directory, const struct json *meta, const char *file,
                    struct err *err)
{
    char path[PATH_SIZE];
    struct json_at root = {file, "", meta};
    int64_t taken = 0, sequences = 0, step = 0, skipped = 0;
    const struct json *files = json_get(meta, "files"), *entry;
    int rank = 0;
    if (!files || json_type(files) != JSON_ARRAY || json_read_int(root, "step", 0, INT64_MAX / 2, &step, err) != 1 ||
        json_read_int(root, "sequences", 0, INT64_MAX / 2, &sequences, err) != 1 ||
        json_read_int(root, "skipped", 0, INT64_MAX / 2, &skipped, err) != 1)
        return err_add(err, "checkpoint '%s' is not complete", file);
    for (entry = json_first(files); entry; entry = json_next(entry)) {
        rank_path(path, directory, rank++);
        if (!json_has(entry, "bytes") || !json_has(entry, "checksum") ||
            json_type(json_get(entry, "checksum")) != JSON_STRING)
            return err_add(err, "checkpoint '%s' is not complete", file);
        if (read_file(t, path, entry, &taken, err) < 0)
            return -1;
    }
    if (taken != count_owned(t))
        return err_add(err, "checkpoint '%s' holds %lld of the %lld elements that this rank needs", file,
                       (long long)taken, (long long)count_owned(t));
    t->sequences = sequences;
    t->optimizer.step = step;
    t->optimizer.skipped = skipped;
    return 0;
}

static int load(struct trainer *t, const char *directory, struct err *err)
{
    char path[PATH_SIZE], step[PATH_SIZE / 2], *name;
    size_t length;
    struct json *meta;
    snprintf(path, sizeof path, "%.4000s/latest", directory);
    if (file_read(path, LATEST_MAX, &name, &length, err) < 0)
        return -1;
    snprintf(step, sizeof step, "%.1700s/%.255s", directory, name);
    free(name);
    snprintf(path, sizeof path, "%.4000s/meta.json", step);
    if (json_load(path, &meta, err) < 0)
        return -1;
    int result = check_shape(t, meta, path, err) < 0 ? -1 : read_all(t, step, meta, path, err);
    json_free(meta);
    return result;
}

int checkpoint_load(struct trainer *t, const char *directory, struct err *err)
{
    if (agree(t, load(t, directory, err), err) < 0)
        return -1;
    for (int u = 0; u < t->executor.params.n; u++) {
        unit_refresh(&t->executor.params, t->executor.params.unit[u]);
        unit_publish(&t->executor.params, t->executor.params.unit[u]);
    }
    return 0;
}

#include "exec/params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/comm.h"
#include "exec/device.h"
#include "kernels/kernels.h"

static void *grown(void *array, int n, int *max, size_t element)
{
    if (n < *max)
        return array;
    *max = *max > 0 ? 2 * *max : 8;
    array = realloc(array, (size_t)*max * element);
    if (!array)
        abort();
    return array;
}

struct unit *params_unit(struct params *params, const char *key, struct comm *group, bool *ret_new)
{
    *ret_new = false;
    for (int i = 0; i < params->n; i++)
        if (strcmp(params->unit[i]->key, key) == 0)
            return params->unit[i];
    params->unit = grown(params->unit, params->n, &params->max, sizeof *params->unit);
    struct unit *unit = calloc(1, sizeof *unit);
    if (!unit)
        abort();
    snprintf(unit->key, sizeof unit->key, "%s", key);
    unit->group = group;
    *ret_new = true;
    params->unit[params->n++] = unit;
    return unit;
}

int64_t unit_add(struct unit *unit, const struct param *param)
{
    unit->param = grown(unit->param, unit->n_params, &unit->max_params, sizeof *unit->param);
    struct param *added = &unit->param[unit->n_params++];
    *added = *param;
    added->offset = unit->size;
    unit->size += (int64_t)param->rows * param->columns;
    return added->offset;
}

/* --- the first weights ------------------------------------------------------ */

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mixed(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* FNV-1a of the name, mixed with the seed. */
static uint64_t name_key(const char *name, uint64_t seed)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return mixed(hash ^ mixed(seed));
}

/* Uniform: exact in any language, no library function in it. */
static float start_value(const struct param *param, uint64_t key, int64_t row, int64_t column)
{
    if (param->std <= 0)
        return param->start;
    if (row >= param->all_rows)
        return 0;
    uint64_t bits = mixed(key + (uint64_t)(row * param->all_columns + column));
    double unit = (double)(bits >> 11) * 0x1p-53 * 2 - 1;
    return (float)(unit * (double)param->std * 1.7320508075688772);
}

float param_start(const struct param *param, uint64_t seed, int64_t row, int64_t column)
{
    return start_value(param, name_key(param->name, seed), row, column);
}

static void fill_start(const struct params *params, const struct unit *unit, float *host)
{
    for (int p = 0; p < unit->n_params; p++) {
        const struct param *param = &unit->param[p];
        uint64_t key = name_key(param->name, params->seed);
        float *to = host + param->offset;
        for (int i = 0; i < param->rows; i++)
            for (int j = 0; j < param->columns; j++)
                *to++ = start_value(param, key, param->first_row + i, param->first_column + j);
    }
}

/* --- buffers ---------------------------------------------------------------- */

/* Are the owned weights kept apart from those that products read? */
static bool is_apart(const struct params *params)
{
    return params->zero == 3 || params->rounded || params->device->kernels->type != ELEMENT_F32;
}

/* To elements, for products. */
static void store(const struct params *params, const float *from, int64_t n, void *to)
{
    const struct device *device = params->device;
    device->kernels->convert(device->queue, n, ELEMENT_F32, from, device->kernels->type, to);
    if (params->rounded)
        device->kernels->round_bf16(device->queue, n, to);
}

/* host: the first weights of the whole unit. */
static void allocate_weights(struct params *params, struct unit *unit, const float *host)
{
    struct device *device = params->device;
    if (params->zero < 3)
        unit->weight = device_elements(device, unit->size);
    if (!is_apart(params)) {
        unit->owned_weight = (float *)unit->weight + unit->owned_first;
        device->upload(device, unit->weight, host, (size_t)unit->size * 4);
        return;
    }
    unit->owned_weight = device_floats(device, unit->owned);
    device->upload(device, unit->owned_weight, host + unit->owned_first, (size_t)unit->owned * 4);
    if (params->zero == 3)
        return;
    size_t bytes = (size_t)unit->size * element_bytes(unit->type);
    void *elements = malloc(bytes + 1);
    if (!elements)
        abort();
    kernels_ref.convert(NULL, unit->size, ELEMENT_F32, host, unit->type, elements);
    if (params->rounded)
        kernels_ref.round_bf16(NULL, unit->size, elements);
    device->upload(device, unit->weight, elements, bytes);
    free(elements);
}

static void allocate(struct params *params, struct unit *unit)
{
    struct device *device = params->device;
    int ranks = comm_size(unit->group), rank = comm_rank(unit->group);
    unit->size = (unit->size + ranks - 1) / ranks * ranks;
    unit->owned = params->zero > 0 ? unit->size / ranks : unit->size;
    unit->owned_first = params->zero > 0 ? rank * unit->owned : 0;
    float *host = calloc((size_t)unit->size + 1, sizeof *host);
    if (!host)
        abort();
    fill_start(params, unit, host);
    unit->type = device->kernels->type;
    allocate_weights(params, unit, host);
    free(host);
    if (params->zero >= 2) {
        unit->owned_gradient = device_floats(device, unit->owned);
    } else {
        unit->gradient = device_floats(device, unit->size);
        unit->owned_gradient = unit->gradient + unit->owned_first;
    }
    unit->m = device_floats(device, unit->owned);
    unit->v = device_floats(device, unit->owned);
}

int64_t params_bytes(const struct params *params)
{
    int64_t element = (int64_t)element_bytes(params->device->kernels->type), sum = 0, largest = 0;
    for (int i = 0; i < params->n; i++) {
        int64_t ranks = comm_size(params->unit[i]->group), size = (params->unit[i]->size + ranks - 1) / ranks * ranks;
        int64_t owned = params->zero > 0 ? size / ranks : size;
        sum += params->zero < 3 ? size * element : 0;
        sum += is_apart(params) ? owned * 4 : 0;
        sum += (params->zero < 2 ? size : owned) * 4 + 2 * owned * 4;
        largest = size > largest ? size : largest;
    }
    return sum + (params->zero == 3 ? largest * element : 0);
}

void params_allocate(struct params *params)
{
    for (int i = 0; i < params->n; i++)
        allocate(params, params->unit[i]);
}

void params_release(struct params *params)
{
    for (int i = 0; i < params->n; i++) {
        struct unit *unit = params->unit[i];
        device_free_elements(params->device, unit->weight, unit->size);
        device_free(params->device, unit->gradient, unit->size);
        if (is_apart(params))
            device_free(params->device, unit->owned_weight, unit->owned);
        if (params->zero >= 2)
            device_free(params->device, unit->owned_gradient, unit->owned);
        device_free(params->device, unit->m, unit->owned);
        device_free(params->device, unit->v, unit->owned);
        free(unit->param);
        free(unit);
    }
    free(params->unit);
    params->unit = NULL;
    params->n = params->max = 0;
}

int64_t params_count(const struct params *params)
{
    int64_t n = 0;
    for (int i = 0; i < params->n; i++)
        for (int p = 0; p < params->unit[i]->n_params; p++)
            n += (int64_t)params->unit[i]->param[p].rows * params->unit[i]->param[p].columns;
    return n;
}

/* --- ZeRO ------------------------------------------------------------------- */

void *unit_weight(const struct unit *unit, int64_t offset)
{
    return element_at(unit->type, unit->weight, offset);
}

void *unit_copy(const struct params *params, const struct unit *unit)
{
    return params->zero < 3 && unit->type != ELEMENT_F32 ? unit_weight(unit, unit->owned_first) : NULL;
}

void unit_refresh(struct params *params, struct unit *unit)
{
    if (params->zero < 3 && is_apart(params))
        store(params, unit->owned_weight, unit->owned, unit_weight(unit, unit->owned_first));
}

static struct comm_request gather_start(struct unit *unit)
{
    return comm_all_gather_start(unit->group, unit->type, unit->owned, unit_weight(unit, unit->owned_first),
                                 unit->weight);
}

void unit_publish(struct params *params, struct unit *unit)
{
    if (params->zero == 1 || params->zero == 2)
        comm_all_gather(unit->group, unit->type, unit->owned, unit_weight(unit, unit->owned_first), unit->weight);
}

void unit_acquire(struct params *params, struct unit *unit)
{
    unit_prefetch(params, unit);
    if (params->zero == 3 && unit->users++ == 0)
        comm_wait(&unit->gathering);
}

void unit_prefetch(struct params *params, struct unit *unit)
{
    if (params->zero < 3 || unit->weight)
        return;
    unit->weight = device_new(params->device, unit->size, unit->type);
    store(params, unit->owned_weight, unit->owned, unit_weight(unit, unit->owned_first));
    unit->gathering = gather_start(unit);
}

void unit_release(struct params *params, struct unit *unit)
{
    if (params->zero < 3 || --unit->users > 0)
        return;
    device_free_elements(params->device, unit->weight, unit->size);
    unit->weight = NULL;
}

float *unit_gradient(struct params *params, struct unit *unit)
{
    if (!unit->gradient)
        unit->gradient = device_floats(params->device, unit->size);
    return unit->gradient;
}

void unit_fold(struct params *params, struct unit *unit)
{
    if (params->zero < 2)
        return;
    struct device *device = params->device;
    float *part = device_new(device, unit->owned, ELEMENT_F32);
    comm_reduce_scatter(unit->group, ELEMENT_F32, unit->owned, unit_gradient(params, unit), part);
    device->kernels->add_floats(device->queue, unit->owned, part, unit->owned_gradient);
    device_free(device, part, unit->owned);
    device_free(device, unit->gradient, unit->size);
    unit->gradient = NULL;
}

void unit_reduce_start(struct params *params, struct unit *unit)
{
    if (params->zero == 0) {
        unit->reduction = comm_all_reduce_start(unit->group, unit->size, unit->gradient);
    } else if (params->zero == 1 && comm_size(unit->group) > 1) {
        unit->reduced = device_new(params->device, unit->owned, ELEMENT_F32);
        unit->reduction = comm_reduce_scatter_start(unit->group, unit->owned, unit->gradient, unit->reduced);
    }
}

void unit_reduce_end(struct params *params, struct unit *unit)
{
    comm_wait(&unit->reduction);
    if (!unit->reduced)
        return;
    params->device->copy(params->device, unit->owned_gradient, unit->reduced, (size_t)unit->owned * 4);
    device_free(params->device, unit->reduced, unit->owned);
    unit->reduced = NULL;
}

#include "tests/kernels/compare.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/test.h"

enum { BUFFERS = 16, GUARD = 64 };
enum kind { ELEMENTS, FLOATS, INTS, DOUBLES, E4M3, E5M2 };
static const unsigned char guard_byte = 0x5a;

static struct {
    struct place place;
    uint32_t random;
    int shift;
    char what[128];
    bool placed; /* the buffers are where their sides read them */
    int count;
    struct buffer {
        enum kind kind;
        int64_t n;
        float *value; /* of elements and floats */
        int *whole;   /* of ints; of 8 bits: the bits */
        unsigned char *base[SIDES];
    } buffer[BUFFERS];
} state;

void compare_open(const struct place *place, uint32_t seed)
{
    state.place = *place;
    state.random = seed;
}

const struct kernels *table(int side)
{
    return side == REFERENCE ? &kernels_ref : state.place.kernels;
}

void *queue(int side)
{
    return side == REFERENCE ? NULL : state.place.queue;
}

bool is_bf16(void)
{
    return state.place.kernels->type == ELEMENT_BF16;
}

float uniform(float scale)
{
    state.random = state.random * 1664525u + 1013904223u;
    return ((float)(state.random >> 8) * 0x1p-23f - 1) * scale;
}

void start_case(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(state.what, sizeof state.what, format, arguments);
    va_end(arguments);
    state.count = 0;
    state.placed = false;
}

void set_shift(int items)
{
    state.shift = items;
}

/* -- buffers -------------------------------------------------------------------------------------------------------- */

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (isnan(x))
        return 0x7fff;
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static float float_of(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool halves(int side, enum kind kind)
{
    return side != REFERENCE && kind == ELEMENTS && is_bf16();
}

static bool eight_bits(enum kind kind)
{
    return kind == E4M3 || kind == E5M2;
}

static size_t item_bytes(int side, enum kind kind)
{
    if (eight_bits(kind))
        return 1;
    return halves(side, kind) ? 2 : kind == DOUBLES ? 8 : 4;
}

static size_t all_bytes(int side, const struct buffer *b)
{
    return (size_t)(b->n + 2 * GUARD + state.shift) * item_bytes(side, b->kind);
}

static size_t start_bytes(int side, const struct buffer *b)
{
    return (size_t)(GUARD + state.shift) * item_bytes(side, b->kind);
}

static void *must(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

static int buffer_new(enum kind kind, int64_t n)
{
    if (state.count == BUFFERS)
        abort();
    struct buffer *b = &state.buffer[state.count];
    *b = (struct buffer){.kind = kind, .n = n};
    if (kind == INTS || eight_bits(kind))
        b->whole = must(calloc((size_t)n + 1, sizeof *b->whole));
    else
        b->value = must(calloc((size_t)n + 1, sizeof *b->value));
    return state.count++;
}

void set(int buffer, int64_t i, float value)
{
    struct buffer *b = &state.buffer[buffer];
    b->value[i] = halves(TESTED, b->kind) ? float_of(bf16_of(value)) : value;
}

float get(int buffer, int64_t i)
{
    return state.buffer[buffer].value[i];
}

static int filled(enum kind kind, int64_t n, float scale)
{
    int buffer = buffer_new(kind, n);
    for (int64_t i = 0; i < n; i++)
        set(buffer, i, isnan(scale) ? NAN : uniform(scale));
    return buffer;
}

int elements(int64_t n, float scale)
{
    return filled(ELEMENTS, n, scale);
}

int floats(int64_t n, float scale)
{
    return filled(FLOATS, n, scale);
}

int elements_unset(int64_t n)
{
    return filled(ELEMENTS, n, NAN);
}

int floats_unset(int64_t n)
{
    return filled(FLOATS, n, NAN);
}

int ints(int64_t n, const int *value)
{
    int buffer = buffer_new(INTS, n);
    for (int64_t i = 0; i < n; i++)
        state.buffer[buffer].whole[i] = value[i];
    return buffer;
}

int ints_unset(int64_t n)
{
    int buffer = buffer_new(INTS, n);
    for (int64_t i = 0; i < n; i++)
        state.buffer[buffer].whole[i] = -12345;
    return buffer;
}

/* Any numbers of the format. */
int eights(int64_t n, enum element format)
{
    int buffer = buffer_new(format == ELEMENT_E4M3 ? E4M3 : E5M2, n);
    for (int64_t i = 0; i < n; i++) {
        int bits = (int)((uniform(0.5f) + 0.5f) * 256) & 0xff;
        state.buffer[buffer].whole[i] = isfinite(fp8_value(format, (unsigned char)bits)) ? bits : 0;
    }
    return buffer;
}

int eights_unset(int64_t n, enum element format)
{
    int buffer = buffer_new(format == ELEMENT_E4M3 ? E4M3 : E5M2, n);
    for (int64_t i = 0; i < n; i++)
        state.buffer[buffer].whole[i] = 0x7f;
    return buffer;
}

int double_zero(void)
{
    return buffer_new(DOUBLES, 1);
}

static void fill_side(int side, const struct buffer *b, unsigned char *memory)
{
    memset(memory, guard_byte, all_bytes(side, b));
    unsigned char *to = memory + start_bytes(side, b);
    for (int64_t i = 0; i < b->n; i++, to += item_bytes(side, b->kind)) {
        if (b->kind == INTS) {
            memcpy(to, &b->whole[i], sizeof b->whole[i]);
        } else if (eight_bits(b->kind)) {
            *to = (unsigned char)b->whole[i];
        } else if (b->kind == DOUBLES) {
            memset(to, 0, 8);
        } else if (halves(side, b->kind)) {
            uint16_t half = bf16_of(b->value[i]);
            memcpy(to, &half, sizeof half);
        } else {
            memcpy(to, &b->value[i], sizeof b->value[i]);
        }
    }
}

static void place_buffers(void)
{
    state.placed = true;
    for (int i = 0; i < state.count; i++) {
        struct buffer *b = &state.buffer[i];
        FOR_SIDES
        {
            unsigned char *memory = must(malloc(all_bytes(side, b)));
            fill_side(side, b, memory);
            b->base[side] = memory;
            if (side == REFERENCE)
                continue;
            b->base[side] = must(state.place.allocate(all_bytes(side, b)));
            state.place.upload(state.place.queue, b->base[side], memory, all_bytes(side, b));
            free(memory);
        }
    }
}

void *at_item(int side, int buffer, int64_t i)
{
    if (!state.placed)
        place_buffers();
    const struct buffer *b = &state.buffer[buffer];
    return b->base[side] + start_bytes(side, b) + i * (int64_t)item_bytes(side, b->kind);
}

void *at(int side, int buffer)
{
    return at_item(side, buffer, 0);
}

void end_case(void)
{
    for (int i = 0; i < state.count; i++) {
        struct buffer *b = &state.buffer[i];
        FOR_SIDES
        {
            if (!b->base[side])
                continue;
            if (side == REFERENCE)
                free(b->base[side]);
            else
                state.place.release(b->base[side]);
        }
        free(b->value);
        free(b->whole);
    }
    state.count = 0;
}

/* -- what must be the same ------------------------------------------------------------------------------------------ */

static double item(int side, const struct buffer *b, const unsigned char *memory, int64_t i)
{
    const unsigned char *from = memory + start_bytes(side, b) + i * (int64_t)item_bytes(side, b->kind);
    double d;
    float f;
    int whole;
    uint16_t half;
    switch (b->kind) {
    case INTS:
        memcpy(&whole, from, sizeof whole);
        return whole;
    case DOUBLES:
        memcpy(&d, from, sizeof d);
        return d;
    case E4M3:
    case E5M2:
        return (double)fp8_value(b->kind == E4M3 ? ELEMENT_E4M3 : ELEMENT_E5M2, *from);
    default:
        break;
    }
    if (halves(side, b->kind)) {
        memcpy(&half, from, sizeof half);
        return (double)float_of(half);
    }
    memcpy(&f, from, sizeof f);
    return (double)f;
}

static bool bands_hold(int side, const struct buffer *b, const unsigned char *memory)
{
    size_t start = start_bytes(side, b), end = start + (size_t)b->n * item_bytes(side, b->kind);
    for (size_t i = 0; i < all_bytes(side, b); i++)
        if ((i < start || i >= end) && memory[i] != guard_byte)
            return false;
    return true;
}

/* How far off an item is, in units of what is allowed. */
static double excess(const struct buffer *b, double got, double expected, double unit, double rest)
{
    if (isnan(expected) || isnan(got))
        return isnan(expected) && isnan(got) ? 0 : (double)INFINITY;
    if (unit > 0 && isinf((double)float_of(bf16_of((float)expected))))
        expected = (double)float_of(bf16_of((float)expected));
    if (isinf(expected) || isinf(got))
        return expected == got ? 0 : (double)INFINITY;
    double off = fabs(got - expected), allowed = b->kind == INTS ? 0 : unit * fabs(expected) + rest;
    return off <= allowed ? 0 : allowed > 0 ? off / allowed : (double)INFINITY;
}

static void compare(int buffer, const struct buffer *b, unsigned char *const memory[SIDES], double longest_sum,
                    double roundings)
{
    double largest = 0, worst = 0, unit = halves(TESTED, b->kind) ? 0x1.02p-8 : 0;
    double single = b->kind == DOUBLES ? 0x1p-52 : 0x1p-24, element = is_bf16() ? 0x1p-8 : 0;
    int64_t where = -1;
    for (int64_t i = 0; i < b->n; i++) {
        double expected = fabs(item(REFERENCE, b, memory[REFERENCE], i));
        if (isfinite(expected) && expected > largest)
            largest = expected;
    }
    double rest = (16 * single * sqrt(longest_sum) + roundings * element) * largest;
    for (int64_t i = 0; i < b->n; i++) {
        double off =
            excess(b, item(TESTED, b, memory[TESTED], i), item(REFERENCE, b, memory[REFERENCE], i), unit, rest);
        if (off > worst) {
            worst = off;
            where = i;
        }
    }
    if (where >= 0)
        printf("%s, buffer %d: item %lld of %lld is %.9g, reference %.9g: %g times what is allowed (largest %g)\n",
               state.what, buffer, (long long)where, (long long)b->n, item(TESTED, b, memory[TESTED], where),
               item(REFERENCE, b, memory[REFERENCE], where), worst, largest);
    test_count(where < 0);
}

void same_rounded(int buffer, double longest_sum, double roundings)
{
    const struct buffer *b = &state.buffer[buffer];
    unsigned char *memory[SIDES];
    FOR_SIDES
    {
        size_t bytes = all_bytes(side, b);
        memory[side] = must(malloc(bytes));
        if (side == REFERENCE)
            memcpy(memory[side], b->base[side], bytes);
        else
            state.place.download(state.place.queue, memory[side], b->base[side], bytes);
        if (!bands_hold(side, b, memory[side]))
            printf("%s, buffer %d: something was written outside\n", state.what, buffer);
        test_count(bands_hold(side, b, memory[side]));
    }
    bool repeats = memcmp(memory[TESTED], memory[AGAIN], all_bytes(TESTED, b)) == 0;
    if (!repeats)
        printf("%s, buffer %d: the second run gives other bits\n", state.what, buffer);
    test_count(repeats);
    compare(buffer, b, memory, longest_sum, roundings);
    FOR_SIDES
    free(memory[side]);
}

void same(int buffer, double longest_sum)
{
    same_rounded(buffer, longest_sum, 0);
}

int compare_report(void)
{
    return test_report();
}

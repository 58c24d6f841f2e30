/* A table of kernels against kernels_ref on the same inputs. A case makes buffers, calls the function for every side,
 * and asks what must be the same:
 *
 *     start_case("add %d", n);
 *     int x = elements(n, 3), y = elements(n, 3);
 *     FOR_SIDES
 *         table(side)->add(queue(side), n, at(side, x), at(side, y));
 *     same(y, 2);
 *     end_case();
 *
 * The reference computes in fp32 from inputs that are rounded to the tested table's elements. The tested table runs
 * twice: its results must be the same bits. Around every buffer is a guard band, and what a function should write is NaN
 * before. "n" of a buffer counts items without the bands.
 *
 * Tolerance of an item: u |expected| + (16 v sqrt(sum) + roundings u) largest, with u the rounding of the buffer's
 * elements (2^-8 of bf16; that of fp32 is in the rest), v = 2^-24, sum the longest sum behind the item, largest the
 * largest expected magnitude of the buffer, roundings how many intermediate results of that size are rounded to
 * elements. 16 is for single-precision sums in another order, and an exponential within 2 units. */
#ifndef TESTS_KERNELS_COMPARE_H
#define TESTS_KERNELS_COMPARE_H

#include "kernels/kernels.h"

/* Where the tested table's buffers are. */
struct place {
    const struct kernels *kernels;
    void *queue;
    void *(*allocate)(size_t bytes);
    void (*release)(void *memory);
    void (*upload)(void *queue, void *to, const void *from, size_t bytes);
    void (*download)(void *queue, void *to, const void *from, size_t bytes); /* waits for the queue */
};
bool place_open(struct place *place, const char **ret_why); /* false: not on this machine, and why */
void place_close(struct place *place);

enum { REFERENCE, TESTED, AGAIN, SIDES };
#define FOR_SIDES for (int side = 0; side < SIDES; side++)

void compare_open(const struct place *place, uint32_t seed);
const struct kernels *table(int side);
void *queue(int side);
bool is_bf16(void);         /* the tested table's elements */
float uniform(float scale); /* in [-scale, scale) */

__attribute__((format(printf, 1, 2))) void start_case(const char *format, ...);
void end_case(void); /* frees the buffers */
/* Buffers of the next cases start this many items behind a multiple of 128 bytes. */
void set_shift(int items);

/* Random values in [-scale, scale); what a function should overwrite: NaN. */
int elements(int64_t n, float scale);
int floats(int64_t n, float scale);
int elements_unset(int64_t n);
int floats_unset(int64_t n);
int ints(int64_t n, const int *value);
int ints_unset(int64_t n);
int eights(int64_t n, enum element format); /* any numbers of the format; unset: NaN */
int eights_unset(int64_t n, enum element format);
int double_zero(void);
void set(int buffer, int64_t i, float value); /* before the first at() of the case */
float get(int buffer, int64_t i);             /* what was set, rounded as the buffer is */

void *at(int side, int buffer);
void *at_item(int side, int buffer, int64_t i);

void same(int buffer, double longest_sum);
int compare_report(void); /* what main returns */
void same_rounded(int buffer, double longest_sum, double roundings);

#endif

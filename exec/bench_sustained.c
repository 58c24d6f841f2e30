/* How much slower long work is than short work: power and heat.
 *
 * Every number of a profile comes from calls of a few milliseconds between pauses, in which an accelerator may take more
 * power than it may in the long run. Here one product runs in such bursts, each after a rest, and then without a pause;
 * only the last third of that counts, when limits have taken hold (power in tenths of a second; heat may take longer
 * than anybody measures). Their ratio is the derate that the cost model divides kernel times by (cost/kernel.c). */
#include <math.h>
#include <time.h>

#include "cost/base/sample.h"
#include "exec/bench.h"
#include "exec/bench_internal.h"
#include "exec/device.h"

enum { BURSTS = 3, WINDOWS = 48, WINDOWS_MOST = 1000 }; /* windows of a run; more where they are shorter than thought */
static const double rest_most_s = 0.5;

static void rest(const struct bench *bench, double seconds)
{
    struct timespec span = {(time_t)seconds, (long)(fmod(seconds, 1) * 1e9)};
    if (bench->pause)
        bench->pause(bench->pause_context, seconds);
    else
        nanosleep(&span, NULL);
}

static double burst_s(const struct bench *bench, const struct bench_call *call, double rest_s)
{
    double samples[BURSTS];
    for (int i = 0; i < BURSTS; i++) {
        rest(bench, rest_s);
        samples[i] = bench_call_s(bench, call);
    }
    return sample_median(samples, BURSTS);
}

/* The next window is queued before the one before has ended, so that the device never waits. Returns how many there
 * were; seconds of a call in each. */
static int run_windows(const struct bench *bench, const struct bench_call *call, const struct bench_progress *progress,
                       double limit_s, int64_t calls, double *ret_seconds)
{
    struct bench_mark mark[3];
    double ran_s = 0, told_s = 0;
    int n = 0, turn = 0;
    for (int i = 0; i < 3; i++)
        bench_mark_new(bench, &mark[i]);
    bench_mark_set(bench, &mark[0]);
    for (int queued = 0; n < WINDOWS_MOST && ran_s < limit_s; queued++) {
        for (int64_t i = 0; i < calls; i++)
            call->run(call->context, turn++);
        bench_mark_set(bench, &mark[(queued + 1) % 3]);
        if (queued == 0)
            continue;
        double window_s = bench_mark_gap_s(bench, &mark[n % 3], &mark[(n + 1) % 3]);
        ret_seconds[n++] = window_s / (double)calls;
        ran_s += window_s;
        if (progress && (ran_s - told_s >= 1 || ran_s >= limit_s)) {
            progress->tell(progress->context, ran_s, window_s / (double)calls);
            told_s = ran_s;
        }
    }
    bench->device->wait(bench->device);
    for (int i = 0; i < 3; i++)
        bench_mark_free(bench, &mark[i]);
    return n;
}

void bench_sustained_call(const struct bench *bench, const struct bench_call *call, double limit_s,
                          const struct bench_progress *progress, struct bench_sustained *ret)
{
    double seconds[WINDOWS_MOST], rest_s = fmin(rest_most_s, limit_s / 6);
    *ret = (struct bench_sustained){.burst_s = burst_s(bench, call, rest_s)};
    int64_t calls = (int64_t)fmax(1, limit_s / WINDOWS / ret->burst_s);
    int n = run_windows(bench, call, progress, limit_s, calls, seconds), first = 2 * n / 3;
    for (int i = 0; i < n; i++)
        ret->ran_s += seconds[i] * (double)calls;
    ret->sustained_s = bench_slowest(bench, sample_median(seconds + first, n - first));
    ret->ratio = fmin(1, ret->burst_s / ret->sustained_s);
}

static int product_size(const struct bench *bench)
{
    static const int sizes[BENCH_SIZES] = {128, 512, 8192};
    return sizes[bench->size];
}

double bench_sustained_flop(const struct bench *bench)
{
    return 2 * pow(product_size(bench), 3);
}

void bench_measure_sustained(struct bench *bench, double limit_s, const struct bench_progress *progress,
                             struct bench_sustained *ret)
{
    int n = product_size(bench);
    struct bench_product product;
    bench_product_open(bench, PHASE_F, n, n, n, &product);
    bench_sustained_call(bench, &product.call, limit_s, progress, ret);
    ret->flop = bench_sustained_flop(bench);
    ret->size = n;
    bench_product_close(bench, &product);
}

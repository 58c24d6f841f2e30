/* Burst and sustained rate on a device with a clock of its own, which slows down after some time without a rest. */
#include "tests/unit/test.h"

#include "exec/bench.h"
#include "exec/bench_internal.h"
#include "exec/device.h"
#include "exec/world.h"

enum { EVENTS = 64 };
static const double call_s = 1e-3;

static struct {
    double now_s, busy_s;                /* busy: since the last rest */
    double slow_from_s, slow_to_s, slow; /* factor of calls that begin between the two */
    int64_t calls, work, drained;        /* work: of calls and marks; drained: waits after which nothing was queued */
    int rests, events, told;
    double rested_s, told_ran_s, told_call_s;
    struct {
        double at_s;
        int64_t work;
    } event[EVENTS];
} fake;

static void run(void *context, int turn)
{
    (void)context;
    (void)turn;
    double seconds = call_s * (fake.busy_s >= fake.slow_from_s && fake.busy_s < fake.slow_to_s ? fake.slow : 1);
    fake.now_s += seconds;
    fake.busy_s += seconds;
    fake.calls++;
    fake.work++;
}

static void rest(void *context, double seconds)
{
    (void)context;
    fake.now_s += seconds;
    fake.busy_s = 0;
    fake.rests++;
    fake.rested_s += seconds;
}

static void *event_new(struct device *device)
{
    (void)device;
    return &fake.event[fake.events++ % EVENTS];
}

static void event_free(struct device *device, void *event)
{
    (void)device;
    (void)event;
}

static void event_record(struct device *device, void *event, void *queue)
{
    (void)device;
    (void)queue;
    int i = (int)((char *)event - (char *)fake.event) / (int)sizeof fake.event[0];
    fake.event[i].at_s = fake.now_s;
    fake.event[i].work = fake.work;
}

static double event_gap_s(struct device *device, void *start, void *end)
{
    (void)device;
    int from = (int)((char *)start - (char *)fake.event) / (int)sizeof fake.event[0];
    int to = (int)((char *)end - (char *)fake.event) / (int)sizeof fake.event[0];
    fake.drained += fake.event[to].work == fake.work;
    return fake.event[to].at_s - fake.event[from].at_s;
}

static void wait_all(struct device *device)
{
    (void)device;
}

static void tell(void *context, double ran_s, double seconds)
{
    (void)context;
    fake.told++;
    fake.told_ran_s = ran_s;
    fake.told_call_s = seconds;
}

static struct bench_sustained measured(double limit_s, double slow_from_s, double slow_to_s, double slow)
{
    static struct world world;
    struct device device = {.event_new = event_new,
                            .event_free = event_free,
                            .event_record = event_record,
                            .event_gap_s = event_gap_s,
                            .wait = wait_all};
    struct bench bench = {.world = &world, .device = &device, .budget_s = 5.5e-3, .pause = rest};
    struct bench_call call = {run, NULL};
    struct bench_sustained s;
    world_alone(&world);
    memset(&fake, 0, sizeof fake);
    fake.slow_from_s = slow_from_s;
    fake.slow_to_s = slow_to_s;
    fake.slow = slow;
    bench_sustained_call(&bench, &call, limit_s, &(struct bench_progress){tell, NULL}, &s);
    world_release(&world);
    return s;
}

static void check_throttled(void)
{
    struct bench_sustained s = measured(3, 0.4, 1e9, 1.25);
    CHECK_DOUBLE(s.ratio, 0.8, 1e-9);
    CHECK_DOUBLE(s.burst_s, call_s, 1e-9);
    CHECK_DOUBLE(s.sustained_s, 1.25 * call_s, 1e-9);
    CHECK_INT(fake.rests, 3);
    CHECK(fake.rested_s >= 0.3 && fake.rested_s <= 1.5);
    CHECK_INT(fake.told, 3);
    CHECK_DOUBLE(fake.told_call_s, 1.25 * call_s, 1e-9);
    CHECK_DOUBLE(fake.told_ran_s, s.ran_s, 1e-9);
}

/* Bounded: two windows (one is under way when the last one counts) and what bursts take. */
static void check_bounded(void)
{
    struct bench_sustained s = measured(3, 0.4, 1e9, 1.25);
    CHECK(s.ran_s >= 3 && s.ran_s <= 3 + 0.1);
    CHECK(fake.now_s <= 3 + 0.2 + fake.rested_s + 3 * 10 * call_s);
    s = measured(0.05, 1e9, 1e9, 1); /* shorter than a window's worth of calls would be */
    CHECK(s.ran_s >= 0.05 && s.ran_s <= 0.06);
    CHECK_DOUBLE(s.ratio, 1, 1e-9);
}

/* Only bursts leave the device without work: each waits for two first calls and for five samples. */
static void check_never_idle(void)
{
    CHECK_DOUBLE(measured(3, 1e9, 1e9, 1).ratio, 1, 1e-9);
    CHECK_INT(fake.drained, 3 * 7);
}

/* Slow moments that pass, and slow beginnings, are no limit; what comes after the run is not seen. */
static void check_others(void)
{
    CHECK_DOUBLE(measured(3, 0.5, 0.8, 2).ratio, 1, 1e-9);
    CHECK_DOUBLE(measured(3, 2.5, 2.6, 2).ratio, 1, 1e-9);
    CHECK_DOUBLE(measured(3, 0, 0.1, 2).ratio, 1, 1e-9);
    CHECK_DOUBLE(measured(3, 4, 1e9, 2).ratio, 1, 1e-9);
    CHECK_DOUBLE(measured(3, 1.8, 1e9, 2).ratio, 0.5, 1e-9); /* it took hold late: only the last third counts */
}

int main(void)
{
    check_throttled();
    check_bounded();
    check_never_idle();
    check_others();
    return test_report();
}

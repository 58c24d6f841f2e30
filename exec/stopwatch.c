#include "exec/stopwatch.h"

#include <stdlib.h>

#include "exec/device.h"

struct stopwatch_lap {
    enum stopwatch_part part;
    void *start, *end;
};

int stopwatch_start(struct stopwatch *watch, struct device *device, enum stopwatch_part part)
{
    if (watch->n == watch->max) {
        watch->max = watch->max > 0 ? 2 * watch->max : 64;
        watch->lap = realloc(watch->lap, (size_t)watch->max * sizeof *watch->lap);
        if (!watch->lap)
            abort();
    }
    struct stopwatch_lap *lap = &watch->lap[watch->n];
    if (watch->n == watch->made) {
        *lap = (struct stopwatch_lap){.start = device->event_new(device), .end = device->event_new(device)};
        watch->made++;
    }
    lap->part = part;
    device->event_record(device, lap->start, device->queue);
    return watch->n++;
}

void stopwatch_end(struct stopwatch *watch, struct device *device, int lap)
{
    device->event_record(device, watch->lap[lap].end, device->queue);
}

void stopwatch_take(struct stopwatch *watch, struct device *device, double seconds[STOPWATCH_PARTS])
{
    for (int i = 0; i < watch->n; i++)
        seconds[watch->lap[i].part] += device->event_gap_s(device, watch->lap[i].start, watch->lap[i].end);
    watch->n = 0;
}

void stopwatch_release(struct stopwatch *watch, struct device *device)
{
    for (int i = 0; i < watch->made; i++) {
        device->event_free(device, watch->lap[i].start);
        device->event_free(device, watch->lap[i].end);
    }
    free(watch->lap);
    *watch = (struct stopwatch){0};
}

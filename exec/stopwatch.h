/* How long parts of a step take on the device's queue, without making the host wait: moments are events, read when the
 * step is over. Laps of different parts may lie within one another. */
#ifndef EXEC_STOPWATCH_H
#define EXEC_STOPWATCH_H

struct device;

enum stopwatch_part {
    STOPWATCH_CLEAR,     /* gradients to zero, before the first op */
    STOPWATCH_RECOMPUTE, /* inside B and BW */
    STOPWATCH_REDUCTION, /* of gradients, what is left of it after the last op */
    STOPWATCH_OPTIMIZER, /* norm and AdamW */
    STOPWATCH_GATHER,    /* of updated weights */
    STOPWATCH_PARTS
};

struct stopwatch_lap;

struct stopwatch {
    struct stopwatch_lap *lap;
    int n, made, max; /* laps of this step; with events; with room */
};

/* Start with zeros. */
int stopwatch_start(struct stopwatch *watch, struct device *device, enum stopwatch_part part); /* returns the lap */
void stopwatch_end(struct stopwatch *watch, struct device *device, int lap);
/* Adds the seconds of all laps, waiting for them, and begins anew. */
void stopwatch_take(struct stopwatch *watch, struct device *device, double seconds[STOPWATCH_PARTS]);
void stopwatch_release(struct stopwatch *watch, struct device *device);

#endif

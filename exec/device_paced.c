#include "exec/device_paced.h"

#include <errno.h>
#include <time.h>

#include "exec/device.h"

double pacing_seconds(const struct pacing *pacing, int stage, enum op_kind kind)
{
    switch (kind) {
    case OP_F: return pacing->forward_s[stage];
    case OP_B: return pacing->backward_s[stage];
    case OP_W: return pacing->wgrad_s[stage];
    case OP_BW: return pacing->backward_s[stage] + pacing->wgrad_s[stage];
    default: return 0;
    }
}

void pacing_sleep(double seconds)
{
    double end_s = device_now_s() + seconds;
    struct timespec end = {(time_t)end_s, (long)((end_s - (double)(time_t)end_s) * 1e9)};
    while (seconds > 0 && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
        continue;
}

/* Time that only runs forward. */
#ifndef COST_BASE_CLOCK_H
#define COST_BASE_CLOCK_H

double clock_s(void); /* seconds since some fixed moment */

#endif

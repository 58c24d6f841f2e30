/* A training run on disk, for any plan to go on from.
 *
 * DIR/step-N/ holds one file per rank and meta.json; DIR/latest names the newest. Every element of every weight, m and
 * v is written once, by the rank that counts it, with its place in the whole matrix; so a run with another plan (other
 * ranks, stages, shards, ZeRO) reads what it needs. Rank files end with a checksum that meta.json repeats with their
 * lengths. step-N appears under its name only when it is whole (written as step-N.part, then renamed); latest follows
 * last. meta.json: where the data stands (sequences taken), step, skipped steps, seed, shape of the model. Native byte
 * order. Factors of linears in 8 bits (fp8.h) are not kept: a run that goes on begins their history anew, with a first
 * step as that of a new run. All calls are collective; DIR is shared by all ranks. 0, or -1 with a sentence on every rank. */
#ifndef EXEC_CHECKPOINT_H
#define EXEC_CHECKPOINT_H

struct err;
struct trainer;

/* Before long work: makes DIR where it is not there, and tries whether it can be written. Any rank. */
int checkpoint_prepare(const char *directory, struct err *err);
int checkpoint_save(const struct trainer *trainer, const char *directory, struct err *err);
/* The latest one of DIR. Refuses files that are missing, cut short or changed, and other models. */
int checkpoint_load(struct trainer *trainer, const char *directory, struct err *err);

#endif

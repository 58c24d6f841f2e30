/* Tokens to train on: a file of words of 8, 16 or 32 bits, or made up. Sequence number s is the same for every plan,
 * so that plans see the same batches; where a run stands is the number of sequences it has taken. Read-only after
 * loading. */
#ifndef EXEC_DATA_H
#define EXEC_DATA_H

#include <stdint.h>

struct err;

struct data {
    int64_t n_tokens; /* 0 = synthetic */
    uint32_t *token;
    int64_t vocab;
    uint64_t seed;
};

/* path "synthetic": token i + 1 follows from token i by a fixed rule most of the time, else it is random. A file's
 * words are bytes (.txt), uint32 (.u32 or uint32 in its name) or uint16, unless bits says so; words beyond the
 * vocabulary are refused. */
int data_load(const char *path, int bits, int64_t vocab, uint64_t seed, struct data *ret, struct err *err);
void data_release(struct data *data);
/* Word at `position` of sequence `number` (each seq_len + 1 long, the last word is only a target). */
int data_token(const struct data *data, int64_t number, int64_t seq_len, int64_t position);

#endif

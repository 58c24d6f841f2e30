/* Angles of rotary positions, and what a config's rope_scaling (rope_parameters) makes of them, after the formulas of
 * Hugging Face transformers (modeling_rope_utils.py): default, linear, llama3, yarn. Others, and rotations of a part of
 * a head, are refused with one sentence. */
#ifndef EXEC_ROPE_H
#define EXEC_ROPE_H

#include <stdbool.h>

struct err;
struct json;

enum rope_kind { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN };

struct rope {
    enum rope_kind kind;
    double theta, factor, original_positions; /* positions that the model was first trained for */
    double low_frequency, high_frequency;     /* llama3: wavelengths as original_positions / these */
    double beta_fast, beta_slow;              /* yarn: rotations over original_positions */
    bool truncate;                            /* yarn: its bounds are whole pairs */
    double attention_factor;                  /* of cosine and sine */
};

/* config: the object of config.json that describes the decoder; file: for messages. */
int rope_read(const struct json *config, const char *file, struct rope *ret, struct err *err);
/* Angle of pair i of a head at position 1: ret[head_dim / 2]. */
void rope_frequencies(const struct rope *rope, int head_dim, double *ret);

#endif

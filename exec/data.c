#include "exec/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"

static uint64_t mixed(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static int read_words(FILE *file, int bits, struct data *data)
{
    size_t width = (size_t)bits / 8;
    for (int64_t i = 0; i < data->n_tokens; i++) {
        unsigned char byte;
        uint16_t narrow;
        uint32_t wide;
        void *to = bits == 8 ? (void *)&byte : bits == 16 ? (void *)&narrow : (void *)&wide;
        if (fread(to, width, 1, file) != 1)
            return -1;
        data->token[i] = bits == 8 ? byte : bits == 16 ? narrow : wide;
    }
    return 0;
}

static int check_words(const char *path, const struct data *data, struct err *err)
{
    for (int64_t i = 0; i < data->n_tokens; i++)
        if (data->token[i] >= data->vocab)
            return err_add(
                err,
                "data '%s': word %lld is %lu, the model's vocabulary has %lld (how wide are its words? --data-bits)",
                path, (long long)i, (unsigned long)data->token[i], (long long)data->vocab);
    return 0;
}

int data_load(const char *path, int bits, int64_t vocab, uint64_t seed, struct data *ret, struct err *err)
{
    *ret = (struct data){.vocab = vocab, .seed = seed};
    if (strcmp(path, "synthetic") == 0)
        return 0;
    if (bits != 0 && bits != 8 && bits != 16 && bits != 32)
        return err_add(err, "--data-bits is %d; words are 8, 16 or 32 bits wide", bits);
    if (bits == 0)
        bits = strstr(path, ".txt") ? 8 : strstr(path, ".u32") || strstr(path, "uint32") ? 32 : 16;
    FILE *file = fopen(path, "rb");
    if (!file)
        return err_add(err, "data '%s' cannot be opened", path);
    fseek(file, 0, SEEK_END);
    ret->n_tokens = ftell(file) / (bits / 8);
    rewind(file);
    ret->token = malloc((size_t)(ret->n_tokens > 0 ? ret->n_tokens : 1) * sizeof *ret->token);
    int result = ret->n_tokens < 2 || !ret->token || read_words(file, bits, ret) < 0
                     ? err_add(err, "data '%s' holds no words", path)
                     : check_words(path, ret, err);
    fclose(file);
    return result;
}

void data_release(struct data *data)
{
    free(data->token);
    data->token = NULL;
}

/* Three words in four follow from the place in the sequence, so that there is something to learn. */
static int made_up(const struct data *data, int64_t number, int64_t position)
{
    uint64_t noise = mixed(data->seed * 0x51ed27f1u + mixed((uint64_t)number) + (uint64_t)position);
    uint64_t rule = (uint64_t)(position * 7 + number % 5 * 3);
    return (int)((noise % 4 != 0 ? rule : noise >> 8) % (uint64_t)data->vocab);
}

int data_token(const struct data *data, int64_t number, int64_t seq_len, int64_t position)
{
    if (data->n_tokens == 0)
        return made_up(data, number, position);
    return (int)data->token[(number * seq_len + position) % (data->n_tokens - 1)];
}

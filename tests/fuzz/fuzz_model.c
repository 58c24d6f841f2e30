/* Any bytes as config.json: refused with sentences, or a model whose parts add up. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds)
        abort();
}

static void check_shape(const struct model *m)
{
    int64_t layers = 0;
    require(m->hidden > 0 && m->layers > 0 && m->layers <= MODEL_LAYERS_MAX && m->vocab > 0 && m->heads > 0 &&
            m->kv_heads > 0);
    require(m->heads % m->kv_heads == 0 && m->head_dim > 0 && m->v_head_dim > 0 && m->norms_per_layer > 0);
    require(m->experts_per_token <= m->experts && m->mtp_modules >= 0 && m->position_rows >= 0);
    require(m->n_kinds > 0 && m->n_kinds <= MODEL_KINDS_MAX);
    for (int i = 0; i < m->n_kinds; i++) {
        require(m->kinds[i].ffn > 0 && m->kinds[i].layers > 0 && m->kinds[i].window >= 0);
        require(!m->kinds[i].moe || m->experts > 0);
        layers += m->kinds[i].layers;
    }
    require(layers == m->layers);
    for (int64_t i = 0; i < m->layers; i++)
        require(m->kind_of_layer[i] < m->n_kinds);
}

static void check_counts(const struct model *m)
{
    struct model_parameters p;
    model_count_parameters(m, &p);
    require(p.embedding > 0 && p.head >= 0 && p.attention > 0 && p.mlp >= 0 && p.experts >= 0 && p.router >= 0 &&
            p.norm > 0 && p.mtp >= 0);
    require(p.total == p.embedding + p.head + p.attention + p.mlp + p.experts + p.router + p.norm);
    require(p.active > 0 && p.active <= p.total && p.total < INT64_C(9007199254740992));
    static const int64_t seq_lens[] = {1, 127, 4096, 1000000};
    for (int i = 0; i < 4; i++) {
        struct model_flops f;
        model_count_flops(m, seq_lens[i], &f);
        require(isfinite(f.forward) && f.forward > 0 && f.training > f.forward && f.mtp >= 0);
        for (int kind = 0; kind < m->n_kinds; kind++) {
            double span = model_layer_span(m, kind, seq_lens[i]);
            require(span >= 1 && span <= (double)(seq_lens[i] + 1) / 2);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct err err, warn;
    static struct model model;
    struct json *root = NULL;
    err_clear(&err);
    err_clear(&warn);
    if (json_parse_python((const char *)data, size, "fuzz", &root, &err) != 0)
        return 0;
    int result = model_parse(root, "fuzz", &model, &warn, &err);
    require((result == 0) == (err.count == 0));
    if (result == 0) {
        check_shape(&model);
        check_counts(&model);
    }
    require(model_parse(root, "fuzz", &model, NULL, NULL) == result);
    json_free(root);
    return 0;
}

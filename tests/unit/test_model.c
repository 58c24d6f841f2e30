/* config.json -> struct model: spellings, defaults of families, refusals, layer kinds, FLOPs. Exact totals are in
 * tests/golden/models.txt. */
#include "cost/model.h"

#include <dirent.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "tests/unit/test.h"

/* The fields that every Llama-like file has, to which the cases add. */
#define BASE                                                                                                           \
    "\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":8,\"intermediate_size\":96,\"vocab_size\":1000"

static struct model model;
static struct err err, warn;
static struct model_parameters parameters;

static int read_text(const char *text)
{
    struct json *root = NULL;
    err_clear(&err);
    err_clear(&warn);
    int result = json_parse_python(text, strlen(text), "x", &root, &err);
    if (result == 0)
        result = model_parse(root, "x", &model, &warn, &err);
    json_free(root);
    CHECK_INT(result, err.count > 0 ? -1 : 0);
    if (result == 0)
        model_count_parameters(&model, &parameters);
    return result;
}

static int good(const char *text)
{
    int result = read_text(text);
    if (!test_count(result == 0))
        printf("%s\n  refused: %s\n", text, err.text);
    return result;
}

static void bad(const char *text, const char *part)
{
    if (!test_count(read_text(text) != 0))
        printf("not refused: %s\n", text);
    CHECK_CONTAINS(err.text, part);
}

static void test_spellings(void)
{
    good("{\"model_type\":\"llama\"," BASE "}");
    CHECK_INT(model.kv_heads, 8);
    CHECK_INT(model.head_dim, 8);
    CHECK_INT(parameters.total, 2 * 64000 + 64 + 4 * (4 * 64 * 64 + 3 * 64 * 96 + 2 * 64));
    CHECK_INT(warn.count, 0);
    good("{\"model_type\":\"llama\"," BASE
         ",\"num_key_value_heads\":null,\"head_dim\":null,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0}}");
    CHECK_INT(model.kv_heads, 8);
    good("{\"model_type\":\"llama\"," BASE ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0}}");
    good(
        "{\"model_type\":\"llama\"," BASE
        ",\"num_key_value_heads\":2,\"head_dim\":16,\"tie_word_embeddings\":true,\"attention_bias\":true,\"mlp_bias\":true}");
    CHECK_INT(model.kv_heads, 2);
    CHECK_INT(parameters.head, 0);
    CHECK_INT(parameters.attention, 4 * (2 * 64 * 128 + 2 * 64 * 32 + 128 + 2 * 32 + 64));
    CHECK_INT(parameters.mlp, 4 * (3 * 64 * 96 + 2 * 96 + 64));
    good(
        "{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":4,\"n_head\":8,\"n_inner\":null,\"n_positions\":32,\"n_ctx\":16,\"vocab_size\":1000}");
    CHECK_INT(model.kinds[0].ffn, 256);
    CHECK_INT(model.max_positions, 32);
    CHECK_INT(parameters.total, 64000 + 32 * 64 + 128 + 4 * (12 * 64 * 64 + 13 * 64));
    good(
        "{\"model_type\":\"chatglm\",\"hidden_size\":64,\"num_layers\":4,\"num_attention_heads\":8,\"multi_query_attention\":true,"
        "\"multi_query_group_num\":2,\"ffn_hidden_size\":96,\"padded_vocab_size\":1024,\"vocab_size\":1000,\"kv_channels\":8}");
    CHECK_INT(model.vocab, 1024);
    CHECK_INT(model.kv_heads, 2);
    good("{\"architectures\":[\"Qwen3ForCausalLM\"]," BASE "}");
    CHECK(model.qk_norm);
    good("{\"architectures\":[\"GPT2LMHeadModel\"],\"n_positions\":8," BASE "}");
    CHECK(model.learned_positions && model.tied);
    good("{\"architectures\":[\"GPT\"],\"hidden_act\":\"silu\"," BASE "}");
    CHECK(model.gated && model.norm == MODEL_RMS_NORM && !model.tied);
    good("{\"architectures\":[\"GPT\"],\"hidden_act\":\"relu2\"," BASE "}");
    CHECK(!model.gated && model.norm == MODEL_LAYER_NORM && !model.learned_positions);
}

/* One knob each: what the file leaves out and the family's own code decides. */
static void test_families(void)
{
    good("{\"model_type\":\"gemma2\"," BASE ",\"sliding_window\":16}");
    CHECK(model.tied);
    CHECK_INT(model.head_dim, 256);
    CHECK_INT(model.norms_per_layer, 4);
    CHECK_INT(model.kinds[model.kind_of_layer[0]].window, 16);
    CHECK_INT(model.kinds[model.kind_of_layer[1]].window, 0);
    good("{\"model_type\":\"llama\"," BASE ",\"sliding_window\":16}");
    CHECK(!model.tied);
    CHECK_INT(model.kinds[0].window, 16);
    good("{\"model_type\":\"qwen2\"," BASE ",\"sliding_window\":16,\"max_window_layers\":1}");
    CHECK(model.qkv_bias && !model.out_bias);
    CHECK_INT(model.kinds[0].window, 0); /* off unless use_sliding_window */
    good("{\"model_type\":\"qwen2\"," BASE
         ",\"sliding_window\":16,\"max_window_layers\":1,\"use_sliding_window\":true}");
    CHECK_INT(model.n_kinds, 2);
    CHECK_INT(model.kinds[0].layers, 1);
    CHECK_INT(model.kinds[1].window, 16);
    good("{\"model_type\":\"llama4_text\"," BASE
         ",\"intermediate_size_mlp\":128,\"num_local_experts\":4,\"num_experts_per_tok\":1,"
         "\"interleave_moe_layer_step\":2,\"attention_chunk_size\":16}");
    CHECK_INT(model.n_kinds, 3);
    CHECK(!model.kinds[0].moe && model.kinds[1].moe);
    CHECK_INT(model.kinds[0].ffn, 128);
    CHECK_INT(model.kinds[1].shared_ffn, 96);
    CHECK(model.kinds[0].chunked && model.kinds[1].chunked);
    CHECK_INT(model.kinds[model.kind_of_layer[3]].window, 0); /* every fourth layer sees everything */
    good("{\"model_type\":\"exaone4\"," BASE ",\"sliding_window\":16,\"sliding_window_pattern\":\"LLG\"}");
    CHECK_INT(model.kinds[model.kind_of_layer[1]].window, 16);
    CHECK_INT(model.kinds[model.kind_of_layer[2]].window, 0);
    CHECK_INT(model.kinds[model.kind_of_layer[3]].window, 16);
    bad("{\"model_type\":\"exaone4\"," BASE ",\"sliding_window\":16,\"sliding_window_pattern\":\"LXG\"}",
        "letters L and G");
    good("{\"model_type\":\"gemma3_text\"," BASE ",\"sliding_window\":16,\"_sliding_window_pattern\":2}");
    CHECK_INT(model.kinds[model.kind_of_layer[0]].window, 16);
    CHECK_INT(model.kinds[model.kind_of_layer[1]].window, 0);
    good("{\"model_type\":\"gpt_neo\"," BASE ",\"max_position_embeddings\":32,\"window_size\":16}");
    CHECK(!model.qkv_bias && model.out_bias && model.kinds[0].window == 0 && model.kinds[1].window == 16 &&
          !model.kinds[1].chunked);
    good("{\"model_type\":\"gpt_neox\"," BASE ",\"use_parallel_residual\":true}");
    CHECK(model.norms_per_layer == 2 && model.qkv_bias && model.out_bias && model.mlp_bias && !model.tied);
    good("{\"model_type\":\"falcon\"," BASE ",\"multi_query\":true,\"parallel_attn\":true,\"bias\":false}");
    CHECK_INT(model.kv_heads, 1);
    CHECK_INT(model.norms_per_layer, 1);
    good(
        "{\"model_type\":\"mpt\",\"d_model\":64,\"n_heads\":8,\"n_layers\":4,\"expansion_ratio\":4,\"max_seq_len\":32,\"vocab_size\":1000,"
        "\"no_bias\":false,\"attn_config\":{\"alibi\":false}}");
    CHECK(model.learned_positions && model.qkv_bias && model.norm_bias && model.tied && !model.gated);
    good(
        "{\"model_type\":\"mpt\",\"d_model\":64,\"n_heads\":8,\"n_layers\":4,\"vocab_size\":1000,\"no_bias\":true,\"attn_config\":{\"alibi\":true}}");
    CHECK(model.alibi && !model.learned_positions && !model.qkv_bias && !model.norm_bias);
    good(
        "{\"model_type\":\"opt\",\"ffn_dim\":96,\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":8,\"vocab_size\":1000,"
        "\"max_position_embeddings\":32,\"word_embed_proj_dim\":64}");
    CHECK_INT(model.position_rows, 34);
    good("{\"model_type\":\"minimax_m2\"," BASE
         ",\"num_local_experts\":4,\"num_experts_per_tok\":2,\"use_mtp\":true,\"num_mtp_modules\":3}");
    CHECK(model.qk_norm_full && model.router_bias);
    CHECK_INT(model.mtp_modules, 3);
    good("{\"model_type\":\"minimax_m2\"," BASE
         ",\"num_local_experts\":4,\"num_experts_per_tok\":2,\"use_mtp\":false,\"num_mtp_modules\":3}");
    CHECK_INT(model.mtp_modules, 0);
    good("{\"model_type\":\"gpt_oss\"," BASE
         ",\"num_local_experts\":4,\"num_experts_per_tok\":2,\"sliding_window\":16}");
    CHECK(model.attention_sinks && model.expert_bias && model.router_bias);
    CHECK_INT(model.kinds[model.kind_of_layer[0]].window, 16);
    CHECK_INT(model.kinds[model.kind_of_layer[1]].window, 0);
}

static int64_t layers_of(bool moe)
{
    int64_t n = 0;
    for (int i = 0; i < model.n_kinds; i++)
        n += model.kinds[i].moe == moe ? model.kinds[i].layers : 0;
    return n;
}

/* Case H08: every form of saying which layers have experts. */
static void test_expert_layers(void)
{
#define MOE                                                                                                            \
    "{\"model_type\":\"qwen3_moe\"," BASE ",\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32"
    static const struct {
        const char *text;
        int64_t moe;
    } cases[] = {
        {MOE "}", 4},
        {MOE ",\"first_k_dense_replace\":3}", 1},
        {MOE ",\"first_k_dense_replace\":4}", 0},
        {MOE ",\"moe_layer_freq\":2}", 2},
        {MOE ",\"moe_layer_freq\":[0,1,1,1]}", 3},
        {MOE ",\"first_k_dense_replace\":1,\"moe_layer_freq\":2}", 1},
        {MOE ",\"decoder_sparse_step\":2}", 2},
        {MOE ",\"decoder_sparse_step\":1,\"mlp_only_layers\":[0,2]}", 2},
        {MOE ",\"mlp_layer_types\":[\"dense\",\"sparse\",\"sparse\",\"sparse\"]}", 3},
        {MOE ",\"moe_layers\":[3]}", 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        good(cases[i].text);
        CHECK_INT(layers_of(true), cases[i].moe);
        CHECK_INT(layers_of(false), 4 - cases[i].moe);
        CHECK_INT(model.experts, cases[i].moe > 0 ? 8 : 0);
    }
    good(MOE ",\"shared_expert_intermediate_size\":48}");
    CHECK_INT(model.kinds[0].shared_ffn, 48);
    good(MOE ",\"n_shared_experts\":2}");
    CHECK_INT(model.kinds[0].shared_ffn, 64);
    bad(MOE ",\"moe_layer_freq\":[0,1]}", "field 'moe_layer_freq' has 2 entries for 4 layers");
    bad(MOE ",\"moe_layer_freq\":[0,1,2,1]}", "field 'moe_layer_freq[2]' must be 0 or 1");
    bad(MOE ",\"moe_layer_freq\":\"[0]+[1]*3\"}", "field 'moe_layer_freq' is a string");
    bad(MOE ",\"mlp_only_layers\":[4]}", "field 'mlp_only_layers[0]' is not a layer number from 0 to 3");
    bad(MOE ",\"mlp_only_layers\":[1e300]}", "not a layer number");
    bad(MOE ",\"mlp_only_layers\":[NaN]}", "not a layer number");
    bad(MOE ",\"first_k_dense_replace\":5}", "first_k_dense_replace 5 is more than num_hidden_layers 4");
    bad("{\"model_type\":\"qwen3_moe\"," BASE ",\"num_experts\":8,\"num_experts_per_tok\":9}",
        "num_experts_per_tok 9 is more than num_experts 8");
    bad("{\"model_type\":\"qwen3_moe\"," BASE ",\"num_experts\":8}", "missing num_experts_per_tok");
    bad("{\"model_type\":\"qwen3_moe\"," BASE ",\"moe_k\":8,\"moe_intermediate_size\":32}",
        "speaks of experts, but their number is not given");
}

/* Cases H01, H03, H04, H05, H06, H09, H11 of the shared list, with the pages' own files and numbers. */
static void test_cases(void)
{
    struct model_flops flops;
    good(
        "{\"architectures\":[\"Qwen3ForCausalLM\"],\"hidden_size\":2560,\"num_attention_heads\":32,\"num_key_value_heads\":8,\"head_dim\":128,"
        "\"intermediate_size\":9728,\"num_hidden_layers\":36,\"vocab_size\":151936,\"tie_word_embeddings\":true}");
    CHECK_INT(parameters.total, 4022468096);
    CHECK_INT(parameters.embedding, 388956160);
    CHECK_INT(parameters.head, 0);
    model_count_flops(&model, 4096, &flops);
    CHECK_DOUBLE(flops.head, 777912320, 0); /* H04: counted, though tied */
    good(
        "{\"model_type\":\"gemma2\",\"hidden_size\":2304,\"num_hidden_layers\":26,\"num_attention_heads\":8,\"num_key_value_heads\":4,"
        "\"head_dim\":256,\"intermediate_size\":9216,\"vocab_size\":256000}");
    CHECK_INT(parameters.total, 2614341888);
    good(
        "{\"model_type\":\"deepseek_v2\",\"hidden_size\":2048,\"num_hidden_layers\":27,\"num_attention_heads\":16,\"num_key_value_heads\":16,"
        "\"q_lora_rank\":null,\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,\"n_routed_experts\":64,"
        "\"n_shared_experts\":2,\"num_experts_per_tok\":6,\"moe_intermediate_size\":1408,\"intermediate_size\":10944,\"first_k_dense_replace\":1,"
        "\"moe_layer_freq\":1,\"vocab_size\":102400,\"tie_word_embeddings\":false}");
    CHECK_INT(parameters.total, 15706484224);
    CHECK_INT(parameters.active, 2661150208);
    CHECK_INT(parameters.active - parameters.embedding, 2451435008);
    good(
        "{\"model_type\":\"deepseek_v3\",\"hidden_size\":7168,\"num_hidden_layers\":61,\"num_attention_heads\":128,\"q_lora_rank\":1536,"
        "\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,\"n_routed_experts\":256,\"n_shared_experts\":1,"
        "\"num_experts_per_tok\":8,\"moe_intermediate_size\":2048,\"intermediate_size\":18432,\"first_k_dense_replace\":3,\"vocab_size\":129280,"
        "\"num_nextn_predict_layers\":1,\"quantization_config\":{\"quant_method\":\"fp8\"}}");
    CHECK_INT(parameters.total, 671026419200);
    CHECK_INT(parameters.total - 58 * 256, 671026404352); /* without the router's biases */
    CHECK_INT(parameters.active, 37552297472);
    CHECK_DOUBLE((double)parameters.mtp, 11.5e9, 0.02);
    CHECK_CONTAINS(warn.text, "quantization_config (fp8) is ignored");
    good(
        "{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"mistral\",\"hidden_size\":5120,\"num_hidden_layers\":40,"
        "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"head_dim\":128,\"intermediate_size\":32768,\"vocab_size\":131072},"
        "\"vision_config\":{\"hidden_size\":1024,\"num_hidden_layers\":24}}");
    CHECK_STR(warn.text, "file 'x': the vision tower ('vision_config') is not counted, only the language model is");
    CHECK_INT(model.layers, 40);
    CHECK_STR(model.family, "mistral");
}

static void test_refused(void)
{
    static const struct {
        const char *add, *part;
    } cases[] = {
        {"\"hybrid_override_pattern\":\"MEM*\"",
         "not understood: state-space (Mamba) layers (field 'hybrid_override_pattern' is 'MEM*')"},
        {"\"layer_types\":[\"linear_attention\",\"full_attention\"]",
         "linear-attention layers (field 'layer_types[0]' is 'linear_attention')"},
        {"\"model_type\":\"jamba\"", "state-space (Mamba) layers (field 'model_type' is 'jamba')"},
        {"\"architectures\":[\"MambaForCausalLM\"]", "state-space"},
        {"\"attn_type_list\":[0,1]", "linear-attention layers"},
        {"\"is_encoder_decoder\":true", "encoder-decoder models (field 'is_encoder_decoder' is true)"},
        {"\"cross_attention_layers\":[3,8]", "cross-attention layers (field 'cross_attention_layers' is a list)"},
        {"\"compress_ratios\":[128,4]", "compressed sparse attention"},
        {"\"model_type\":\"bert\"", "bidirectional encoders"},
        {"\"layer_types\":[\"full_attention\",\"weird\",\"full_attention\",\"full_attention\"]",
         "field 'layer_types[1]' is 'weird', which is not understood"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[1024];
        snprintf(text, sizeof(text), "{" BASE ",%s}", cases[i].add);
        bad(text, cases[i].part);
        CHECK_INT(err.count, 1);
    }
    good("{\"model_type\":\"llama\"," BASE
         ",\"is_encoder_decoder\":false,\"cross_attention_layers\":[],\"num_kv_shared_layers\":0}");
}

static void test_problems(void)
{
    bad("{}",
        "file 'x' is not a model's config.json: missing hidden_size, num_hidden_layers, num_attention_heads, intermediate_size, vocab_size");
    bad("[]", "file 'x' holds a list; a model's config.json is an object");
    bad("7", "holds a number");
    bad("{\"hidden_size\":64,\"n_head\":4}", "file 'x': missing num_hidden_layers, intermediate_size, vocab_size");
    bad("{\"hidden_sizee\":64,\"num_hidden_layers\":4,\"num_attention_heads\":8,\"intermediate_size\":96,\"vocab_size\":1000}",
        "file 'x': field 'hidden_sizee' is unknown; did you mean 'hidden_size'?");
    CHECK_INT(err.count, 1);
    bad("{" BASE ",\"num_key_value_head\":2}", "did you mean 'num_key_value_heads'?");
    bad("{" BASE ",\"tie_word_embedding\":true}", "did you mean 'tie_word_embeddings'?");
    bad("{\"hidden_size\":64,\"n_embd\":65,\"num_hidden_layers\":4,\"num_attention_heads\":8,\"intermediate_size\":96,\"vocab_size\":1000}",
        "fields 'hidden_size' 64 and 'n_embd' 65 mean the same and disagree");
    bad("{\"hidden_size\":\"64\",\"num_hidden_layers\":-4,\"num_attention_heads\":1.5,\"intermediate_size\":NaN,\"vocab_size\":1e17}",
        "field 'hidden_size' is a string");
    CHECK_INT(err.count, 5); /* all at once, and not missing as well */
    bad("{\"hidden_size\":64,\"num_hidden_layers\":0,\"num_attention_heads\":8,\"intermediate_size\":96,\"vocab_size\":1000}",
        "allowed: 1 to 1024");
    bad("{\"hidden_size\":65,\"num_hidden_layers\":4,\"num_attention_heads\":8,\"intermediate_size\":96,\"vocab_size\":1000}",
        "num_attention_heads 8 does not divide hidden_size 65 and head_dim is not given");
    bad("{" BASE ",\"num_key_value_heads\":3}", "num_key_value_heads 3 does not divide num_attention_heads 8");
    bad("{\"model_type\":\"deepseek_v3\"," BASE "}",
        "missing kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim");
    bad("{\"model_type\":\"llama\"," BASE ",\"layer_types\":[\"full_attention\"]}",
        "field 'layer_types' has 1 entries for 4 layers");
    bad("{\"hidden_size\":1048576,\"num_hidden_layers\":1024,\"num_attention_heads\":65536,\"head_dim\":65536,\"intermediate_size\":16777216,"
        "\"vocab_size\":16777216,\"num_experts\":65536,\"num_experts_per_tok\":65536}",
        "the limit is 9e+15");
    bad("{\"model_type\":\"opt\",\"ffn_dim\":96,\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":8,\"vocab_size\":1000,"
        "\"max_position_embeddings\":32,\"word_embed_proj_dim\":32}",
        "an embedding of another width");
    bad("{\"text_config\":{" BASE ",\"num_key_value_heads\":3.5}}", "field 'text_config.num_key_value_heads' is 3.5");
    good("{\"model_type\":\"brand_new\"," BASE ",\"what_is_this\":17}");
    CHECK_CONTAINS(
        warn.text,
        "model_type 'brand_new' is not known; read as RMSNorm, gated MLP, rotary positions, no biases, untied head");
    CHECK_INT(warn.count, 1);
    good(
        "{\"model_type\":\"gemma3\",\"text_config\":{\"hidden_size\":2560,\"intermediate_size\":10240,\"num_hidden_layers\":34}}");
    CHECK_INT(warn.count, 4); /* heads, kv heads, head_dim, vocabulary: the family's, said aloud */
    CHECK_CONTAINS(warn.text, "field 'num_attention_heads' is absent; 8 taken, the default of gemma3");
}

static void test_span(void)
{
    static struct model m = {
        .n_kinds = 4, .kinds = {{.window = 0}, {.window = 100}, {.window = 100, .chunked = true}, {.window = 5000}}};
    CHECK_DOUBLE(model_attention_span(1000, 0), 500.5, 0);
    CHECK_DOUBLE(model_attention_span(1000, 1000), 500.5, 0);
    CHECK_DOUBLE(model_attention_span(1000, 2000), 500.5, 0);
    double sum = 0, chunked = 0;
    for (int i = 0; i < 1030; i++) {
        sum += i + 1 < 100 ? i + 1 : 100;
        chunked += i % 100 + 1;
    }
    CHECK_DOUBLE(model_attention_span(1030, 100), sum / 1030, 1e-12);
    CHECK_DOUBLE(model_layer_span(&m, 1, 1030), sum / 1030, 1e-12);
    CHECK_DOUBLE(model_layer_span(&m, 2, 1030), chunked / 1030, 1e-12);
    CHECK_DOUBLE(model_layer_span(&m, 2, 50), 25.5, 0);
    m.index_topk = 200;
    CHECK_DOUBLE(model_layer_span(&m, 0, 1000), model_attention_span(1000, 200), 0);
    CHECK_DOUBLE(model_layer_span(&m, 1, 1000), model_attention_span(1000, 100), 0);
    CHECK_DOUBLE(model_layer_span(&m, 3, 1000), model_attention_span(1000, 200), 0);
}

static void test_flops(void)
{
    struct model_flops f;
    good("{\"model_type\":\"llama\"," BASE ",\"num_key_value_heads\":2}");
    model_count_flops(&model, 100, &f);
    double layer = 2.0 * (2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 96) + 4.0 * 64 * 50.5;
    CHECK_DOUBLE(f.forward, 4 * layer + 2.0 * 64 * 1000, 1e-15);
    CHECK_DOUBLE(f.training, 3 * f.forward, 0);
    CHECK_DOUBLE(f.mtp, 0, 0);
    good("{\"model_type\":\"qwen3_moe\"," BASE
         ",\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32}");
    model_count_flops(&model, 100, &f);
    layer = 2.0 * (4 * 64 * 64 + 2 * 3 * 64 * 32 + 64 * 8) + 4.0 * 64 * 50.5;
    CHECK_DOUBLE(f.forward, 4 * layer + 2.0 * 64 * 1000, 1e-15);
    /* MLA with indexer and MTP */
    good("{\"model_type\":\"deepseek_v32\"," BASE
         ",\"q_lora_rank\":24,\"kv_lora_rank\":16,\"qk_nope_head_dim\":8,\"qk_rope_head_dim\":4,"
         "\"v_head_dim\":6,\"index_n_heads\":3,\"index_head_dim\":5,\"index_topk\":20,\"num_nextn_predict_layers\":2}");
    model_count_flops(&model, 100, &f);
    double attention = 64 * 24 + 24 * 8 * 12 + 64 * (16 + 4) + 16 * 8 * (8 + 6) + 8 * 6 * 64,
           index = 24 * 15 + 64 * 5 + 64 * 3;
    layer =
        2.0 * (attention + index + 3 * 64 * 96) + 2.0 * 8 * (12 + 6) * model_attention_span(100, 20) + 2.0 * 15 * 50.5;
    CHECK_DOUBLE(f.forward, 4 * layer + 2.0 * 64 * 1000, 1e-15);
    CHECK_DOUBLE(f.mtp, 2 * (layer + 2.0 * 2 * 64 * 64 + 2.0 * 64 * 1000), 1e-15);
    CHECK_INT(parameters.attention, 4 * ((int64_t)attention + (int64_t)index + 24 + 16 + 2 * 5));
    CHECK_INT(parameters.mtp, 2 * model_mtp_parameters(&model));
}

/* Parts by the way they are sharded add up to the whole. */
static void check_layer_sums(void)
{
    int64_t sum = parameters.embedding + parameters.head +
                  (model.final_norm + model.embedding_norm) * model.hidden * (model.norm_bias ? 2 : 1);
    int64_t layers = 0;
    for (int i = 0; i < model.n_kinds; i++) {
        struct layer_parameters p;
        model_layer_parameters(&model, i, &p);
        int64_t experts = model.kinds[i].moe ? model.experts : 0;
        sum += model.kinds[i].layers * (p.attention_tp + p.attention_kv + p.attention_rep + p.mlp_tp + p.mlp_rep +
                                        p.router + p.norm + experts * p.expert);
        layers += model.kinds[i].layers;
    }
    CHECK_INT(sum, parameters.total);
    CHECK_INT(layers, model.layers);
    CHECK(parameters.active <= parameters.total && parameters.active > 0);
}

/* Every file of the shared folder is read or refused with one sentence. */
#define MAMBA "\"mamba_num_heads\":8,\"mamba_head_dim\":4,\"n_groups\":2,\"ssm_state_size\":16,\"conv_kernel\":4,\"use_conv_bias\":true"
#define DELTA "\"linear_num_value_heads\":8,\"linear_value_head_dim\":4,\"linear_num_key_heads\":2,\"linear_key_head_dim\":16,\"linear_conv_kernel_dim\":4"

/* Blocks of Nemotron-H by letters and by words, counted tensor by tensor; attention among Qwen's delta nets. */
static void test_hybrids(void)
{
    static const int64_t inner = 32, keys = 64;
    int64_t mamba = 64 + 64 * (2 * inner + keys + 8) + (inner + keys) * 5 + 3 * 8 + inner + inner * 64;
    int64_t attention = 64 + 4 * 64 * 64, mlp = 64 + 2 * 64 * 96;
    good("{\"model_type\":\"nemotron_h\"," BASE "," MAMBA ",\"hybrid_override_pattern\":\"M*-M\"}");
    CHECK_INT(model.n_kinds, 3);
    CHECK_INT(parameters.total, 2 * 64000 + 64 + 2 * mamba + attention + mlp);
    int64_t by_letters = parameters.total;
    good("{\"model_type\":\"nemotron_h\"," BASE "," MAMBA ",\"layers_block_type\":[\"mamba\",\"attention\",\"mlp\",\"mamba\"]}");
    CHECK_INT(parameters.total, by_letters);
    struct model_flops flops;
    model_count_flops(&model, 128, &flops);
    CHECK_DOUBLE(flops.attention_scores, 2 * 7 * 32 * 16 + 2 * 2 * 64 * 64.5, 1e-12);
    good("{\"model_type\":\"nemotron_h\"," BASE "," MAMBA ",\"hybrid_override_pattern\":\"MEM*\",\"n_routed_experts\":4,\"num_experts_per_tok\":2,"
         "\"moe_intermediate_size\":32,\"moe_latent_size\":16,\"num_nextn_predict_layers\":2,\"mtp_hybrid_override_pattern\":\"*E\"}");
    CHECK_INT(parameters.experts, 4 * 2 * 16 * 32);
    CHECK_INT(parameters.mlp, 2 * 64 * 16);
    CHECK_INT(parameters.router, 64 * 4 + 4);
    int64_t module = 2 * 64 * 64 + 3 * 64 + attention + 64 + parameters.experts + parameters.mlp + parameters.router;
    CHECK_INT(parameters.mtp, 2 * module);
    int64_t delta = 64 * (2 * inner + keys + 16) + (inner + keys) * 4 + 2 * 8 + 4 + inner * 64, gated = 2 * 64 + 3 * 64 * 96;
    good("{\"model_type\":\"qwen3_next\"," BASE "," DELTA "}");
    CHECK_INT(model.n_kinds, 2);
    CHECK_INT(model.kind_of_layer[3], 1);
    CHECK_INT(parameters.total, 2 * 64000 + 64 + 4 * gated + 3 * delta + 5 * 64 * 64 + 2 * 8);
    int64_t by_interval = parameters.total;
    good("{\"model_type\":\"qwen3_5_text\"," BASE "," DELTA
         ",\"layer_types\":[\"linear_attention\",\"linear_attention\",\"linear_attention\",\"full_attention\"]}");
    CHECK_INT(parameters.total, by_interval);
    bad("{\"model_type\":\"nemotron_h\"," BASE "," MAMBA ",\"hybrid_override_pattern\":\"MXM*\"}", "'hybrid_override_pattern[1]' is 'X'");
    bad("{\"model_type\":\"nemotron_h\"," BASE "," MAMBA ",\"hybrid_override_pattern\":\"MM*\"}", "has 3 entries for 4 layers");
    bad("{\"model_type\":\"nemotron_h\"," BASE "," MAMBA ",\"hybrid_override_pattern\":\"MMMM*\"}", "has more than 4 entries");
    bad("{\"model_type\":\"nemotron_h\"," BASE "," MAMBA ",\"layers_block_type\":[\"mamba\",\"conv\",\"mlp\",\"mlp\"]}", "'layers_block_type[1]' is 'conv'");
    bad("{\"model_type\":\"nemotron_h\"," BASE ",\"hybrid_override_pattern\":\"M*-M\"}", "missing mamba_num_heads, mamba_head_dim, n_groups");
    bad("{\"model_type\":\"qwen3_next\"," BASE "}", "missing linear_num_value_heads");
    bad("{\"model_type\":\"qwen3_next\"," BASE "," DELTA ",\"hybrid_override_pattern\":\"M*-M\"}", "field 'hybrid_override_pattern' is 'M*-M'");
    bad("{\"model_type\":\"qwen3_next\"," BASE "," DELTA ",\"moe_latent_size\":16}", "experts in a latent space");
    bad("{\"model_type\":\"qwen3_next\"," BASE "," DELTA ",\"layer_types\":\"linear_attention\"}", "'layer_types' is a string; it must be a list");
#define NEMOTRON(fields) "{\"model_type\":\"nemotron_h\"," BASE "," MAMBA "," fields "}"
    bad(NEMOTRON("\"hybrid_override_pattern\":\"M\\u00e9M*\""), "'hybrid_override_pattern[1]' is '\xc3\xa9', which");
    bad(NEMOTRON("\"hybrid_override_pattern\":4"), "'hybrid_override_pattern' is a number; it must be a string");
    bad(NEMOTRON("\"layers_block_type\":\"mamba\""), "'layers_block_type' is a string; it must be a list");
    bad(NEMOTRON("\"layers_block_type\":[1,2,3,4]"), "'layers_block_type[0]' is a number, which");
    bad(NEMOTRON("\"hybrid_override_pattern\":\"M*-M\",\"layers_block_type\":[\"mamba\",\"attention\",\"mlp\",\"mlp\"]"), "mean the same and disagree");
    bad(NEMOTRON("\"hybrid_override_pattern\":\"M*-M\",\"num_nextn_predict_layers\":1,\"mtp_hybrid_override_pattern\":7"), "'mtp_hybrid_override_pattern' is a number");
    good(NEMOTRON("\"hybrid_override_pattern\":\"M*-M\",\"layers_block_type\":[\"mamba\",\"attention\",\"mlp\",\"mamba\"]"));
    bad("{\"model_type\":\"llama\"," BASE ",\"hybrid_override_pattern\":\"M*-M\"}", "state-space (Mamba) layers");
}

static void test_shared_configs(void)
{
    char path[TEST_PATH_MAX];
    const char *folder = test_shared_path(path, "data/hf-configs");
    struct dirent **entries;
    int n = folder != NULL ? scandir(folder, &entries, NULL, alphasort) : -1, read = 0;
    if (n < 0) {
        test_skip("data/hf-configs is not there");
        return;
    }
    for (int i = 0; i < n; i++) {
        char file[TEST_PATH_MAX + 300];
        snprintf(file, sizeof(file), "%s/%s", folder, entries[i]->d_name);
        bool config = strstr(entries[i]->d_name, ".json") != NULL;
        free(entries[i]);
        if (!config)
            continue;
        err_clear(&err);
        err_clear(&warn);
        int result = model_load(file, &model, &warn, &err);
        CHECK_INT(result, 0);
        CHECK_STR(err.text, "");
        read += result == 0;
        if (result == 0) {
            model_count_parameters(&model, &parameters);
            check_layer_sums();
        }
    }
    free(entries);
    CHECK(read >= 20);
}

/* The architectures of the published runs: all pure transformers are read; totals as far as the file states them. */
static void test_shared_runs(void)
{
    char path[TEST_PATH_MAX];
    struct json *root = NULL;
    if (test_shared_path(path, "data/runs/models.json") == NULL) {
        test_skip("data/runs/models.json is not there");
        return;
    }
    if (!CHECK_INT(json_load_python(path, &root, &err), 0))
        return;
    int read = 0, refused = 0;
    for (const struct json *child = json_first(root); child != NULL; child = json_next(child)) {
        err_clear(&err);
        err_clear(&warn);
        if (model_parse(child, json_key(child), &model, &warn, &err) != 0) {
            CHECK_INT(err.count, 1);
            CHECK(strstr(err.text, "not understood: ") || strstr(err.text, "a:qwen3-next")); /* the table has its name alone */
            refused++;
            continue;
        }
        read++;
        model_count_parameters(&model, &parameters);
        check_layer_sums();
        const struct json *computed = json_get(child, "_params_computed"); /* without norms, biases and positions */
        if (computed != NULL && strncmp(json_key(child), "b:mpt", 5) != 0)
            CHECK_DOUBLE((double)parameters.total, json_double(computed), 0.006);
    }
    json_free(root);
    CHECK_INT(read, 138);
    CHECK_INT(refused, 2);
}

static void test_names(void)
{
    static const struct {
        const char *file, *text, *name;
    } cases[] = {
        {"/a/b/Llama-3.1-8B.json", "{" BASE "}", "Llama-3.1-8B"},
        {"models/Llama-3.1-8B/config.json", "{" BASE "}", "Llama-3.1-8B"},
        {"config.json", "{" BASE "}", "config"},
        {"x.json", "{\"_name_or_path\":\"meta-llama/Llama-3.1-8B\"," BASE "}", "Llama-3.1-8B"},
        {"standard input", "{" BASE "}", "standard input"},
        {"", "{" BASE "}", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct json *root = NULL;
        CHECK_INT(json_parse(cases[i].text, strlen(cases[i].text), "x", &root, &err), 0);
        CHECK_INT(model_parse(root, cases[i].file, &model, &warn, &err), 0);
        CHECK_STR(model.name, cases[i].name);
        json_free(root);
    }
}

int main(void)
{
    test_spellings();
    test_families();
    test_expert_layers();
    test_cases();
    test_refused();
    test_problems();
    test_span();
    test_flops();
    test_names();
    test_hybrids();
    test_shared_configs();
    test_shared_runs();
    return test_report();
}

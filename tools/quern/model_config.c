// SPDX-License-Identifier: Apache-2.0
// `quern warm --from config.json`: the specs that serving a model needs, from the configuration that it is published with
// (the names of Hugging Face's transformers). Everything known about models is the table `kinds` and the few functions
// that it names; nothing else in Quern knows a model.
//
//   part       spec                                                      from
//   sampler    softmax_topk V K in                                       vocab_size, top_k, torch_dtype
//   attention  attention d …, causal: varlen (prefill), paged (decode)   head_dim, sliding_window, attn_logit_softcapping
//   latent     attention 192/128 (prefill), 576/512 kv_alias (decode)    qk_nope_head_dim, qk_rope_head_dim, kv_lora_rank
//   experts    gate E K …, router D E K …                                n_routed_experts, scoring_func, n_group, …
//   indexer    indexer H C k                                             index_n_heads, index_head_dim, index_topk
//
// A part whose family this build does not have is a note, not a failure.
#include <math.h>
#include <string.h>

#include "base/path.h"
#include "specs.h"

typedef struct model {
    const char *file;
    const cJSON *root, *config; // config: root, or its text_config
    const model_options *options;
    spec_list *list;
    size_t first; // of the list's items that are this model's
    const struct kind *kind;
    const char *dtype; // bf16, f16, f32
    int64_t sample;
} model;

// ---- reading

static bool is_there(const model *m, const char *name)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(m->config, name);
    return value && !cJSON_IsNull(value);
}

// A whole number ≥ 0; `missing` when the configuration does not have it (or has null).
static quern_status read_int(const model *m, const char *name, int64_t missing, int64_t *value)
{
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(m->config, name);
    *value = missing;
    if (!is_there(m, name)) {
        if (missing >= 0) return QUERN_OK;
        return qn_fail(QUERN_BAD_FILE, "%s: \"%s\" is missing", m->file, name);
    }
    double real = cJSON_IsNumber(number) ? number->valuedouble : NAN;
    if (!(real >= 0 && real <= 1e15) || real != floor(real))
        return qn_fail(QUERN_BAD_FILE, "%s: \"%s\" is no whole number", m->file, name);
    *value = (int64_t)real;
    return QUERN_OK;
}

static double read_real(const model *m, const char *name, double missing)
{
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(m->config, name);
    return cJSON_IsNumber(number) ? number->valuedouble : missing;
}

static bool read_flag(const model *m, const char *name, bool missing)
{
    const cJSON *flag = cJSON_GetObjectItemCaseSensitive(m->config, name);
    return cJSON_IsBool(flag) ? cJSON_IsTrue(flag) : missing;
}

static const char *read_word(const model *m, const char *name, const char *missing)
{
    const cJSON *word = cJSON_GetObjectItemCaseSensitive(m->config, name);
    return cJSON_IsString(word) ? word->valuestring : missing;
}

// What a kind's files may leave out, for their authors' code has it.
typedef struct defaults {
    int64_t vocabulary; // -1: it has to be there
    int64_t head_dim;   // 0: hidden_size / num_attention_heads
} defaults;
static const defaults *defaults_of(const model *m);

// ---- adding

// A spec that is not served is a note: no such family in this build, or a model's number is beyond what the family has.
static void add_or_note(const model *m, const char *text)
{
    char canonical[512];
    quern_any_spec spec;
    bool is_good = quern_spec_parse(text, &spec) == QUERN_OK &&
                   quern_spec_format(&spec.base, canonical, sizeof canonical) == QUERN_OK;
    if (is_good && spec_list_has(m->list, m->first, canonical)) return;
    if (!is_good || spec_list_add_text(m->list, canonical) != QUERN_OK)
        qn_text_putf(&m->list->notes, "%s is not served: %s\n", text, quern_message());
}

static quern_status add(const model *m, qn_text *text) // and frees it
{
    quern_status status = qn_text_check(text);
    if (status == QUERN_OK) add_or_note(m, text->bytes);
    qn_text_fini(text);
    return status == QUERN_OK ? qn_text_check(&m->list->notes) : status;
}

// ---- the parts

static quern_status add_sampler(const model *m)
{
    int64_t vocabulary;
    qn_text text = QN_TEXT_INIT;
    QN_TRY(read_int(m, "vocab_size", defaults_of(m)->vocabulary, &vocabulary));
    qn_text_putf(&text, "softmax_topk V=%lld K=%lld in=%s", (long long)vocabulary, (long long)m->sample, m->dtype);
    return add(m, &text);
}

// One kind of layer: window 0 = none.
static quern_status add_layers(const model *m, int64_t d, int64_t window, double scale, double softcap)
{
    static const char *const layouts[] = {"varlen", "paged"};
    for (size_t i = 0; i < QN_COUNT(layouts); i++) {
        qn_text text = QN_TEXT_INIT;
        qn_text_putf(&text, "attention d=%lld in=%s layout=%s causal=1", (long long)d, m->dtype, layouts[i]);
        if (window > 0) qn_text_putf(&text, " window_left=%lld", (long long)window - 1);
        if (scale > 0) {
            qn_text_puts(&text, " scale=");
            qn_text_put_real(&text, scale);
        }
        if (softcap > 0) {
            qn_text_puts(&text, " softcap=");
            qn_text_put_real(&text, softcap);
        }
        if (i == 1) qn_text_putf(&text, " page=%lld", (long long)m->options->page);
        QN_TRY(add(m, &text));
    }
    return QUERN_OK;
}

static quern_status read_head_dim(const model *m, int64_t *d)
{
    int64_t hidden, heads;
    QN_TRY(read_int(m, "head_dim", defaults_of(m)->head_dim, d));
    if (*d) return QUERN_OK;
    QN_TRY(read_int(m, "hidden_size", -1, &hidden));
    QN_TRY(read_int(m, "num_attention_heads", -1, &heads));
    if (!heads || hidden % heads)
        return qn_fail(QUERN_BAD_FILE, "%s: hidden_size %lld is no multiple of num_attention_heads %lld", m->file,
                       (long long)hidden, (long long)heads);
    *d = hidden / heads;
    return QUERN_OK;
}

// All layers see all keys; with sliding_window in use, some or all see that many only. Which, the layers' kinds say, and
// both are needed where they differ.
static quern_status add_attention(const model *m)
{
    int64_t d, window;
    QN_TRY(read_head_dim(m, &d));
    QN_TRY(read_int(m, "sliding_window", 0, &window));
    if (!read_flag(m, "use_sliding_window", true)) window = 0;
    QN_TRY(add_layers(m, d, 0, 0, 0));
    return window ? add_layers(m, d, window, 0, 0) : QUERN_OK;
}

static quern_status add_gemma_attention(const model *m)
{
    int64_t d, window;
    QN_TRY(read_head_dim(m, &d));
    QN_TRY(read_int(m, "sliding_window", 0, &window));
    double scalar = read_real(m, "query_pre_attn_scalar", 0), softcap = read_real(m, "attn_logit_softcapping", 0);
    double scale = scalar > 0 && scalar != (double)d ? 1 / sqrt(scalar) : 0;
    QN_TRY(add_layers(m, d, 0, scale, softcap));
    return window ? add_layers(m, d, window, scale, softcap) : QUERN_OK;
}

// Multi-head latent attention: prefill with keys and values made from the latent, decode on the latent itself, where V is
// the first kv_lora_rank elements of K. The scale is that of the original head in both.
static quern_status add_latent_attention(const model *m)
{
    int64_t nope, rope, dv, rank;
    qn_text prefill = QN_TEXT_INIT, decode = QN_TEXT_INIT;
    QN_TRY(read_int(m, "qk_nope_head_dim", -1, &nope));
    QN_TRY(read_int(m, "qk_rope_head_dim", -1, &rope));
    QN_TRY(read_int(m, "v_head_dim", -1, &dv));
    QN_TRY(read_int(m, "kv_lora_rank", -1, &rank));
    qn_text_putf(&prefill, "attention d=%lld dv=%lld in=%s layout=varlen causal=1", (long long)(nope + rope),
                 (long long)dv, m->dtype);
    quern_status status = add(m, &prefill);
    if (status != QUERN_OK) return status;
    qn_text_putf(&decode, "attention d=%lld dv=%lld in=%s layout=paged causal=1 scale=", (long long)(rank + rope),
                 (long long)rank, m->dtype);
    qn_text_put_real(&decode, 1 / sqrt((double)(nope + rope)));
    qn_text_putf(&decode, " kv_alias=1 page=%lld", (long long)m->options->page);
    return add(m, &decode);
}

static const char *activation_of(const char *scoring)
{
    static const struct {
        const char *published, *own;
    } words[] = {{"softmax", "softmax"},
                 {"sigmoid", "sigmoid"},
                 {"sqrtsoftplus", "sqrt_softplus"},
                 {"sqrt_softplus", "sqrt_softplus"}};
    for (size_t i = 0; i < QN_COUNT(words); i++)
        if (!strcmp(words[i].published, scoring)) return words[i].own;
    return NULL;
}

typedef struct expert_names { // what a kind calls its numbers, and what it leaves unsaid
    const char *experts;
    bool renormalizes;
} expert_names;

static quern_status put_gate(const model *m, const expert_names *names, qn_text *text)
{
    int64_t chosen, groups, kept;
    const char *scoring = read_word(m, "scoring_func", "softmax"), *act = activation_of(scoring);
    if (!act)
        return qn_fail(QUERN_BAD_FILE, "%s: scoring_func \"%s\" is none of softmax, sigmoid, sqrtsoftplus", m->file,
                       scoring);
    QN_TRY(read_int(m, "num_experts_per_tok", -1, &chosen));
    QN_TRY(read_int(m, "n_group", 1, &groups));
    QN_TRY(read_int(m, "topk_group", 1, &kept));
    bool grouped = groups > 1 && strcmp(read_word(m, "topk_method", "noaux_tc"), "greedy") != 0;
    bool renormalize = read_flag(m, "norm_topk_prob", names->renormalizes);
    double scale = read_real(m, "routed_scaling_factor", 1);
    qn_text_putf(text, " act=%s", act);
    if (!strcmp(read_word(m, "topk_method", ""), "noaux_tc")) qn_text_puts(text, " bias=1");
    if (grouped) qn_text_putf(text, " n_group=%lld topk_group=%lld", (long long)groups, (long long)kept);
    if (!renormalize) qn_text_puts(text, " renormalize=0");
    if (scale != 1) {
        qn_text_puts(text, " scale=");
        qn_text_put_real(text, scale);
    }
    return qn_text_check(text);
}

// The logits are f32 where the router's product is computed apart; router takes hidden states and weights as published.
static quern_status add_experts(const model *m, const expert_names *names)
{
    int64_t experts, chosen, hidden, groups;
    qn_text rest = QN_TEXT_INIT, gate = QN_TEXT_INIT, router = QN_TEXT_INIT;
    QN_TRY(read_int(m, names->experts, 0, &experts));
    if (!experts) return QUERN_OK; // a dense model of a kind that may have experts
    QN_TRY(read_int(m, "num_experts_per_tok", -1, &chosen));
    QN_TRY(read_int(m, "hidden_size", -1, &hidden));
    QN_TRY(read_int(m, "n_group", 1, &groups));
    if (groups > 1 && !strcmp(read_word(m, "topk_method", ""), "group_limited_greedy")) {
        qn_text_putf(&m->list->notes,
                     "the experts of %s are not served: its groups score by their best expert, and "
                     "gate's by the sum of the two best\n",
                     m->file);
        return qn_text_check(&m->list->notes);
    }
    quern_status status = put_gate(m, names, &rest);
    if (status == QUERN_OK) {
        qn_text_putf(&gate, "gate E=%lld K=%lld in=f32%s", (long long)experts, (long long)chosen, rest.bytes);
        qn_text_putf(&router, "router D=%lld E=%lld K=%lld in=%s w=%s%s", (long long)hidden, (long long)experts,
                     (long long)chosen, m->dtype, m->dtype, rest.bytes);
        status = add(m, &gate);
    }
    if (status == QUERN_OK) status = add(m, &router);
    qn_text_fini(&rest);
    return status;
}

static quern_status add_deepseek_experts(const model *m)
{
    return add_experts(m, &(expert_names){"n_routed_experts", false});
}

static quern_status add_qwen_experts(const model *m)
{
    return add_experts(m, &(expert_names){"num_experts", false});
}

static quern_status add_indexer(const model *m)
{
    int64_t heads, elements, chosen;
    qn_text text = QN_TEXT_INIT;
    QN_TRY(read_int(m, "index_n_heads", 0, &heads));
    if (!heads) return QUERN_OK;
    QN_TRY(read_int(m, "index_head_dim", -1, &elements));
    QN_TRY(read_int(m, "index_topk", -1, &chosen));
    qn_text_putf(&text, "indexer H=%lld C=%lld layout=fp8_shared k=%lld q=fp8 page=%lld", (long long)heads,
                 (long long)elements, (long long)chosen, (long long)m->options->page);
    return add(m, &text);
}

// ---- the kinds

typedef quern_status (*part)(const model *m);
#define NO_DEFAULTS                                                                                                    \
    {                                                                                                                  \
        -1, 0                                                                                                          \
    }
static const struct kind {
    const char *type; // model_type
    defaults missing;
    part parts[5];
} kinds[] = {
    {"llama", NO_DEFAULTS, {add_sampler, add_attention}},
    {"qwen2", NO_DEFAULTS, {add_sampler, add_attention}},
    {"qwen2_moe", NO_DEFAULTS, {add_sampler, add_attention, add_qwen_experts}},
    {"qwen3", NO_DEFAULTS, {add_sampler, add_attention}},
    {"qwen3_moe", NO_DEFAULTS, {add_sampler, add_attention, add_qwen_experts}},
    {"deepseek_v2", NO_DEFAULTS, {add_sampler, add_latent_attention, add_deepseek_experts}},
    {"deepseek_v3", NO_DEFAULTS, {add_sampler, add_latent_attention, add_deepseek_experts}},
    {"deepseek_v32", NO_DEFAULTS, {add_sampler, add_latent_attention, add_deepseek_experts, add_indexer}},
    {"gemma", {256000, 256}, {add_sampler, add_gemma_attention}},
    {"gemma2", {256000, 256}, {add_sampler, add_gemma_attention}},
    {"gemma3", {262208, 256}, {add_sampler, add_gemma_attention}}, // its numbers are in text_config
    {"gemma3_text", {262208, 256}, {add_sampler, add_gemma_attention}},
};

static const defaults *defaults_of(const model *m)
{
    return &m->kind->missing;
}

static const struct kind *find_kind(const char *type)
{
    for (size_t i = 0; type && i < QN_COUNT(kinds); i++)
        if (!strcmp(kinds[i].type, type)) return &kinds[i];
    return NULL;
}

// ---- the file

// torch_dtype, in newer files dtype; bf16 when neither says it.
static quern_status read_dtype(model *m)
{
    static const struct {
        const char *published, *own;
    } words[] = {{"bfloat16", "bf16"}, {"float16", "f16"}, {"float32", "f32"}};
    const char *word = read_word(m, "torch_dtype", read_word(m, "dtype", NULL));
    if (!word) word = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(m->root, "torch_dtype"));
    for (size_t i = 0; i < QN_COUNT(words); i++)
        if (!word || !strcmp(words[i].published, word)) {
            m->dtype = words[i].own;
            return QUERN_OK;
        }
    return qn_fail(QUERN_BAD_FILE, "%s: torch_dtype \"%s\" is none of bfloat16, float16, float32", m->file, word);
}

// How many candidates the sampler takes: what generation_config.json beside the configuration recommends, else 50.
static int64_t sample_of(const model *m)
{
    int64_t top_k = 0;
    qn_text beside = QN_TEXT_INIT;
    const char *slash = strrchr(m->file, '/');
    cJSON *document = NULL;
    if (read_int(m, "top_k", 0, &top_k) == QUERN_OK && top_k > 0) return top_k;
    qn_text_put(&beside, m->file, slash ? (size_t)(slash - m->file) + 1 : 0);
    qn_text_puts(&beside, "generation_config.json");
    if (!beside.failed && qn_file_exists(beside.bytes) && spec_list_read_json(beside.bytes, &document) == QUERN_OK) {
        const cJSON *number = cJSON_GetObjectItemCaseSensitive(document, "top_k");
        if (cJSON_IsNumber(number) && number->valuedouble >= 1 && number->valuedouble <= 2048)
            top_k = (int64_t)number->valuedouble;
        cJSON_Delete(document);
    }
    qn_text_fini(&beside);
    return top_k > 0 ? top_k : 50;
}

static quern_status no_kind(const char *file, const char *type)
{
    qn_text known = QN_TEXT_INIT;
    for (size_t i = 0; i < QN_COUNT(kinds); i++) qn_text_putf(&known, "%s%s", i ? ", " : "", kinds[i].type);
    quern_status status =
        qn_fail(QUERN_BAD_FILE, "%s: model_type %s%s%s is not known; known are %s", file, type ? "\"" : "",
                type ? type : "is missing or", type ? "\"" : "", qn_text_string(&known));
    qn_text_fini(&known);
    return status;
}

static quern_status add_document(model *m)
{
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(m->root, "model_type"));
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(m->root, "text_config");
    const struct kind *kind = find_kind(type);
    m->config = cJSON_IsObject(text) ? text : m->root;
    if (!kind) {
        type = read_word(m, "model_type", type);
        kind = find_kind(type);
    }
    if (!kind) return no_kind(m->file, type);
    m->kind = kind;
    QN_TRY(read_dtype(m));
    m->sample = m->options->sample ? m->options->sample : sample_of(m);
    for (size_t i = 0; i < QN_COUNT(kind->parts) && kind->parts[i]; i++) QN_TRY(kind->parts[i](m));
    return QUERN_OK;
}

quern_status spec_list_add_model(spec_list *list, const char *file, const model_options *given)
{
    cJSON *document = NULL;
    model_options options = *given;
    model m = {.file = file, .options = &options, .list = list, .first = list->count};
    if (!options.page) options.page = 64;
    QN_TRY(spec_list_read_json(file, &document));
    m.root = document;
    quern_status status =
        cJSON_IsObject(document) ? add_document(&m) : qn_fail(QUERN_BAD_FILE, "%s: not a JSON object", file);
    cJSON_Delete(document);
    return status;
}

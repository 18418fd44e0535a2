// SPDX-License-Identifier: Apache-2.0
// The cases of `quern bench softmax_topk` (bench_topk.h): the fixed list, and lists from the command line.
#include <stdio.h>
#include <string.h>

#include "bench_topk.h"

// ---- the fixed list

enum { MOST = 8 };

// Every rows × K × with of a block is a case. Lists end at the first 0 or NULL; with has "" by default.
static const struct block {
    const char *group, *data;
    int64_t V;
    quern_dtype in;
    int64_t rows[MOST], K[MOST];
    const char *with[MOST];
    bool peers;
} blocks[] = {
    // The shapes of language models. Peers are timed on these, and on a few others: they take most of the time.
    {"table", "random", 128256, QUERN_BF16, {1, 8, 30, 64}, {8, 50, 256, 1024}, {""}, true},
    {"table", "random", 128256, QUERN_BF16, {4096}, {1, 8, 50, 256, 1024}, {""}, true},
    {"table", "random", 128256, QUERN_F32, {4096}, {1, 8, 50, 256, 1024}, {""}, true},
    {"table", "random", 50257, QUERN_BF16, {256}, {256}, {""}, true},
    {"table", "random", 50257, QUERN_F32, {256}, {256}, {""}, true},
    // Rows between them: the curve that plans must not break.
    {"rows", "random", 128256, QUERN_BF16, {2, 4, 16, 32, 128, 512, 1024}, {50, 256}, {""}, false},
    // Values that are hard on a threshold; the random case of the same shape is in "table".
    {"data", "ties", 128256, QUERN_BF16, {8, 64, 4096}, {256}, {""}, false},
    {"data", "two", 128256, QUERN_BF16, {8, 64, 4096}, {256}, {""}, false},
    {"data", "sorted", 128256, QUERN_BF16, {8, 64, 4096}, {256}, {""}, false},
    {"data", "equal", 128256, QUERN_BF16, {8, 64, 4096}, {256}, {""}, false},
    {"data", "ties", 128256, QUERN_F32, {4096}, {256}, {""}, false},
    {"data", "two", 128256, QUERN_F32, {4096}, {256}, {""}, false},
    {"data", "sorted", 128256, QUERN_F32, {4096}, {256}, {""}, false},
    {"data", "equal", 128256, QUERN_F32, {4096}, {256}, {""}, false},
    // What a model produced, tiled over the rows, beside random values of the same shape.
    {"real", "real", 49152, QUERN_BF16, {64, 4096}, {256}, {""}, true},
    {"real", "random", 49152, QUERN_BF16, {64, 4096}, {256}, {""}, false},
    // An odd V leaves most rows misaligned; the aligned neighbours are in "table", or follow.
    {"alignment", "random", 128255, QUERN_BF16, {64, 4096}, {256}, {""}, false},
    {"alignment", "random", 128255, QUERN_F32, {4096}, {256}, {""}, false},
    {"alignment", "random", 50256, QUERN_BF16, {256}, {256}, {""}, false},
    // What options cost; the plain case is in "table". Peers compute them too where all are asked for.
    {"batch_invariant", "random", 128256, QUERN_BF16, {1, 8, 64, 4096}, {256}, {"batch_invariant=1"}, false},
    {"outputs",
     "random",
     128256,
     QUERN_BF16,
     {4096},
     {256},
     {"value=logprob", "temperature=1", "lse=1", "token=1"},
     false},
    {"outputs",
     "random",
     128256,
     QUERN_F32,
     {4096},
     {256},
     {"value=logprob", "temperature=1", "lse=1", "token=1"},
     false},
    {"outputs", "random", 128256, QUERN_BF16, {64, 4096}, {256}, {"value=logprob temperature=1 lse=1 token=1"}, true},
};

// Whether a list of words separated by commas has this one. NULL has every word.
static bool has_word(const char *list, const char *word)
{
    if (!list) return true;
    size_t length = strlen(word);
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == 0)) return true;
    return false;
}

static bool is_group(const char *word, size_t length)
{
    for (size_t i = 0; i < QN_COUNT(blocks); i++)
        if (strlen(blocks[i].group) == length && strncmp(blocks[i].group, word, length) == 0) return true;
    return false;
}

static quern_status check_groups(const char *only)
{
    for (const char *at = only; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (!is_group(at, strcspn(at, ",")))
            return qn_fail(QUERN_BAD_VALUE,
                           "--only: '%.*s' is not table, rows, data, real, alignment, batch_invariant or outputs",
                           (int)strcspn(at, ","), at);
    return QUERN_OK;
}

static void add_block(const struct block *b, const char *data, topk_cases *cases)
{
    for (size_t r = 0; r < MOST && b->rows[r]; r++)
        for (size_t k = 0; k < MOST && b->K[k]; k++)
            for (size_t w = 0; w < MOST && b->with[w]; w++)
                cases->item[cases->count++] =
                    (topk_case){b->group, data, b->with[w], b->rows[r], b->V, b->K[k], b->in, b->peers};
}

static bool same_inputs(const topk_case *a, const topk_case *b)
{
    return a->rows == b->rows && a->V == b->V && a->in == b->in && strcmp(a->data, b->data) == 0;
}

// Moves cases of the same inputs together, and keeps the order otherwise.
static void gather(topk_cases *cases)
{
    for (size_t i = 0; i < cases->count; i++)
        for (size_t j = i + 1, next = i + 1; j < cases->count; j++) {
            topk_case found = cases->item[j];
            if (!same_inputs(&cases->item[i], &found)) continue;
            memmove(&cases->item[next + 1], &cases->item[next], (j - next) * sizeof found);
            cases->item[next++] = found;
        }
}

quern_status topk_cases_default(const char *only, const char *real, topk_cases *cases)
{
    QN_TRY(check_groups(only));
    cases->count = 0;
    for (size_t i = 0; i < QN_COUNT(blocks); i++) {
        bool is_real = strcmp(blocks[i].data, "real") == 0;
        if (!has_word(only, blocks[i].group) || (strcmp(blocks[i].group, "real") == 0 && !real)) continue;
        add_block(&blocks[i], is_real ? real : blocks[i].data, cases);
    }
    gather(cases);
    return cases->count ? QUERN_OK : qn_fail(QUERN_BAD_VALUE, "--only: the group real needs --real FILE.npy");
}

// ---- lists

enum { MOST_LISTED = 32 };

// "1,8,64"; NULL means the one default.
static quern_status parse_list(const char *option, const char *word, int64_t initial, int64_t *list, size_t *count)
{
    *count = 0;
    if (!word) list[(*count)++] = initial;
    for (word = word && *word ? word : NULL; word;) {
        char number[24];
        size_t length = strcspn(word, ",");
        snprintf(number, sizeof number, "%.*s", (int)length, word);
        if (*count == MOST_LISTED || length >= sizeof number || !qn_parse_int(number, &list[*count]) ||
            list[*count] < 1)
            return qn_fail(QUERN_BAD_VALUE, "--%s: '%.*s' is not one of at most %d whole numbers from 1 on", option,
                           (int)length, word, MOST_LISTED);
        (*count)++;
        word = command_next_place(word, length);
    }
    return *count ? QUERN_OK : qn_fail(QUERN_BAD_VALUE, "--%s: a list of numbers is needed", option);
}

static quern_status parse_types(const char *word, quern_dtype initial, int64_t *list, size_t *count)
{
    static const quern_dtype known[] = {QUERN_F32, QUERN_F16, QUERN_BF16};
    *count = 0;
    if (!word) list[(*count)++] = initial;
    for (word = word && *word ? word : NULL; word;) {
        size_t length = strcspn(word, ","), i = 0;
        while (i < QN_COUNT(known) &&
               (strlen(qn_dtype_name(known[i])) != length || strncmp(qn_dtype_name(known[i]), word, length) != 0))
            i++;
        if (i == QN_COUNT(known) || *count == MOST_LISTED)
            return qn_fail(QUERN_BAD_VALUE, "--in: '%.*s' is not f32, f16 or bf16", (int)length, word);
        list[(*count)++] = known[i];
        word = command_next_place(word, length);
    }
    return *count ? QUERN_OK : qn_fail(QUERN_BAD_VALUE, "--in: a list of types is needed");
}

static quern_status check_file(const bench_data *data, const topk_cases *cases)
{
    for (size_t i = 0; i < cases->count; i++)
        if (cases->item[i].V != data->real.shape.extent[1] || cases->item[i].in != data->real.dtype)
            return qn_fail(QUERN_BAD_VALUE, "--data: the file has V = %lld and %s, which --V and --in must name",
                           (long long)data->real.shape.extent[1], qn_dtype_name(data->real.dtype));
    return QUERN_OK;
}

quern_status topk_cases_listed(const topk_lists *lists, const bench_data *data, topk_cases *cases)
{
    int64_t rows[MOST_LISTED], V[MOST_LISTED], K[MOST_LISTED], in[MOST_LISTED];
    size_t row_count, V_count, K_count, in_count;
    bool real = data->kind == BENCH_REAL;
    QN_TRY(parse_list("rows", lists->rows, 4096, rows, &row_count));
    QN_TRY(parse_list("V", lists->V, real ? data->real.shape.extent[1] : 128256, V, &V_count));
    QN_TRY(parse_list("K", lists->K, 256, K, &K_count));
    QN_TRY(parse_types(lists->in, real ? data->real.dtype : QUERN_BF16, in, &in_count));
    if (row_count * V_count * K_count * in_count > TOPK_MOST_CASES)
        return qn_fail(QUERN_BAD_VALUE, "more than %d cases are asked for", TOPK_MOST_CASES);
    cases->count = 0;
    for (size_t d = 0; d < in_count; d++)
        for (size_t v = 0; v < V_count; v++)
            for (size_t r = 0; r < row_count; r++)
                for (size_t k = 0; k < K_count; k++)
                    cases->item[cases->count++] = (topk_case){
                        "asked", lists->data, lists->with ? lists->with : "", rows[r], V[v], K[k], (quern_dtype)in[d],
                        true};
    return real ? check_file(data, cases) : QUERN_OK;
}

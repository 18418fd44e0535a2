// SPDX-License-Identifier: Apache-2.0
// See instructions.h.
#include "support/instructions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/path.h"
#include "codegen/source.h"
#include "support/again.h"

const char *const instruction_files[] = {"mma",     "matrix",     "copy",         "tma", "wgmma",
                                         "numbers", "public_mma", "public_wgmma", NULL};

// ---- reading

typedef struct reader {
    const char *name;
    char *at; // rest of the text
    int line;
} reader;

#define BAD(r, ...)                                                                                                    \
    do {                                                                                                               \
        print_error("%s.vec, line %d: ", (r)->name, (r)->line);                                                        \
        fail_msg(__VA_ARGS__);                                                                                         \
    } while (0)

// The next line that is no comment, ended by a 0; NULL at the end. Peeking leaves it to be read again.
static char *next_line(reader *r)
{
    for (;;) {
        if (!*r->at) return NULL;
        char *line = r->at, *end = strchr(line, '\n');
        r->line++;
        r->at = end ? end + 1 : line + strlen(line);
        if (end) *end = 0;
        if (*line && *line != '#') return line;
    }
}

// One item: WORD, N*WORD, "-" or N*- (anything).
static void put_item(reader *r, const char *item, instruction_words *words, size_t *filled)
{
    size_t repeat = 1;
    char *star = strchr(item, '*'), *end;
    if (star) {
        repeat = strtoul(item, &end, 10);
        if (end != star) BAD(r, "'%s' is no item", item);
        item = star + 1;
    }
    bool any = !strcmp(item, "-");
    uint32_t word = any ? 0 : (uint32_t)strtoul(item, &end, 16);
    if (!any && *end) BAD(r, "'%s' is no word", item);
    if (*filled + repeat > words->count) BAD(r, "more than %zu words", words->count);
    for (; repeat; repeat--, ++*filled) words->word[*filled] = word, words->any[*filled] = any;
}

static void read_words(reader *r, size_t count, instruction_words *words)
{
    size_t filled = 0;
    words->count = count;
    words->word = calloc(count + 1, sizeof *words->word);
    words->any = calloc(count + 1, sizeof *words->any);
    assert_non_null(words->word);
    assert_non_null(words->any);
    while (filled < count) {
        char *line = next_line(r), *save = NULL;
        if (!line) BAD(r, "%zu words of %zu", filled, count);
        for (char *item = strtok_r(line, " ", &save); item; item = strtok_r(NULL, " ", &save))
            put_item(r, item, words, &filled);
    }
}

// "/ a b c": the next `count` numbers after a slash.
static void read_numbers(reader *r, char **save, size_t count, uint64_t *numbers)
{
    const char *slash = strtok_r(NULL, " ", save);
    if (!slash || strcmp(slash, "/") != 0) BAD(r, "a map's lists are separated by '/'");
    for (size_t i = 0; i < count; i++) {
        const char *item = strtok_r(NULL, " ", save);
        if (!item) BAD(r, "a map's list is too short");
        numbers[i] = strtoull(item, NULL, 10);
    }
}

static void read_map(reader *r, char *line, instruction_map *map)
{
    char target[8], *save = NULL;
    uint64_t box[5] = {0}, steps[5] = {0};
    if (sscanf(line, "map %u %u %u %u %7s %zu", &map->type, &map->rank, &map->swizzle, &map->fill, target,
               &map->offset) != 6 ||
        map->rank < 1 || map->rank > 5)
        BAD(r, "'%s' is no map", line);
    map->present = true;
    map->of_output = !strcmp(target, "out");
    for (int i = 0; i < 7; i++) strtok_r(i ? NULL : line, " ", &save);
    read_numbers(r, &save, map->rank, map->dims);
    read_numbers(r, &save, map->rank - 1, map->strides);
    read_numbers(r, &save, map->rank, box);
    read_numbers(r, &save, map->rank, steps);
    for (unsigned i = 0; i < map->rank; i++) map->box[i] = (uint32_t)box[i], map->steps[i] = (uint32_t)steps[i];
}

static instruction_case *new_case(reader *r, const char *line, instruction_file *file)
{
    file->cases = realloc(file->cases, (file->count + 1) * sizeof *file->cases);
    assert_non_null(file->cases);
    instruction_case *c = &file->cases[file->count++];
    memset(c, 0, sizeof *c);
    if (sscanf(line, "case %95s which %u ctas %u", c->name, &c->which, &c->ctas) != 3) BAD(r, "'%s' is no case", line);
    return c;
}

static void read_cases(reader *r, instruction_file *file)
{
    instruction_case *c = NULL;
    size_t count;
    int from, until;
    for (char *line = next_line(r); line; line = next_line(r)) {
        if (!strncmp(line, "case ", 5)) {
            c = new_case(r, line, file);
        } else if (!c) {
            BAD(r, "'%.40s' before the first case", line);
        } else if (!strncmp(line, "map ", 4)) {
            read_map(r, line, &c->map);
        } else if (sscanf(line, "in %zu", &count) == 1) {
            read_words(r, count, &c->in);
        } else if (sscanf(line, "out %d %d %zu", &from, &until, &count) == 3 && c->out_count < QN_COUNT(c->out)) {
            c->out[c->out_count].from = from, c->out[c->out_count].until = until;
            read_words(r, count, &c->out[c->out_count++].words);
        } else {
            BAD(r, "'%.40s' is no line of a .vec file", line);
        }
    }
}

void instruction_file_read(const char *name, instruction_file *file)
{
    char path[512];
    qn_text text = QN_TEXT_INIT;
    memset(file, 0, sizeof *file);
    snprintf(file->name, sizeof file->name, "%s", name);
    snprintf(path, sizeof path, "%s/tests/simt/instructions/%s.vec", test_source(), name);
    if (qn_file_read(path, &text) != QUERN_OK) fail_msg("%s", quern_message());
    reader r = {name, text.bytes, 0};
    const char *line = next_line(&r);
    if (!line || sscanf(line, "kernel %31s threads %d shared %d", file->kernel, &file->threads, &file->shared) != 3)
        BAD(&r, "the first line must name the kernel");
    read_cases(&r, file);
    if (!file->count) BAD(&r, "no case");
    qn_text_fini(&text);
}

static void forget_words(instruction_words *words)
{
    free(words->word);
    free(words->any);
}

void instruction_file_fini(instruction_file *file)
{
    for (size_t i = 0; i < file->count; i++) {
        forget_words(&file->cases[i].in);
        for (size_t k = 0; k < file->cases[i].out_count; k++) forget_words(&file->cases[i].out[k].words);
    }
    free(file->cases);
    memset(file, 0, sizeof *file);
}

// ---- using

const instruction_words *instruction_expected(const instruction_case *c, int cc)
{
    for (size_t i = 0; i < c->out_count; i++)
        if (cc >= c->out[i].from && cc < c->out[i].until) return &c->out[i].words;
    return NULL;
}

bool instruction_file_fits(const instruction_file *file, const qn_arch *arch)
{
    if (!strcmp(file->kernel, "wgmma.cu")) return arch->cc == 90 && arch->suffix == 'a';
    if (!strcmp(file->kernel, "tma.cu")) return arch->cc >= 90;
    return true;
}

static void full_name(const instruction_file *file, const instruction_case *c, char name[160])
{
    snprintf(name, 160, "%s/%s", file->name, c->name);
}

bool instruction_wanted(const instruction_file *file, const instruction_case *c)
{
    const char *part = getenv("QUERN_TEST_CASE");
    char name[160];
    full_name(file, c, name);
    return !part || strstr(name, part);
}

void instruction_complain(const instruction_file *file, const instruction_case *c, const char *arch, const char *text)
{
    char name[160];
    qn_text line = QN_TEXT_INIT;
    full_name(file, c, name);
    test_again(name, &line);
    fprintf(stderr, "%s on %s: %s\n%s", name, arch, text, qn_text_string(&line)); // whole: cmocka's messages are cut
    qn_text_fini(&line);
}

quern_status instruction_source(const instruction_file *file, const qn_arch *arch, qn_text *source)
{
    char path[96];
    snprintf(path, sizeof path, "tests/simt/instructions/%s", file->kernel);
    qn_kernel_plan plan = {.template_path = path,
                           .entry = "instruction_test",
                           .threads = file->threads,
                           .min_ctas = 1,
                           .cluster = 1,
                           .dynamic_shared = file->shared,
                           .params_bytes = sizeof(instruction_params)};
    return qn_source_write(&plan, arch->cc, arch->suffix, test_source(), true, source); // its own files' lines
}

const char *instruction_difference(const instruction_words *expected, const uint32_t *got, char text[200])
{
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < expected->count; i++)
        if (!expected->any[i] && expected->word[i] != got[i] && !wrong++) first = i;
    text[0] = 0;
    if (wrong)
        snprintf(text, 200, "%zu of %zu words are wrong; word %zu is %08x, not %08x", wrong, expected->count, first,
                 got[first], expected->word[first]);
    return text;
}

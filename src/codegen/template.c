// SPDX-License-Identifier: Apache-2.0
// Templates, embedded or from a folder, and their includes. Called by source.c.
//   (1) #include "x" means x beside the including file, else x below the root; the text takes its place, once a file.
//   (2) Nothing outside the root is read, whatever a path says; #include <x> is refused, for NVRTC is given no headers.
//   (3) The text depends on the files alone: not on where they are, nor on the working directory.
#include "codegen/template.h"

#include <string.h>

#include "base/path.h"

enum { MAX_PATH = 128, MAX_FILES = 64, MAX_DEPTH = 16 };

typedef struct expansion {
    const char *dir; // NULL: embedded
    bool line_info;
    qn_text *text;
    char done[MAX_FILES][MAX_PATH]; // each file that was put
    size_t done_count;
    const char *open[MAX_DEPTH]; // files being put now, outermost first
    size_t depth;
} expansion;

static quern_status bad(const expansion *e, const char *what, const char *path)
{
    const char *in = e->depth ? e->open[e->depth - 1] : NULL;
    return qn_fail(QUERN_BAD_TEMPLATE, "template '%s'%s%s%s: %s%s", path, in ? ", included by '" : "", in ? in : "",
                   in ? "'" : "", what, e->dir ? " (templates come from QUERN_TEMPLATES or template_dir)" : "");
}

// ---- paths

// folder/name with "." and ".." worked out; false if it leaves the root, or is no path of ours.
static bool join(const char *folder, size_t folder_length, const char *name, size_t name_length, char path[MAX_PATH])
{
    char joined[2 * MAX_PATH];
    size_t length = 0;

    if (folder_length + name_length + 2 > sizeof joined || !name_length || name[0] == '/') return false;
    memcpy(joined, folder, folder_length);
    joined[folder_length] = '/';
    memcpy(joined + folder_length + 1, name, name_length);
    joined[folder_length + 1 + name_length] = 0;
    for (const char *part = joined; *part;) {
        size_t bytes = strcspn(part, "/");
        if (bytes == 2 && part[0] == '.' && part[1] == '.') {
            if (!length) return false;
            while (length > 0 && path[length - 1] != '/') length--;
            if (length > 0) length--;
        } else if (bytes > 0 && !(bytes == 1 && part[0] == '.')) {
            if (length + bytes + 2 > MAX_PATH) return false;
            if (length) path[length++] = '/';
            memcpy(path + length, part, bytes);
            length += bytes;
        }
        part += bytes + (part[bytes] == '/');
    }
    path[length] = 0;
    return length > 0;
}

static const qn_template *find_embedded(const char *path)
{
    size_t low = 0, high = qn_template_count; // they are in the order of their paths
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(path, qn_templates[middle].path);
        if (order == 0) return &qn_templates[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static bool is_done(const expansion *e, const char *path)
{
    for (size_t i = 0; i < e->done_count; i++) {
        if (!strcmp(e->done[i], path)) return true;
    }
    return false;
}

static bool exists(const expansion *e, const char *path)
{
    if (is_done(e, path)) return true;
    if (!e->dir) return find_embedded(path) != NULL;
    qn_text full = QN_TEXT_INIT;
    qn_text_putf(&full, "%s/%s", e->dir, path);
    bool found = !full.failed && qn_file_exists(full.bytes);
    qn_text_fini(&full);
    return found;
}

// A file's bytes: an embedded one's as they lie, another's in *content.
typedef struct span {
    const char *bytes;
    size_t length;
} span;

static quern_status read_template(const expansion *e, const char *path, qn_text *content, span *file)
{
    if (!e->dir) {
        const qn_template *found = find_embedded(path);
        if (!found) return bad(e, "there is no such file", path);
        *file = (span){(const char *)found->bytes, found->length};
        return QUERN_OK;
    }
    qn_text full = QN_TEXT_INIT;
    qn_text_putf(&full, "%s/%s", e->dir, path);
    quern_status status = qn_text_check(&full);
    if (status == QUERN_OK && qn_file_read(full.bytes, content) != QUERN_OK) status = bad(e, quern_message(), path);
    qn_text_fini(&full);
    *file = (span){qn_text_string(content), content->length};
    return status;
}

// ---- directives

typedef enum directive { ORDINARY, INCLUDE, PRAGMA_ONCE } directive;

static size_t skip_blanks(const char *line, size_t length, size_t at)
{
    while (at < length && (line[at] == ' ' || line[at] == '\t' || line[at] == '\r')) at++;
    return at;
}

static bool word_is(const char *line, size_t length, size_t *at, const char *word)
{
    size_t bytes = strlen(word);
    if (length - *at < bytes || memcmp(line + *at, word, bytes)) return false;
    *at += bytes;
    return true;
}

// What a line is; for an include *rest is where the name's quote is looked for.
static directive classify(const char *line, size_t length, size_t *rest)
{
    size_t at = skip_blanks(line, length, 0);

    if (at == length || line[at] != '#') return ORDINARY;
    at = skip_blanks(line, length, at + 1);
    if (word_is(line, length, &at, "include")) {
        *rest = skip_blanks(line, length, at);
        return INCLUDE;
    }
    if (!word_is(line, length, &at, "pragma")) return ORDINARY;
    at = skip_blanks(line, length, at);
    if (!word_is(line, length, &at, "once")) return ORDINARY;
    return skip_blanks(line, length, at) == length ? PRAGMA_ONCE : ORDINARY;
}

static quern_status put_file(expansion *e, const char *path);

// A line "#include …": resolves the name and puts the file.
static quern_status put_include(expansion *e, const char *line, size_t length, size_t at)
{
    const char *in = e->open[e->depth - 1];
    const char *slash = strrchr(in, '/');
    char shown[MAX_PATH], path[MAX_PATH];

    // The name as written, for messages.
    size_t bytes = length - at < sizeof shown - 1 ? length - at : sizeof shown - 1;
    memcpy(shown, line + at, bytes);
    shown[bytes] = 0;
    const char *close = at < length && line[at] == '"' ? memchr(line + at + 1, '"', length - at - 1) : NULL;
    if (!close)
        return bad(e, "only #include \"file\" is known: a kernel's text must be complete without any headers", shown);
    const char *name = line + at + 1;
    size_t name_length = (size_t)(close - name);
    bool found = join(in, slash ? (size_t)(slash - in) : 0, name, name_length, path) && exists(e, path);
    if (!found) found = join("", 0, name, name_length, path) && exists(e, path);
    if (!found) return bad(e, "there is no such file beside the including one or below the templates' root", shown);
    return put_file(e, path);
}

static void put_line_directive(const expansion *e, size_t line, const char *path)
{
    if (e->line_info) qn_text_putf(e->text, "#line %zu \"/quern/%s\"\n", line, path);
}

static size_t lines_in(const char *at, const char *end)
{
    size_t count = 0;
    while ((at = memchr(at, '\n', (size_t)(end - at)))) count++, at++;
    return count;
}

// Where the next line begins whose first letter is '#'; `end` when there is none. at begins a line.
static const char *next_directive(const char *at, const char *end)
{
    for (const char *mark = at; (mark = memchr(mark, '#', (size_t)(end - mark))); mark++) {
        const char *start = mark;
        while (start > at && (start[-1] == ' ' || start[-1] == '\t' || start[-1] == '\r')) start--;
        if (start == at || start[-1] == '\n') return start;
    }
    return end;
}

// Everything up to the next directive is put at once.
static quern_status put_lines(expansion *e, const char *path, span file)
{
    const char *at = file.bytes, *end = at + file.length;
    size_t line = 1;

    put_line_directive(e, 1, path);
    while (at < end) {
        const char *before = at;
        at = next_directive(at, end);
        qn_text_put(e->text, before, (size_t)(at - before));
        if (e->line_info) line += lines_in(before, at);
        if (at == end) break;
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at), rest = 0;
        switch (classify(at, length, &rest)) {
        case INCLUDE:
            QN_TRY(put_include(e, at, length, rest));
            put_line_directive(e, line + 1, path);
            break;
        case PRAGMA_ONCE: // each file is put once anyway, and the compiler would see it in the main file
            qn_text_put(e->text, "\n", 1);
            break;
        case ORDINARY:
            qn_text_put(e->text, at, length);
            qn_text_put(e->text, "\n", 1);
            break;
        }
        line++;
        at += length + (newline != NULL);
    }
    if (file.length && e->text->length && !e->text->failed && e->text->bytes[e->text->length - 1] != '\n')
        qn_text_put(e->text, "\n", 1); // the last line had no end
    return QUERN_OK;
}

static quern_status put_file(expansion *e, const char *path)
{
    qn_text content = QN_TEXT_INIT;
    span file;

    for (size_t i = 0; i < e->depth; i++) {
        if (!strcmp(e->open[i], path)) return bad(e, "the includes go round in a circle", path);
    }
    if (is_done(e, path)) return QUERN_OK;
    if (e->done_count == MAX_FILES || e->depth == MAX_DEPTH)
        return bad(e, "too many files, or includes too deep", path);
    QN_TRY(read_template(e, path, &content, &file));
    strcpy(e->done[e->done_count], path); // every path comes from join, which bounds it
    e->open[e->depth++] = e->done[e->done_count++];
    bool has_zero = file.length && memchr(file.bytes, 0, file.length);
    quern_status status = has_zero ? bad(e, "it holds a zero byte", path) : put_lines(e, path, file);
    e->depth--;
    qn_text_fini(&content);
    return status;
}

quern_status qn_template_expand(const char *path, const char *template_dir, bool line_info, qn_text *text)
{
    expansion e = {.dir = template_dir, .line_info = line_info, .text = text};
    char clean[MAX_PATH];

    if (!join("", 0, path, strlen(path), clean)) return bad(&e, "it is no path below the templates' root", path);
    QN_TRY(put_file(&e, clean));
    return qn_text_check(text);
}

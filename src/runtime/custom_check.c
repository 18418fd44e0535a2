// SPDX-License-Identifier: Apache-2.0
// What a caller's source may be (quern.h, section 13). Called by custom.c before anything else is done.
//   (1) Without a digest, nothing from outside the structure reaches the compiler: includes are resolved from the headers
//       given, every option is one of those known to read and write nothing, and no text or option asks for the time.
//   (2) The messages name the member, the line or item, and the way out.
#include <stdio.h>
#include <string.h>

#include "runtime/custom_text.h"
#include "runtime/private.h"

enum { MAX_THREADS = 1024, MAX_CLUSTER = 16, MAX_PARAMETERS = 4096 };

// ---- directives

typedef struct scan {
    const quern_source *source;
    const char *what; // "source", "headers[3]"
    int line;
    int standard; // the year of C++ that the texts are read by
    bool line_info;
} scan;

static bool is_digit(char ch)
{
    return ch >= '0' && ch <= '9';
}

static const char *blanks(const char *at)
{
    return at + strspn(at, " \t\r\v\f");
}

static bool is_word(const char **at, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(*at, word, length) != 0 || qn_is_word_char((*at)[length])) return false;
    *at += length;
    return true;
}

static quern_status refuse(const scan *s, const char *line, const char *why)
{
    return qn_fail(QUERN_BAD_ARGUMENT, "source.%s, line %d: \"%.*s\": %s", s->what, s->line, (int)strcspn(line, "\r\n"),
                   line, why);
}

// "name" or <name>, one of the headers.
static quern_status check_include(const scan *s, const char *line, const char *operand)
{
    const char *end = *operand == '"' ? strchr(operand + 1, '"') : *operand == '<' ? strchr(operand + 1, '>') : NULL;
    if (!end) return refuse(s, line, "what it includes cannot be told, so it cannot be in the key: give source.digest");
    size_t length = (size_t)(end - operand) - 1;
    for (size_t i = 0; i < s->source->header_count; i++) {
        const char *name = s->source->headers[i].name;
        if (strlen(name) == length && !strncmp(name, operand + 1, length)) return QUERN_OK;
    }
    return refuse(s, line,
                  "no header of this name is given: put it into source.headers, or name its folder in the options and "
                  "give source.digest");
}

// Line information makes a relative name absolute with the working directory, which no key has.
static quern_status check_line_name(const scan *s, const char *line, const char *operand)
{
    const char *name = s->line_info ? strchr(operand, '"') : NULL;
    if (!name || name[1] == '/') return QUERN_OK;
    return refuse(s, line, "with line information the name must be absolute");
}

// A word that is another one at another time or on another machine, or NULL. One that ## makes is not seen.
static const char *outside_word(const char *text)
{
    static const char *const words[] = {"__has_include", "__has_include_next", "__has_embed",
                                        "__DATE__",      "__TIME__",           "__TIMESTAMP__"};
    for (size_t i = 0; i < QN_COUNT(words); i++)
        for (const char *at = text; (at = strstr(at, words[i])); at++)
            if ((at == text || !qn_is_word_char(at[-1])) && !qn_is_word_char(at[strlen(words[i])])) return words[i];
    return NULL;
}

static quern_status check_line(const scan *s, const char *line)
{
    const char *at = blanks(line);
    if (outside_word(line)) return refuse(s, line, "what it stands for is not in the key: give source.digest");
    if (*at != '#' && strncmp(at, "%:", 2) != 0) return QUERN_OK;
    at = blanks(at + (*at == '#' ? 1 : 2));
    if (is_word(&at, "include")) return check_include(s, line, blanks(at));
    if (is_word(&at, "include_next") || is_word(&at, "import") || is_word(&at, "embed"))
        return refuse(s, line, "what it reads is not in the key: give source.digest");
    if (is_word(&at, "line") || is_digit(*at)) return check_line_name(s, line, at);
    return QUERN_OK;
}

// The text could be read otherwise from here on.
static quern_status refuse_unclear(scan *s, const char *text, const qn_unclear *unclear)
{
    char why[200];
    const char *line = text;
    s->line = 1;
    for (const char *at = text; at < unclear->at; at++)
        if (*at == '\n') s->line++, line = at + 1;
    snprintf(why, sizeof why, "%s: write it otherwise, or give source.digest", unclear->why);
    return refuse(s, line, why);
}

static quern_status check_text(scan *s, const char *text)
{
    qn_text cleaned = QN_TEXT_INIT;
    qn_unclear unclear;
    qn_source_lines(text, s->standard, &cleaned, &unclear);
    quern_status status = qn_text_check(&cleaned);
    s->line = 1;
    for (char *rest = cleaned.bytes, *line; status == QUERN_OK && rest && (line = strsep(&rest, "\n")); s->line++)
        status = check_line(s, line);
    if (status == QUERN_OK && unclear.why) status = refuse_unclear(s, text, &unclear);
    qn_text_fini(&cleaned);
    return status;
}

// The oldest C++ that an option names; NVRTC's own is C++17. What is none stops the compiler.
static int standard_of(const quern_source *source)
{
    static const struct {
        const char *name;
        int year;
    } old[] = {{"c++98", 3}, {"c++03", 3}, {"c++11", 11}, {"c++14", 14}};
    int standard = 17;
    for (size_t i = 0; i < source->option_count; i++) {
        const char *name = source->options[i] + strspn(source->options[i], "-");
        if (strncmp(name, "std=", 4) != 0) continue;
        for (size_t j = 0; j < QN_COUNT(old); j++)
            if (!strcmp(name + 4, old[j].name) && old[j].year < standard) standard = old[j].year;
    }
    return standard;
}

// NVRTC takes this byte for the end of the text (seen: 13.0) and says nothing of what it left out. No UTF-8 has it.
static quern_status check_end(const char *what, const char *text)
{
    const char *end = strchr(text, '\xff');
    int line = 1;
    if (!end) return QUERN_OK;
    for (const char *at = text; at < end; at++) line += *at == '\n';
    return qn_fail(QUERN_BAD_ARGUMENT,
                   "source.%s, line %d: the byte 0xff, at which NVRTC ends a text: write it as UTF-8", what, line);
}

static quern_status check_ends(const quern_source *source)
{
    char what[32];
    QN_TRY(check_end("source", source->source));
    for (size_t i = 0; i < source->header_count; i++) {
        snprintf(what, sizeof what, "headers[%zu]", i);
        QN_TRY(check_end(what, source->headers[i].text));
    }
    return QUERN_OK;
}

static quern_status check_texts(const quern_source *source, bool line_info)
{
    char what[32] = "source";
    scan s = {.source = source, .what = what, .line_info = line_info, .standard = standard_of(source)};
    if (source->digest_bytes) return QUERN_OK; // the caller speaks for what is outside
    QN_TRY(check_text(&s, source->source));
    for (size_t i = 0; i < source->header_count; i++) {
        snprintf(what, sizeof what, "headers[%zu]", i);
        QN_TRY(check_text(&s, source->headers[i].text));
    }
    return QUERN_OK;
}

// ---- options

// NVRTC's options that read and write nothing and leave a cubin for the one architecture. Names without dashes.
static const char *const plain_options[] = {
    "std",
    "fmad",
    "use_fast_math",
    "ftz",
    "prec-sqrt",
    "prec-div",
    "extra-device-vectorization",
    "maxrregcount",
    "minimal",
    "restrict",
    "device-as-default-execution-space",
    "default-device",
    "device-int128",
    "device-float128",
    "optimization-info",
    "opt-info",
    "display-error-number",
    "no-display-error-number",
    "err-no",
    "no-err-no",
    "diag-error",
    "diag-suppress",
    "diag-warn",
    "brief-diagnostics",
    "brief-diag",
    "disable-warnings",
    "w",
    "modify-stack-limit",
    "builtin-move-forward",
    "builtin-initializer-list",
    "split-compile",
    "no-source-include",
    "no-cache",
    "jump-table-density",
    "device-stack-protector",
    "frandom-seed",
    "dopt",
    "Ofast-compile",
    "define-macro",
    "undefine-macro",
    "generate-line-info",
    "lineinfo",
    "device-syntax-only",
};

// ptxas' that do no more, as they stand after --ptxas-options= .
static const char *const plain_ptxas[] = {
    "-v",
    "--verbose",
    "-O0",
    "-O1",
    "-O2",
    "-O3",
    "--opt-level",
    "--register-usage-level",
    "--def-load-cache",
    "-dlcm",
    "--def-store-cache",
    "-dscm",
    "--maxrregcount",
    "-maxrregcount",
    "--warn-on-spills",
    "-warn-spills",
    "--warn-on-local-memory-usage",
    "-warn-lmem-usage",
    "--allow-expensive-optimizations",
    "-allow-expensive-optimizations",
    "--fmad",
    "-fmad",
};

// What Quern decides itself.
static const char *const own_options[] = {
    "gpu-architecture",
    "arch",
    "gpu-code",
    "code",
    "relocatable-device-code",
    "rdc",
    "device-c",
    "dc",
    "dlink-time-opt",
    "dlto",
    "gen-opt-lto",
    "ltoir",
    "optix-ir",
    "ptx",
    "cubin",
};

static bool is_in(const char *name, size_t length, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i]) == length && !strncmp(name, list[i], length)) return true;
    return false;
}

static bool is_plain(const char *option, const char *name, size_t length)
{
    if (outside_word(option)) return false; // -DBUILT=__TIME__
    bool is_ptxas = (length == strlen("ptxas-options") && !strncmp(name, "ptxas-options", length)) ||
                    (length == strlen("Xptxas") && !strncmp(name, "Xptxas", length));
    if (is_ptxas) {
        const char *value = name[length] == '=' ? name + length + 1 : "";
        return is_in(value, strcspn(value, "="), plain_ptxas, QN_COUNT(plain_ptxas)) && !strpbrk(value, ", ");
    }
    if (option[1] != '-' && (name[0] == 'D' || name[0] == 'U') && name[1]) return true; // -DNAME=1
    return is_in(name, length, plain_options, QN_COUNT(plain_options));
}

static quern_status check_option(const quern_source *source, size_t i)
{
    const char *option = source->options[i];
    if (!option || option[0] != '-' || !option[1])
        return qn_fail(QUERN_BAD_ARGUMENT,
                       "source.options[%zu] = \"%s\": an option begins with '-', and its value is in the same item "
                       "(\"-DN=4\")",
                       i, option ? option : "");
    const char *name = option + (option[1] == '-' ? 2 : 1);
    size_t length = strcspn(name, "=");
    if (is_in(name, length, own_options, QN_COUNT(own_options)))
        return qn_fail(QUERN_BAD_ARGUMENT, "source.options[%zu] = \"%s\": Quern chooses architecture and output itself",
                       i, option);
    if (source->digest_bytes || is_plain(option, name, length)) return QUERN_OK;
    return qn_fail(QUERN_BAD_ARGUMENT,
                   "source.options[%zu] = \"%s\": it is not known to depend on nothing outside the source and to write "
                   "nothing: leave it out, or give source.digest of what it depends on",
                   i, option);
}

// ---- the members

static quern_status check_entry(const char *entry)
{
    size_t length = strlen(entry);
    if (length == 0 || length >= QN_MAX_ENTRY)
        return qn_fail(QUERN_BAD_ARGUMENT, "source.entry: %zu characters, 1 … %d are allowed", length,
                       QN_MAX_ENTRY - 1);
    for (size_t i = 0; i < length; i++) {
        if (!qn_is_word_char(entry[i]) || (i == 0 && is_digit(entry[i])))
            return qn_fail(QUERN_BAD_ARGUMENT, "source.entry = \"%s\" is not an identifier", entry);
    }
    return QUERN_OK;
}

static quern_status check_range(const char *name, int64_t value, int64_t min, int64_t max)
{
    if (value >= min && value <= max) return QUERN_OK;
    return qn_fail(QUERN_BAD_ARGUMENT, "source.%s = %lld: %lld … %lld is allowed", name, (long long)value,
                   (long long)min, (long long)max);
}

// A list, its length and its limit.
static quern_status check_list(const char *name, const void *list, size_t count, size_t most)
{
    if (count > most) return qn_fail(QUERN_BAD_ARGUMENT, "source.%s: %zu, at most %zu are allowed", name, count, most);
    if (count && !list) return qn_fail(QUERN_MISSING_ARGUMENT, "source.%s is NULL and its count is %zu", name, count);
    return QUERN_OK;
}

static quern_status check_headers(const quern_source *source)
{
    for (size_t i = 0; i < source->header_count; i++) {
        const quern_header *header = &source->headers[i];
        if (!header->name || !header->text)
            return qn_fail(QUERN_MISSING_ARGUMENT, "source.headers[%zu].%s is NULL", i, header->name ? "text" : "name");
        if (!*header->name || strpbrk(header->name, "\"<>\n"))
            return qn_fail(QUERN_BAD_ARGUMENT, "source.headers[%zu].name = \"%s\" is not the name of an include", i,
                           header->name);
        for (size_t j = 0; j < i; j++)
            if (!strcmp(source->headers[j].name, header->name))
                return qn_fail(QUERN_BAD_ARGUMENT, "source.headers: \"%s\" is given twice", header->name);
    }
    return QUERN_OK;
}

quern_status qn_source_check(const quern_source *source, bool line_info)
{
    if (!source->source || !source->entry)
        return qn_fail(QUERN_MISSING_ARGUMENT, "source.%s is NULL", source->source ? "entry" : "source");
    QN_TRY(check_entry(source->entry));
    QN_TRY(check_range("threads", source->threads, 1, MAX_THREADS));
    QN_TRY(check_range("cluster", source->cluster, 0, MAX_CLUSTER));
    QN_TRY(check_range("dynamic_shared_bytes", source->dynamic_shared_bytes, 0, INT32_MAX));
    QN_TRY(check_range("parameter_bytes", (int64_t)source->parameter_bytes, 0, MAX_PARAMETERS));
    QN_TRY(check_list("options", source->options, source->option_count, QN_MAX_OWN_OPTIONS));
    QN_TRY(check_list("headers", source->headers, source->header_count, QN_MAX_HEADERS));
    QN_TRY(check_list("digest", source->digest, source->digest_bytes, QN_MAX_DIGEST));
    QN_TRY(check_headers(source));
    for (size_t i = 0; i < source->option_count; i++) QN_TRY(check_option(source, i));
    QN_TRY(check_ends(source));
    return check_texts(source, line_info);
}

// SPDX-License-Identifier: Apache-2.0
// The lines of a CUDA text: what begins one decides what the compiler reads from outside (custom_check.c).
//   (1) Every look at the next character is past splices: they may stand inside // and /*, a word, an escape.
//   (2) What compilers or standards read in two ways is not guessed: a raw string taken for an ordinary one, or the other
//       way round, would hide the lines after it.
#include "runtime/custom_text.h"

#include <string.h>

enum { MAX_DELIMITER = 16 };

typedef struct cleaner {
    const char *at; // never at a splice
    qn_text out;
    int owed; // newlines inside the logical line, put after it
    int standard;
    qn_unclear unclear;
} cleaner;

static size_t splice_length(const char *at)
{
    if (at[0] != '\\') return 0;
    return at[1] == '\n' ? 2 : at[1] == '\r' && at[2] == '\n' ? 3 : 0;
}

static void skip_splices(cleaner *c)
{
    for (size_t length; (length = splice_length(c->at)) > 0; c->at += length) c->owed++;
}

static void advance(cleaner *c)
{
    c->at++;
    skip_splices(c);
}

// The character behind this one.
static char next_char(const cleaner *c)
{
    const char *at = c->at + 1;
    for (size_t length; (length = splice_length(at)) > 0;) at += length;
    return *at;
}

static void take(cleaner *c)
{
    qn_text_put(&c->out, c->at, 1);
    advance(c);
}

static void stop(cleaner *c, const char *at, const char *why)
{
    if (!c->unclear.why) c->unclear = (qn_unclear){at, why};
}

bool qn_is_word_char(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') || ch == '_';
}

// What a compiler may take into a name: outside ASCII it does not everywhere.
static bool is_name_char(char ch)
{
    return qn_is_word_char(ch) || ch == '$' || (unsigned char)ch >= 0x80;
}

static bool is_digit(char ch)
{
    return ch >= '0' && ch <= '9';
}

static void take_newline(cleaner *c)
{
    for (c->owed++; c->owed > 0; c->owed--) qn_text_puts(&c->out, "\n");
    advance(c);
}

static void skip_line_comment(cleaner *c)
{
    while (*c->at && *c->at != '\n') advance(c);
}

static void skip_block_comment(cleaner *c)
{
    advance(c), advance(c);
    while (*c->at && !(*c->at == '*' && next_char(c) == '/')) {
        c->owed += *c->at == '\n';
        advance(c);
    }
    if (*c->at) advance(c), advance(c);
    qn_text_puts(&c->out, " ");
}

// A string or character constant, as it is; one without an end goes to the line's.
static void take_quoted(cleaner *c)
{
    char quote = *c->at;
    take(c);
    while (*c->at && *c->at != '\n') {
        bool is_escape = *c->at == '\\', is_end = *c->at == quote;
        take(c);
        if (is_end) return;
        if (is_escape && *c->at && *c->at != '\n') take(c);
    }
}

// R"x( … )x": nothing in it is a directive, and splices in it are text. At the quote.
static void skip_raw_string(cleaner *c)
{
    char end[MAX_DELIMITER + 3];
    const char *open = c->at + 1;
    size_t length = 0;
    while (open[length] > ' ' && open[length] < 0x7f && !strchr("()\\\"", open[length])) length++;
    if (open[length] != '(' || length > MAX_DELIMITER) {
        stop(c, c->at, "what stands before the raw string's parenthesis is no delimiter");
        return;
    }
    end[0] = ')';
    memcpy(end + 1, open, length);
    end[1 + length] = '"', end[2 + length] = 0;
    const char *close = strstr(open + length + 1, end);
    if (!close) {
        stop(c, c->at, "the raw string has no end");
        return;
    }
    for (const char *stands = close + strlen(end) - 1; c->at < stands; c->at++) c->owed += *c->at == '\n';
    qn_text_puts(&c->out, "\"\"");
    advance(c);
}

static bool is_raw_prefix(const char *word, size_t length)
{
    static const char *const prefixes[] = {"R", "LR", "uR", "UR", "u8R"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strlen(prefixes[i]) == length && !memcmp(prefixes[i], word, length)) return true;
    return false;
}

// A word that ends with R before a quote, when it is not plainly one thing or the other.
static bool is_unclear_prefix(const cleaner *c, const char *word, size_t length, bool is_whole)
{
    bool is_ascii = true;
    for (size_t i = 0; i < length; i++) is_ascii = is_ascii && qn_is_word_char(word[i]);
    if (!is_ascii || !is_whole) return true;
    return c->standard < 11 && is_raw_prefix(word, length);
}

static void take_word(cleaner *c)
{
    const char *start = c->at;
    size_t before = c->out.length;
    // of a constant, "…"R from C++11 on, or of a backslash, which may make it a letter's number
    bool is_suffix = before && strchr("\"'\\", c->out.bytes[before - 1]);
    while (is_name_char(*c->at)) take(c);
    if (*c->at != '"' || c->out.length == before) return; // (out of memory: nothing was put)
    const char *word = c->out.bytes + before;
    size_t length = c->out.length - before;
    if (word[length - 1] != 'R') return;
    if (is_unclear_prefix(c, word, length, !is_suffix && (size_t)(c->at - start) == length))
        stop(c, start, "compilers and standards differ on whether this begins a raw string");
    else if (is_raw_prefix(word, length))
        skip_raw_string(c);
}

// A preprocessing number, with all that belongs to it: 1'000, 1.5e+3, 0x1p-2, 1uR.
static void take_number(cleaner *c)
{
    bool is_ascii = true;
    char last = 0;
    for (;;) {
        char ch = *c->at;
        bool is_sign = (ch == '+' || ch == '-') && last && strchr("eEpP", last);
        bool is_separator = ch == '\'' && qn_is_word_char(next_char(c));
        if (ch == '\'' && (!is_separator || c->standard < 14))
            stop(c, c->at, "a quote in a number is a separator from C++14 on, and before a digit");
        if (!is_name_char(ch) && ch != '.' && !is_sign && !is_separator) break;
        is_ascii = is_ascii && (qn_is_word_char(ch) || strchr(".'+-", ch));
        last = ch;
        take(c);
    }
    if (*c->at == '"' && last == 'R' && !is_ascii)
        stop(c, c->at, "compilers differ on whether this begins a raw string");
}

// ??= and its like are other characters before C++17, also in comments and strings.
static void look_for_trigraphs(cleaner *c)
{
    for (const char *at = c->at; c->standard < 17 && (at = strstr(at, "??")); at++) {
        if (!at[2] || !strchr("=/'()!<>-", at[2])) continue;
        c->unclear = (qn_unclear){at, "a trigraph is another character before C++17"};
        return;
    }
}

void qn_source_lines(const char *text, int standard, qn_text *lines, qn_unclear *unclear)
{
    cleaner c = {.at = text, .standard = standard};
    look_for_trigraphs(&c);
    skip_splices(&c);
    while (*c.at && !c.unclear.why) {
        char ch = *c.at, next = ch == '/' || ch == '.' ? next_char(&c) : 0;
        if (ch == '/' && next == '/')
            skip_line_comment(&c);
        else if (ch == '/' && next == '*')
            skip_block_comment(&c);
        else if (ch == '\n')
            take_newline(&c);
        else if (ch == '"' || ch == '\'')
            take_quoted(&c);
        else if (is_digit(ch) || (ch == '.' && is_digit(next)))
            take_number(&c);
        else if (is_name_char(ch))
            take_word(&c);
        else
            take(&c);
    }
    *lines = c.out;
    *unclear = c.unclear;
}

// SPDX-License-Identifier: Apache-2.0
// Reading and writing .npy files (npy.h). A file is: magic, version, header length, a Python dictionary in ASCII
// ({'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }) padded with blanks, then the bytes.
#include "npy.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/family.h"

static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

static const struct npy_type {
    const char *descr;
    quern_dtype dtype;
} types[] = {
    // the first of a dtype is the one that is written
    {"<f4", QUERN_F32}, {"<f2", QUERN_F16}, {"<u2", QUERN_BF16}, {"<V2", QUERN_BF16}, {"|V2", QUERN_BF16},
    {"<i4", QUERN_I32}, {"<i8", QUERN_I64}, {"|u1", QUERN_U8},   {"<u1", QUERN_U8},
};

// ---- shapes

void npy_shape_write(const npy_shape *shape, qn_text *text)
{
    qn_text_puts(text, "[");
    for (size_t i = 0; i < shape->rank; i++) qn_text_putf(text, "%s%lld", i ? ", " : "", (long long)shape->extent[i]);
    qn_text_puts(text, "]");
}

int64_t npy_shape_count(const npy_shape *shape)
{
    int64_t count = 1;
    for (size_t i = 0; i < shape->rank; i++) count *= shape->extent[i];
    return count;
}

static bool shape_fits(const npy_shape *shape, size_t element_bytes)
{
    int64_t bytes = (int64_t)element_bytes;
    for (size_t i = 0; i < shape->rank; i++)
        if (__builtin_mul_overflow(bytes, shape->extent[i], &bytes)) return false;
    return bytes <= PTRDIFF_MAX;
}

// ---- the header's dictionary

typedef struct scanner {
    const char *at, *end;
} scanner;

static bool take(scanner *s, char c)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\t')) s->at++;
    if (s->at == s->end || *s->at != c) return false;
    s->at++;
    return true;
}

static bool take_word(scanner *s, const char *word)
{
    size_t length = strlen(word);
    take(s, ' ');
    if ((size_t)(s->end - s->at) < length || memcmp(s->at, word, length) != 0) return false;
    s->at += length;
    return true;
}

static bool take_string(scanner *s, char *out, size_t bytes)
{
    char quote = take(s, '\'') ? '\'' : take(s, '"') ? '"' : 0;
    const char *close = quote ? memchr(s->at, quote, (size_t)(s->end - s->at)) : NULL;
    if (!close || (size_t)(close - s->at) >= bytes) return false;
    memcpy(out, s->at, (size_t)(close - s->at));
    out[close - s->at] = 0;
    s->at = close + 1;
    return true;
}

static bool take_extent(scanner *s, int64_t *extent)
{
    int64_t value = 0;
    take(s, ' ');
    const char *first = s->at;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *s->at - '0', &value))
            return false;
    *extent = value;
    return s->at > first;
}

static bool take_shape(scanner *s, npy_shape *shape)
{
    if (!take(s, '(')) return false;
    shape->rank = 0;
    while (!take(s, ')')) {
        if (shape->rank == NPY_MAX_RANK || !take_extent(s, &shape->extent[shape->rank++])) return false;
        if (!take(s, ',')) return take(s, ')');
    }
    return true;
}

typedef struct header {
    char descr[16];
    bool fortran;
    npy_shape shape;
} header;

static bool take_entry(scanner *s, const char *key, header *h)
{
    if (strcmp(key, "descr") == 0) return take_string(s, h->descr, sizeof h->descr);
    if (strcmp(key, "shape") == 0) return take_shape(s, &h->shape);
    if (strcmp(key, "fortran_order") != 0) return false;
    h->fortran = take_word(s, "True");
    return h->fortran || take_word(s, "False");
}

// True when the text is exactly the three entries, each once.
static bool parse_dictionary(const char *text, size_t length, header *h)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    scanner s = {text, text + length};
    unsigned seen = 0;
    if (!take(&s, '{')) return false;
    while (!take(&s, '}')) {
        char key[16];
        size_t k = 0;
        if (!take_string(&s, key, sizeof key) || !take(&s, ':')) return false;
        while (k < QN_COUNT(keys) && strcmp(key, keys[k]) != 0) k++;
        if (k == QN_COUNT(keys) || (seen & 1u << k) || !take_entry(&s, key, h)) return false;
        seen |= 1u << k;
        if (!take(&s, ',') && (s.at == s.end || *s.at != '}')) return false;
    }
    take(&s, ' ');
    return seen == 7 && (s.at == s.end || take(&s, '\n') || s.at == s.end);
}

// ---- reading

typedef struct source {
    const char *path;
    int descriptor;
    int64_t size; // of the file
} source;

static quern_status read_exactly(const source *s, void *to, size_t bytes)
{
    for (char *at = to; bytes > 0;) {
        ssize_t got = read(s->descriptor, at, bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return qn_fail(QUERN_FILE_ERROR, "%s: %s", s->path, strerror(errno));
        if (got == 0) return qn_fail(QUERN_BAD_FILE, "%s: the file ends %zu bytes early", s->path, bytes);
        at += got, bytes -= (size_t)got;
    }
    return QUERN_OK;
}

// Reads magic, version and length; then *header_bytes of dictionary begin at *header_at.
static quern_status read_lead(const source *s, size_t *header_at, size_t *header_bytes)
{
    unsigned char lead[12];
    if (s->size < 10) return qn_fail(QUERN_BAD_FILE, "%s: %lld bytes are no .npy file", s->path, (long long)s->size);
    QN_TRY(read_exactly(s, lead, 10));
    if (memcmp(lead, magic, sizeof magic) != 0)
        return qn_fail(QUERN_BAD_FILE, "%s: not a .npy file (it does not begin with \\x93NUMPY)", s->path);
    if (lead[6] < 1 || lead[6] > 3)
        return qn_fail(QUERN_BAD_FILE, "%s: .npy version %d is not known: 1, 2 and 3 are", s->path, lead[6]);
    *header_at = lead[6] == 1 ? 10 : 12;
    *header_bytes = (size_t)lead[8] | (size_t)lead[9] << 8;
    if (lead[6] == 1) return QUERN_OK;
    QN_TRY(read_exactly(s, lead + 10, 2));
    *header_bytes |= (size_t)lead[10] << 16 | (size_t)lead[11] << 24;
    return QUERN_OK;
}

static quern_status read_header(const source *s, header *h, size_t *data_at)
{
    size_t at = 0, bytes = 0;
    QN_TRY(read_lead(s, &at, &bytes));
    if ((int64_t)(at + bytes) > s->size)
        return qn_fail(QUERN_BAD_FILE, "%s: truncated: its header takes %zu bytes, the file has %lld", s->path,
                       at + bytes, (long long)s->size);
    char *text = malloc(bytes + 1);
    if (!text) return qn_fail(QUERN_OUT_OF_MEMORY, "%s: no memory for a header of %zu bytes", s->path, bytes);
    quern_status status = read_exactly(s, text, bytes);
    if (status == QUERN_OK && !parse_dictionary(text, bytes, h))
        status =
            qn_fail(QUERN_BAD_FILE,
                    "%s: its header is not {'descr': '...', 'fortran_order': ..., 'shape': (...)} of one plain type "
                    "and at most %d axes",
                    s->path, NPY_MAX_RANK);
    free(text);
    *data_at = at + bytes;
    return status;
}

static const struct npy_type *find_type(const char *descr)
{
    for (size_t i = 0; i < QN_COUNT(types); i++)
        if (strcmp(types[i].descr, descr) == 0) return &types[i];
    return NULL;
}

// The header against what Quern takes and against the file's length.
static quern_status accept(const source *s, const header *h, size_t data_at, npy_array *array)
{
    const struct npy_type *type = find_type(h->descr);
    if (!type)
        return qn_fail(
            QUERN_BAD_FILE,
            "%s: type '%s' is not supported: '<f4', '<f2', '<u2' or '<V2' (bf16), '<i4', '<i8' and '|u1' are", s->path,
            h->descr);
    if (h->fortran && h->shape.rank > 1)
        return qn_fail(QUERN_BAD_FILE, "%s: it is in Fortran order, C order is needed (numpy.ascontiguousarray)",
                       s->path);
    size_t element = qn_dtype_bytes(type->dtype);
    if (!shape_fits(&h->shape, element)) return qn_fail(QUERN_BAD_FILE, "%s: its shape is larger than memory", s->path);
    *array = (npy_array){type->dtype, type->descr, h->shape, npy_shape_count(&h->shape), 0, NULL};
    array->bytes = (size_t)array->count * element;
    int64_t there = s->size - (int64_t)data_at;
    if (there != (int64_t)array->bytes)
        return qn_fail(QUERN_BAD_FILE, "%s: %s: its header promises %zu bytes of data, the file has %lld", s->path,
                       there < (int64_t)array->bytes ? "truncated" : "too long", array->bytes, (long long)there);
    return QUERN_OK;
}

static quern_status read_open(const source *s, npy_array *array)
{
    header h = {0};
    size_t data_at = 0;
    QN_TRY(read_header(s, &h, &data_at));
    QN_TRY(accept(s, &h, data_at, array));
    array->data = malloc(array->bytes + 1); // never of size 0
    if (!array->data) return qn_fail(QUERN_OUT_OF_MEMORY, "%s: no memory for %zu bytes", s->path, array->bytes);
    quern_status status = read_exactly(s, array->data, array->bytes);
    if (status != QUERN_OK) npy_fini(array);
    return status;
}

quern_status npy_read(const char *path, npy_array *out)
{
    npy_array array = {0};
    struct stat about;
    source s = {path, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), 0}; // a pipe is told, not waited for
    if (s.descriptor < 0) return qn_fail(QUERN_FILE_ERROR, "%s: %s", path, strerror(errno));
    quern_status status = QUERN_OK;
    if (fstat(s.descriptor, &about) != 0)
        status = qn_fail(QUERN_FILE_ERROR, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(about.st_mode))
        status = qn_fail(QUERN_BAD_FILE, "%s: not a regular file", path);
    s.size = status == QUERN_OK ? about.st_size : 0;
    if (status == QUERN_OK) status = read_open(&s, &array);
    close(s.descriptor);
    if (status == QUERN_OK) *out = array;
    return status;
}

void npy_fini(npy_array *array)
{
    free(array->data);
    array->data = NULL;
}

// ---- writing

static const char *descr_of(quern_dtype dtype)
{
    for (size_t i = 0; i < QN_COUNT(types); i++)
        if (types[i].dtype == dtype) return types[i].descr;
    return "";
}

// Version 1.0, padded so that the data begins at a multiple of 64, as numpy does.
static void write_header(quern_dtype dtype, const npy_shape *shape, qn_text *text)
{
    qn_text_put(text, magic, sizeof magic);
    qn_text_put(text, "\1\0\0\0", 4); // the length is put in below
    qn_text_putf(text, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr_of(dtype));
    for (size_t i = 0; i < shape->rank; i++) qn_text_putf(text, "%s%lld", i ? ", " : "", (long long)shape->extent[i]);
    qn_text_puts(text, shape->rank == 1 ? ",), }" : "), }");
    while (text->length % 64 != 63) qn_text_puts(text, " ");
    qn_text_puts(text, "\n");
    if (text->failed) return;
    text->bytes[8] = (char)((text->length - 10) & 0xFF);
    text->bytes[9] = (char)((text->length - 10) >> 8);
}

quern_status npy_write(output_file *file, quern_dtype dtype, const npy_shape *shape, const void *data)
{
    qn_text text = QN_TEXT_INIT;
    write_header(dtype, shape, &text);
    quern_status status = qn_text_check(&text);
    if (status == QUERN_OK) status = output_write(file, text.bytes, text.length);
    qn_text_fini(&text);
    return status == QUERN_OK ? output_write(file, data, (size_t)npy_shape_count(shape) * qn_dtype_bytes(dtype))
                              : status;
}

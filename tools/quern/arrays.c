// SPDX-License-Identifier: Apache-2.0
// Binding .npy files to a family's tensors (arrays.h).
#include "arrays.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/nearest.h"
#include "ops/field.h"
#include "reference/reference.h"

// ---- names and fields

// tensor_count when there is none.
static size_t index_of(const arrays *a, const char *name, size_t length)
{
    size_t i = 0;
    for (; i < a->tensor_count; i++) {
        const char *known = a->tensor[i].tensor->name;
        if (strlen(known) == length && memcmp(known, name, length) == 0) break;
    }
    return i;
}

const bound_tensor *arrays_find(const arrays *a, const char *name, size_t length)
{
    size_t i = index_of(a, name, length);
    for (size_t k = i; k < a->tensor_count; k++)
        if (a->tensor[k].given && strcmp(a->tensor[k].tensor->name, a->tensor[i].tensor->name) == 0) i = k;
    return i < a->tensor_count ? &a->tensor[i] : NULL;
}

// "logits, temperature, …"
static void list_tensors(const arrays *a, qn_text *text)
{
    for (size_t i = 0; i < a->tensor_count; i++) qn_text_putf(text, "%s%s", i ? ", " : "", a->tensor[i].tensor->name);
}

// Whether the spec's text sets this field to 0 itself, against a file that asks for 1.
static bool text_says_zero(const char *text, const char *field)
{
    size_t length = strlen(field);
    for (const char *at = text; (at = strstr(at, field)); at += length) {
        bool starts = at > text && (at[-1] == ' ' || at[-1] == '\t');
        if (starts && at[length] == '=' && at[length + 1] == '0') return true;
    }
    return false;
}

static quern_status unknown_tensor(const arrays *a, const char *name, size_t length)
{
    qn_text names = QN_TEXT_INIT;
    qn_nearest nearest;
    list_tensors(a, &names);
    qn_nearest_init(&nearest, name, length);
    for (size_t i = 0; i < a->tensor_count; i++) qn_nearest_offer(&nearest, a->tensor[i].tensor->name);
    quern_status status = qn_fail(QUERN_UNKNOWN_ARGUMENT, "%s has no tensor '%.*s'%s: it has %s", a->family->name,
                                  (int)length, name, qn_nearest_hint(&nearest), qn_text_string(&names));
    qn_text_fini(&names);
    return status;
}

// Sets the field that asks for a tensor whose file is named. A number (page) cannot be guessed from it.
static quern_status ask_for(arrays *a, const char *spec_text, const qn_tensor *tensor, const char *file)
{
    if (!tensor->flag || qn_spec_number(a->family, &a->spec.base, tensor->flag)) return QUERN_OK;
    const qn_field *field = qn_field_find(a->family->fields, a->family->field_count, tensor->flag);
    if (text_says_zero(spec_text, tensor->flag) || !field)
        return qn_fail(QUERN_CONFLICT, "%s=%s is given, but the spec says %s=0", tensor->name, file, tensor->flag);
    if (field->type != QN_FLAG)
        return qn_fail(QUERN_CONFLICT, "%s=%s is given, but the spec has no %s: add %s=N (%s)", tensor->name, file,
                       tensor->flag, tensor->flag, field->doc);
    return qn_spec_set(a->family, &a->spec.base, tensor->flag, "1");
}

static quern_status bind_word(arrays *a, const char *spec_text, const char *word)
{
    const char *equals = strchr(word, '=');
    if (!equals || equals == word || !equals[1])
        return qn_fail(QUERN_UNKNOWN_ARGUMENT, "'%s' is not name=FILE.npy", word);
    size_t index = index_of(a, word, (size_t)(equals - word));
    if (index == a->tensor_count) return unknown_tensor(a, word, (size_t)(equals - word));
    bound_tensor *t = &a->tensor[index];
    if (t->file) return qn_fail(QUERN_UNKNOWN_ARGUMENT, "%s is given twice", t->tensor->name);
    t->file = equals + 1;
    return ask_for(a, spec_text, t->tensor, t->file);
}

// "indices=A,values=B": outputs that are made, with a file of their own or without.
static quern_status bind_expected(arrays *a, const char *spec_text, const char *words)
{
    for (const char *word = words; *word;) {
        size_t length = strcspn(word, ","), name = strcspn(word, "=,");
        size_t index = index_of(a, word, name);
        if (name == 0 || name + 1 >= length || index == a->tensor_count ||
            a->tensor[index].tensor->direction != QN_OUTPUT)
            return qn_fail(QUERN_UNKNOWN_ARGUMENT, "--expect %.*s: not OUTPUT=FILE.npy of an output of %s", (int)length,
                           word, a->family->name);
        char file[256];
        snprintf(file, sizeof file, "%.*s", (int)(length - name - 1), word + name + 1);
        QN_TRY(ask_for(a, spec_text, a->tensor[index].tensor, file));
        word += length + (word[length] == ',');
    }
    return QUERN_OK;
}

// "page=64": what a spec says that has no such tensor.
static void write_reason(const arrays *a, const qn_tensor *tensor, char *text, size_t bytes)
{
    long long value = tensor->unless ? (long long)qn_spec_number(a->family, &a->spec.base, tensor->unless) : 0;
    if (value)
        snprintf(text, bytes, "a spec with %s=%lld", tensor->unless, value);
    else
        snprintf(text, bytes, "this spec");
}

static const char *name_in_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool folder_of(const char *path, struct stat *info)
{
    size_t length = (size_t)(name_in_folder(path) - path);
    char *folder = length ? strndup(path, length) : strdup(".");
    bool found = folder && !stat(folder, info);
    free(folder);
    return found;
}

// Whether two names lead to one file, however they are spelled; also one that is not there yet.
bool arrays_same_file(const char *a, const char *b)
{
    struct stat x, y;
    if (!strcmp(a, b)) return true;
    bool has_a = !stat(a, &x), has_b = !stat(b, &y);
    if (has_a && has_b) return S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    if (has_a || has_b || strcmp(name_in_folder(a), name_in_folder(b))) return false;
    return folder_of(a, &x) && folder_of(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// Of the entries of one name, the one with the shape that the spec chose gets the file.
static void move_file(arrays *a, bound_tensor *from)
{
    for (size_t i = 0; i < a->tensor_count; i++) {
        bound_tensor *to = &a->tensor[i];
        if (to == from || !to->given || strcmp(to->tensor->name, from->tensor->name) != 0) continue;
        to->file = from->file;
        from->file = NULL;
        return;
    }
}

// One file may be two inputs of one type: cu_q and cu_k.
static bool both_read(const bound_tensor *a, const bound_tensor *b)
{
    return a->tensor->direction == QN_INPUT && b->tensor->direction == QN_INPUT && a->dtype == b->dtype;
}

// Every input that the spec needs has a file, and no output shares one.
static quern_status check_files(const arrays *a)
{
    for (size_t i = 0; i < a->tensor_count; i++) {
        const bound_tensor *t = &a->tensor[i];
        if (!t->given && t->file) {
            char reason[96];
            write_reason(a, t->tensor, reason, sizeof reason);
            return qn_fail(QUERN_CONFLICT, "%s=%s is given, but %s has no %s; 'quern ops %s' says when it has",
                           t->tensor->name, t->file, reason, t->tensor->name, a->family->name);
        }
        if (t->given && !t->file && t->tensor->direction == QN_INPUT)
            return qn_fail(QUERN_UNKNOWN_ARGUMENT, "%s=FILE.npy is needed: %s", t->tensor->name, t->tensor->doc);
        for (size_t k = 0; k < i && t->file; k++)
            if (a->tensor[k].file && !both_read(&a->tensor[k], t) && arrays_same_file(a->tensor[k].file, t->file))
                return qn_fail(QUERN_UNKNOWN_ARGUMENT, "%s and %s are the same file, %s", a->tensor[k].tensor->name,
                               t->tensor->name, t->file);
    }
    return QUERN_OK;
}

// Which tensors the spec has, once it is complete, and which of several of one name a file is for.
static quern_status choose_tensors(arrays *a)
{
    quern_any_spec full;
    QN_TRY(qn_spec_complete(&a->spec.base, &a->family, &full));
    a->spec = full;
    for (size_t i = 0; i < a->tensor_count; i++) {
        bound_tensor *t = &a->tensor[i];
        t->given = qn_tensor_is_given(a->family, &a->spec.base, t->tensor);
        t->dtype = qn_tensor_dtype(a->family, &a->spec.base, t->tensor);
    }
    for (size_t i = 0; i < a->tensor_count; i++)
        if (a->tensor[i].file && !a->tensor[i].given) move_file(a, &a->tensor[i]);
    return check_files(a);
}

quern_status arrays_bind(const char *spec_text, char *const *words, size_t word_count, const char *const *expected,
                         size_t expected_count, arrays *a)
{
    memset(a, 0, sizeof *a);
    QN_TRY(quern_spec_parse(spec_text, &a->spec));
    QN_TRY(qn_family_find(a->spec.base.family, &a->family));
    if (a->family->tensor_count > ARRAYS_MAX_TENSORS || a->family->size_count > ARRAYS_MAX_SIZES)
        return qn_fail(QUERN_INTERNAL, "%s has more tensors or sizes than there is room for", a->family->name);
    a->tensor_count = a->family->tensor_count;
    for (size_t i = 0; i < a->tensor_count; i++) {
        a->tensor[i].tensor = &a->family->tensors[i];
        a->tensor[i].writer.descriptor = -1;
    }
    for (size_t i = 0; i < word_count; i++) QN_TRY(bind_word(a, spec_text, words[i]));
    for (size_t i = 0; i < expected_count; i++) QN_TRY(bind_expected(a, spec_text, expected[i]));
    QN_TRY(choose_tensors(a));
    return quern_spec_format(&a->spec.base, a->spec_text, sizeof a->spec_text);
}

// ---- shapes

static int64_t *size_of(arrays *a, const char *axis, int64_t *plus)
{
    for (size_t i = 0; i < a->family->size_count; i++)
        if (qn_axis_is(axis, a->family->sizes[i].name, plus)) return &a->size[i];
    *plus = 0;
    return NULL;
}

static size_t rank_of(const qn_tensor *tensor)
{
    size_t rank = 0;
    while (tensor->axes[rank]) rank++;
    return rank;
}

// "logits.npy: shape [4, 100], needed [rows, V] with V = 49152"
static quern_status bad_shape(const arrays *a, const bound_tensor *t, const npy_shape *found, const char *axis,
                              int64_t needed)
{
    qn_text text = QN_TEXT_INIT;
    qn_text_putf(&text, "%s: %s has the shape ", t->file, t->tensor->name);
    npy_shape_write(found, &text);
    qn_text_puts(&text, ", needed is [");
    for (size_t i = 0; t->tensor->axes[i]; i++) qn_text_putf(&text, "%s%s", i ? ", " : "", t->tensor->axes[i]);
    qn_text_puts(&text, "]");
    if (axis) qn_text_putf(&text, " with %s = %lld", axis, (long long)needed);
    quern_status status = qn_fail(QUERN_BAD_FILE, "%s (spec '%s')", qn_text_string(&text), a->spec_text);
    qn_text_fini(&text);
    return status;
}

// The first tensor with a size decides it; fields of the spec are decided already.
static quern_status match_axes(arrays *a, const bound_tensor *t, const npy_shape *found)
{
    if (found->rank != rank_of(t->tensor)) return bad_shape(a, t, found, NULL, 0);
    for (size_t i = 0; i < found->rank; i++) {
        const char *axis = t->tensor->axes[i];
        int64_t plus, *size = size_of(a, axis, &plus);
        if (size && *size < 0 && found->extent[i] >= plus) *size = found->extent[i] - plus;
        int64_t needed = size ? *size + plus : qn_spec_number(a->family, &a->spec.base, axis);
        if (found->extent[i] != needed) return bad_shape(a, t, found, axis, needed);
    }
    return QUERN_OK;
}

static quern_status load_input(arrays *a, bound_tensor *t)
{
    npy_array array;
    QN_TRY(npy_read(t->file, &array));
    quern_status status = QUERN_OK;
    if (array.dtype != t->dtype)
        status =
            qn_fail(QUERN_BAD_FILE, "%s: it holds %s ('%s'), but %s is %s in the spec '%s'", t->file,
                    qn_dtype_name(array.dtype), array.descr, t->tensor->name, qn_dtype_name(t->dtype), a->spec_text);
    if (status == QUERN_OK) status = match_axes(a, t, &array.shape);
    if (status != QUERN_OK) {
        npy_fini(&array);
        return status;
    }
    t->shape = array.shape;
    t->bytes = array.bytes;
    t->data = array.data;
    return QUERN_OK;
}

static quern_status make_output(arrays *a, bound_tensor *t)
{
    t->shape.rank = rank_of(t->tensor);
    for (size_t i = 0; i < t->shape.rank; i++) {
        int64_t plus;
        const int64_t *size = size_of(a, t->tensor->axes[i], &plus);
        t->shape.extent[i] = size ? *size : qn_spec_number(a->family, &a->spec.base, t->tensor->axes[i]);
        if (t->shape.extent[i] < 0)
            return qn_fail(QUERN_MISSING_ARGUMENT, "the size %s follows from no input", t->tensor->axes[i]);
    }
    t->bytes = (size_t)npy_shape_count(&t->shape) * qn_dtype_bytes(t->dtype);
    t->data = calloc(1, t->bytes + 1);
    if (!t->data) return qn_fail(QUERN_OUT_OF_MEMORY, "%s: no memory for %zu bytes", t->tensor->name, t->bytes);
    return t->file ? output_open(t->file, OUTPUT_FILE, &t->writer) : QUERN_OK;
}

static quern_status fill_args(arrays *a)
{
    a->args = calloc(1, a->family->args_bytes);
    if (!a->args) return qn_fail(QUERN_OUT_OF_MEMORY, "out of memory");
    char *at = (char *)a->args;
    a->args->size = a->family->args_bytes;
    a->args->family = a->family->name;
    for (size_t i = 0; i < a->family->size_count; i++) {
        int64_t size = a->size[i] < 0 ? 0 : a->size[i]; // of no tensor in this spec
        memcpy(at + a->family->size_args_offset[i], &size, sizeof size);
    }
    for (size_t i = 0; i < a->tensor_count; i++)
        if (a->tensor[i].given) memcpy(at + a->tensor[i].tensor->pointer_offset, &a->tensor[i].data, sizeof(void *));
    return QUERN_OK;
}

quern_status arrays_load(arrays *a)
{
    for (size_t i = 0; i < ARRAYS_MAX_SIZES; i++) a->size[i] = -1;
    for (size_t i = 0; i < a->tensor_count; i++)
        if (a->tensor[i].given && a->tensor[i].tensor->direction == QN_INPUT) QN_TRY(load_input(a, &a->tensor[i]));
    for (size_t i = 0; i < a->tensor_count; i++)
        if (a->tensor[i].given && a->tensor[i].tensor->direction == QN_OUTPUT) QN_TRY(make_output(a, &a->tensor[i]));
    return fill_args(a);
}

// ---- results

quern_status arrays_store(arrays *a)
{
    for (size_t i = 0; i < a->tensor_count; i++) {
        bound_tensor *t = &a->tensor[i];
        if (t->writer.temporary) QN_TRY(npy_write(&t->writer, t->dtype, &t->shape, t->data));
        if (t->writer.temporary) QN_TRY(output_close(&t->writer));
    }
    int moved = 0;
    for (size_t i = 0; i < a->tensor_count; i++) {
        if (!a->tensor[i].writer.temporary) continue;
        quern_status status = output_commit(&a->tensor[i].writer);
        if (status != QUERN_OK && moved)
            return qn_fail_in(status, "%d of the outputs before this one are in their places", moved);
        QN_TRY(status);
        moved++;
    }
    return QUERN_OK;
}

void arrays_fini(arrays *a)
{
    for (size_t i = 0; i < a->tensor_count; i++) {
        output_abort(&a->tensor[i].writer);
        free(a->tensor[i].data);
    }
    free(a->args);
    a->tensor_count = 0;
    a->args = NULL;
}

static bool is_integer(quern_dtype dtype)
{
    return dtype == QUERN_I32 || dtype == QUERN_I64 || dtype == QUERN_U8;
}

static const bound_tensor *first_matrix(const arrays *a, bool integer)
{
    for (size_t i = 0; i < a->tensor_count; i++) {
        const bound_tensor *t = &a->tensor[i];
        if (t->given && t->tensor->direction == QN_OUTPUT && t->shape.rank == 2 && is_integer(t->dtype) == integer)
            return t;
    }
    return NULL;
}

const bound_tensor *arrays_winners(const arrays *a)
{
    return first_matrix(a, true);
}

const bound_tensor *arrays_values(const arrays *a)
{
    return first_matrix(a, false);
}

double arrays_real(quern_dtype dtype, const void *data, size_t index)
{
    switch (dtype) {
    case QUERN_F32:
        return ((const float *)data)[index];
    case QUERN_F16:
        return qn_f16_to_f32(((const uint16_t *)data)[index]);
    case QUERN_BF16:
        return qn_bf16_to_f32(((const uint16_t *)data)[index]);
    default:
        return (double)arrays_int(dtype, data, index);
    }
}

int64_t arrays_int(quern_dtype dtype, const void *data, size_t index)
{
    switch (dtype) {
    case QUERN_I32:
        return ((const int32_t *)data)[index];
    case QUERN_I64:
        return ((const int64_t *)data)[index];
    case QUERN_U8:
        return ((const uint8_t *)data)[index];
    default:
        return 0;
    }
}

// SPDX-License-Identifier: Apache-2.0
// `quern run --expect`: outputs beside expected files (run.h).
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "reference/reference.h"
#include "run.h"

static const table_column columns[] = {
    {"output", "output", TABLE_TEXT, 0},       {"expected", "expected", TABLE_TEXT, 0},
    {"numbers", "numbers", TABLE_INT, 0},      {"differ", "differ", TABLE_INT, 0},
    {"too far", "beyond", TABLE_INT, 0},       {NULL, "largest_absolute", TABLE_REAL, 0},
    {NULL, "largest_relative", TABLE_REAL, 0}, {NULL, "computed_nan", TABLE_INT, 0},
    {NULL, "expected_nan", TABLE_INT, 0},      {"largest difference", NULL, TABLE_TEXT, 0},
};

table *expect_table(void)
{
    return table_create(columns, QN_COUNT(columns));
}

typedef struct difference {
    const bound_tensor *tensor;
    const arrays *arrays;
    const expect_tolerance *tolerance;
    int64_t numbers, differ, beyond; // beyond: differ by more than is allowed
    int64_t got_nan, want_nan;       // NaN against a number, beyond every tolerance
    double absolute, relative;       // the largest of the others
} difference;

bool expect_tolerance_parse(const char *word, expect_tolerance *tolerance)
{
    char relative[64];
    size_t length = strcspn(word, ",");
    *tolerance = (expect_tolerance){.is_given = true};
    if (length >= sizeof relative) return false;
    snprintf(relative, sizeof relative, "%.*s", (int)length, word);
    if (!qn_parse_real(relative, &tolerance->relative)) return false;
    if (word[length] && !qn_parse_real(word + length + 1, &tolerance->absolute)) return false;
    return tolerance->relative >= 0 && tolerance->absolute >= 0 && isfinite(tolerance->relative) &&
           isfinite(tolerance->absolute);
}

static double allowed(const difference *d, double want)
{
    const arrays *a = d->arrays;
    if (d->tolerance->is_given) return d->tolerance->absolute + d->tolerance->relative * fabs(want);
    double (*of)(const quern_spec *, const qn_tensor *, double) = a->family->tolerance;
    return (of ? of : qn_tolerance_default)(&a->spec.base, d->tensor->tensor, want);
}

static bool is_real(quern_dtype dtype)
{
    return dtype == QUERN_F32 || dtype == QUERN_F16 || dtype == QUERN_BF16;
}

static void add_pair(difference *d, double got, double want)
{
    d->numbers++;
    if (got == want || (isnan(got) && isnan(want))) return;
    d->differ++;
    if (isnan(got) || isnan(want)) {
        d->got_nan += isnan(got), d->want_nan += isnan(want), d->beyond++;
        return;
    }
    double absolute = fabs(got - want);
    d->beyond += !(absolute <= (isfinite(want) ? allowed(d, want) : 0));
    double relative = want != 0 ? absolute / fabs(want) : INFINITY;
    d->absolute = fmax(d->absolute, absolute);
    d->relative = fmax(d->relative, relative);
}

static void compare_rows(const bound_tensor *t, const npy_array *want, difference *d)
{
    int64_t width = t->shape.rank ? t->shape.extent[t->shape.rank - 1] : 1;
    int64_t want_width = want->shape.rank ? want->shape.extent[want->shape.rank - 1] : 1;
    int64_t rows = width > 0 ? npy_shape_count(&t->shape) / width : 0;
    bool real = is_real(t->dtype);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < width; c++) {
            size_t i = (size_t)(r * width + c), j = (size_t)(r * want_width + c);
            if (real) {
                add_pair(d, arrays_real(t->dtype, t->data, i), arrays_real(want->dtype, want->data, j));
            } else {
                bool differs = arrays_int(t->dtype, t->data, i) != arrays_int(want->dtype, want->data, j);
                d->numbers++, d->differ += differs, d->beyond += differs;
            }
        }
    }
}

// Same rank, same outer extents, last axis at least as long, integers against integers.
static quern_status check_match(const bound_tensor *t, const char *file, const npy_array *want)
{
    bool fits = want->shape.rank == t->shape.rank && is_real(want->dtype) == is_real(t->dtype);
    for (size_t i = 0; fits && i < t->shape.rank; i++) {
        bool last = i + 1 == t->shape.rank && i > 0;
        fits = last ? want->shape.extent[i] >= t->shape.extent[i] : want->shape.extent[i] == t->shape.extent[i];
    }
    if (fits) return QUERN_OK;
    qn_text text = QN_TEXT_INIT;
    npy_shape_write(&want->shape, &text);
    qn_text_putf(&text, " of '%s', %s is ", want->descr, t->tensor->name);
    npy_shape_write(&t->shape, &text);
    quern_status status = qn_fail(QUERN_BAD_FILE, "%s: cannot be compared: it is %s", file, qn_text_string(&text));
    qn_text_fini(&text);
    return status;
}

// "0.25 (relative 2), 3 computed are NaN"
static void write_largest(const difference *d, char *out, size_t bytes)
{
    const struct {
        int64_t count;
        const char *whose;
    } nans[] = {{d->got_nan, "computed"}, {d->want_nan, "expected"}};
    size_t used = 0;
    if (d->absolute > 0) used = (size_t)snprintf(out, bytes, "%.2g (relative %.2g)", d->absolute, d->relative);
    for (size_t i = 0; i < QN_COUNT(nans); i++)
        if (nans[i].count)
            used += (size_t)snprintf(out + used, bytes - used, "%s%lld %s %s NaN", used ? ", " : "",
                                     (long long)nans[i].count, nans[i].whose, nans[i].count == 1 ? "is" : "are");
}

static void add_row(table *t, const bound_tensor *tensor, const char *file, const difference *d)
{
    char largest[128] = "none";
    bool real = is_real(tensor->dtype);
    if (real && d->differ) write_largest(d, largest, sizeof largest);
    if (!real && d->differ) snprintf(largest, sizeof largest, "%lld differ", (long long)d->differ);
    table_add(t, tensor->tensor->name, file, d->numbers, d->differ, d->beyond, real ? d->absolute : NAN,
              real ? d->relative : NAN, d->got_nan, d->want_nan, largest);
}

static quern_status compare_one(const arrays *a, const char *word, size_t length, const expect_tolerance *tolerance,
                                table *t, int *beyond)
{
    const char *equals = memchr(word, '=', length);
    const bound_tensor *tensor = equals ? arrays_find(a, word, (size_t)(equals - word)) : NULL;
    if (!tensor || tensor->tensor->direction != QN_OUTPUT || !tensor->given)
        return qn_fail(QUERN_UNKNOWN_ARGUMENT, "--expect %.*s: not OUTPUT=FILE.npy of an output of '%s'", (int)length,
                       word, a->spec_text);
    char file[4096];
    npy_array want;
    difference d = {.tensor = tensor, .arrays = a, .tolerance = tolerance};
    snprintf(file, sizeof file, "%.*s", (int)(word + length - equals - 1), equals + 1);
    QN_TRY(npy_read(file, &want));
    quern_status status = check_match(tensor, file, &want);
    if (status == QUERN_OK) {
        compare_rows(tensor, &want, &d);
        add_row(t, tensor, file, &d);
        *beyond += d.beyond > 0;
        if (d.beyond && !is_real(tensor->dtype) && a->family->integers_note)
            command_note("%s: %s", tensor->tensor->name, a->family->integers_note);
    }
    npy_fini(&want);
    return status;
}

quern_status expect_compare(const arrays *a, const command_strings *expected, const expect_tolerance *tolerance,
                            table *t, int *beyond)
{
    *beyond = 0;
    for (size_t i = 0; i < expected->count; i++) {
        for (const char *word = expected->item[i]; *word;) { // "indices=A,values=B" is two
            size_t length = strcspn(word, ",");
            QN_TRY(compare_one(a, word, length, tolerance, t, beyond));
            word += length + (word[length] == ',');
        }
    }
    return QUERN_OK;
}

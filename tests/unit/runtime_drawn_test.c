// SPDX-License-Identifier: Apache-2.0
// Specs and sizes drawn from seeds, over all that the families take, against what the library promises of every one: a spec
// reads back from its text; it has a plan on each architecture, within its limits; what is warmed for a range of sizes serves
// each launch of the range on a device that may not compile, in the workspace that is asked for the range's largest sizes.
// Nothing is computed. $QUERN_TEST_SEED draws others.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/field.h"
#include "runtime/private.h"
#include "support/compile_check.h"
#include "support/fake_driver.h"
#include "support/hostile_fill.h"
#include "support/runtime_fixture.h"

enum { SPECS = 500, LAUNCHES = 40, MOST_TRIES = 3000 }; // of a family; of a spec; until a spec is valid
static const int devices[] = {80, 86, 89, 90, 100, 103, 120, 121};

typedef struct draws {
    uint64_t seed, count;
} draws;

static int64_t below(draws *d, int64_t count) // 0 … count - 1
{
    return (int64_t)(hostile_mix(d->seed, d->count++) % (uint64_t)count);
}

// 1 … most, about evenly over its logarithm.
static int64_t spread(draws *d, int64_t most)
{
    int bits = 0;
    while (bits < 62 && (int64_t)2 << bits <= most) bits++;
    int64_t high = (int64_t)1 << below(d, bits + 1), value = high + below(d, high);
    return value < most ? value : most;
}

// ---- specs

static int64_t draw_number(draws *d, const qn_field *field)
{
    static const int64_t steps[] = {1, 8, 16, 32, 64};
    if (below(d, 3) == 0 && !field->required) return field->initial;
    if (below(d, 12) == 0) return field->max;
    int64_t value = spread(d, field->max), step = steps[below(d, QN_COUNT(steps))];
    if (value >= step) value = value / step * step;
    return value > field->min ? value : field->min;
}

static void draw_field(draws *d, const qn_field *field, void *spec)
{
    static const double reals[] = {1, 0.125, -2, 2.5, 30, 1e-30, 1e30, -1e-37, 3.4e38};
    int64_t names = 0;
    qn_field_put_default(field, spec);
    while (field->names && field->names[names].name) names++;
    if (field->type == QN_INT) qn_field_put(field, spec, draw_number(d, field));
    if (field->type == QN_FLAG) qn_field_put(field, spec, below(d, 2));
    if (field->type == QN_ENUM) qn_field_put(field, spec, field->names[below(d, names)].value);
    if (field->type == QN_REAL && below(d, 2)) qn_field_put_real(field, spec, reals[below(d, QN_COUNT(reals))]);
}

// A valid spec, complete: fields by chance, until the family's checks take them.
static void draw_spec(draws *d, const qn_family *family, quern_any_spec *spec)
{
    for (int i = 0; i < MOST_TRIES; i++) {
        const qn_family *same;
        quern_any_spec said;
        memset(&said, 0, sizeof said);
        said.base.size = family->spec_bytes, said.base.family = family->name;
        for (size_t f = 0; f < family->field_count; f++) draw_field(d, &family->fields[f], &said);
        if (qn_spec_complete(&said.base, &same, spec) == QUERN_OK) return;
    }
    fail_msg("%s: no valid spec among %d: %s", family->name, MOST_TRIES, quern_message());
}

// ---- sizes

static bool is_named(const qn_field *size, const char *name)
{
    return !strcmp(size->name, name);
}

// What only chooses a plan; 0 is not known, which is more than any.
static bool is_hint(const qn_field *size)
{
    return is_named(size, "Sq") || is_named(size, "Sk") || is_named(size, "max_length");
}

// Whether a tensor that the spec has is so long somewhere.
static bool is_axis(const qn_family *family, const quern_spec *spec, const qn_field *size)
{
    int64_t plus;
    for (size_t t = 0; t < family->tensor_count; t++)
        for (int a = 0; a < QN_MAX_RANK && family->tensors[t].axes[a]; a++)
            if (qn_axis_is(family->tensors[t].axes[a], size->name, &plus) &&
                qn_tensor_is_given(family, spec, &family->tensors[t]))
                return true;
    return false;
}

// The same in all launches of a spec.
static bool is_heads(const qn_field *size)
{
    return is_named(size, "Hq") || is_named(size, "Hkv");
}

static int64_t most_of(const qn_family *family, const qn_field *size)
{
    if (family == &qn_family_router) return 1 << 26; // as many as each E is given
    if (family->size_count == 1) return size->max;
    return is_named(size, "B") ? 300 : is_named(size, "Sq") ? 9000 : 1 << 20;
}

static void draw_sizes(draws *d, const qn_family *family, const quern_spec *spec, qn_any_sizes *sizes)
{
    int64_t Hkv = spread(d, 16), Hq = Hkv * spread(d, 64);
    memset(sizes, 0, sizeof *sizes);
    memcpy(sizes, &family->sizes_bytes, sizeof(size_t));
    for (size_t i = 0; i < family->size_count; i++) {
        const qn_field *size = &family->sizes[i];
        bool is_length = is_axis(family, spec, size), is_known = is_length || (is_hint(size) && below(d, 2));
        if (is_known) qn_field_put(size, sizes, spread(d, most_of(family, size)));
        if (is_heads(size)) qn_field_put(size, sizes, is_named(size, "Hq") ? Hq : Hkv); // in whole groups
    }
}

// Sizes from the least to the most, ends included.
static void draw_between(draws *d, const qn_family *family, const qn_any_sizes *least, const qn_any_sizes *most,
                         qn_any_sizes *sizes)
{
    *sizes = *most;
    for (size_t i = 0; i < family->size_count; i++) {
        const qn_field *size = &family->sizes[i];
        int64_t low = qn_field_get(size, least), high = qn_field_get(size, most), kind = below(d, 4), value = high;
        bool counts = is_hint(size) || is_named(size, "L") || is_named(size, "B"); // there none is another case
        if (counts && low == 0 && high > 0) low = 1;
        if (kind == 1) value = low;
        if (kind == 2) value = low + spread(d, high - low + 1) - 1;
        if (kind == 3) value = high - spread(d, high - low + 1) + 1;
        if (!is_heads(size)) qn_field_put(size, sizes, value);
    }
}

// ---- launches

// Pointers that nobody follows; tensors lie packed, some where 16 bytes can't be loaded at once.
static void fill_args(draws *d, const qn_family *family, const quern_spec *spec, const qn_any_sizes *sizes,
                      unsigned char *args)
{
    memset(args, 0, family->args_bytes);
    *(quern_args *)(void *)args = (quern_args){family->args_bytes, family->name};
    for (size_t i = 0; i < family->size_count; i++) {
        int64_t value = qn_field_get(&family->sizes[i], sizes);
        memcpy(args + family->size_args_offset[i], &value, sizeof value);
    }
    for (size_t t = 0; t < family->tensor_count; t++) {
        const qn_tensor *tensor = &family->tensors[t];
        if (!qn_tensor_is_given(family, spec, tensor)) continue;
        uintptr_t element = qn_dtype_bytes(qn_tensor_dtype(family, spec, tensor));
        uintptr_t pointer = (uintptr_t)(t + 1) << 40 | (below(d, 3) ? 0 : element * (uintptr_t)below(d, 16));
        memcpy(args + tensor->pointer_offset, &pointer, sizeof pointer);
    }
}

static char wrong_launch[256]; // the last that was seen: empty, none

static void look_at(const fake_launch *launch)
{
    const unsigned *grid = launch->grid;
    bool fits = grid[0] >= 1 && grid[0] <= INT32_MAX && grid[1] >= 1 && grid[1] <= 65535 && grid[2] == 1;
    if (fits && grid[0] % launch->cluster == 0) return;
    snprintf(wrong_launch, sizeof wrong_launch, "%s: grid %u × %u × %u, clusters of %u", launch->entry, grid[0],
             grid[1], grid[2], launch->cluster);
}

typedef struct range {
    qn_any_sizes from, to;
    char text[400];
} range;

static void draw_range(draws *d, const qn_family *family, const quern_spec *spec, range *r)
{
    qn_text text = QN_TEXT_INIT;
    draw_sizes(d, family, spec, &r->to);
    memset(&r->from, 0, sizeof r->from);
    memcpy(&r->from, &family->sizes_bytes, sizeof(size_t));
    if (below(d, 2)) draw_between(d, family, &r->from, &r->to, &r->from);
    qn_sizes_write(family, &r->from, &text);
    qn_text_puts(&text, " … ");
    qn_sizes_write(family, &r->to, &text);
    snprintf(r->text, sizeof r->text, "%s", qn_text_string(&text));
    qn_text_fini(&text);
}

// Every launch goes, and needs no more than the workspace of the largest sizes.
static void check_launches(draws *d, const quern_op *op, const char *spec_text, const range *r)
{
    const qn_family *family = op->family;
    size_t bytes = quern_workspace_size(op, &r->to);
    void *workspace = (void *)((uintptr_t)1 << 39);
    for (int i = 0; i < LAUNCHES; i++) {
        _Alignas(16) unsigned char args[1024];
        qn_any_sizes sizes;
        draw_between(d, family, &r->from, &r->to, &sizes);
        fill_args(d, family, &op->spec.base, &sizes, args);
        memcpy(args + family->workspace_offset, &workspace, sizeof workspace);
        memcpy(args + family->workspace_bytes_offset, &bytes, sizeof bytes);
        wrong_launch[0] = 0;
        quern_status status = quern_launch_args(op, (const quern_args *)(const void *)args, NULL);
        if (status == QUERN_OK && !wrong_launch[0]) continue;
        qn_text text = QN_TEXT_INIT;
        qn_sizes_write(family, &sizes, &text);
        fail_msg("'%s' [%s], workspace of %zu bytes, launch of %s: %s", spec_text, r->text, bytes,
                 qn_text_string(&text), wrong_launch[0] ? wrong_launch : quern_message());
    }
}

static void check_warmed(draws *d, const qn_family *family, const quern_spec *spec, const char *text)
{
    runtime_store store = RUNTIME_STORE_INIT;
    quern_store callbacks = runtime_store_callbacks(&store);
    quern_options options = runtime_options("", NULL);
    quern_op *op = NULL;
    const qn_arch *targets[8];
    range r;
    int device = (int)below(d, QN_COUNT(devices));
    bool all = below(d, 3) == 0;
    qn_arch_targets(devices[device], targets);
    draw_range(d, family, spec, &r);
    options.store = &callbacks, options.compile_threads = 1;
    quern *warms = runtime_open(&options);
    options.mode = QUERN_MODE_STRICT;
    quern *serves = runtime_open(&options);
    fake_driver_enter(fake_driver_context(device));
    quern_status status = all ? quern_warm(warms, spec, targets[0]->name, NULL)
                              : quern_warm_sizes(warms, spec, &r.from, &r.to, targets[0]->name, NULL);
    if (status == QUERN_OK)
        status = all ? quern_prepare(serves, spec, device, &op)
                     : quern_prepare_sizes(serves, spec, &r.from, &r.to, device, &op);
    if (status != QUERN_OK)
        fail_msg("'%s' [%s] on %s: %s", text, all ? "all sizes" : r.text, targets[0]->name, quern_message());
    check_launches(d, op, text, &r);
    quern_op_release(op);
    quern_close(serves);
    quern_close(warms);
    runtime_store_fini(&store);
}

// ---- tests

static void check_text(const qn_family *family, const quern_any_spec *spec, char text[512])
{
    uint64_t one[QN_DESCRIPTOR_WORDS], other[QN_DESCRIPTOR_WORDS];
    quern_any_spec again;
    assert_int_equal(quern_spec_format(&spec->base, text, 512), QUERN_OK);
    compile_parse(text, &again);
    size_t words = qn_spec_descriptor(family, &spec->base, one);
    assert_int_equal(qn_spec_descriptor(family, &again.base, other), words);
    if (memcmp(one, other, words * sizeof *one) != 0)
        fail_msg("'%s' is another spec than the one it was written of", text);
}

static void drawn_specs_keep_the_promises(void **state)
{
    const char *seed = getenv("QUERN_TEST_SEED");
    const uint64_t first = seed && *seed ? strtoull(seed, NULL, 0) : 1;
    size_t families, planned = 0;
    const qn_family *const *family = qn_families(&families);
    quern *q = compile_open();
    (void)state;
    for (size_t f = 0; f < families; f++) {
        for (uint64_t i = 0; i < SPECS; i++) {
            draws d = {first * 1000003 + i * 31 + f, 0};
            quern_any_spec spec;
            char text[512];
            draw_spec(&d, family[f], &spec);
            check_text(family[f], &spec, text);
            compile_check_spec(q, &spec.base, &planned);
            check_warmed(&d, family[f], &spec.base, text);
        }
    }
    quern_close(q);
}

static int set_up(void **state)
{
    (void)state;
    runtime_devices_make(devices, QN_COUNT(devices));
    fake_driver.on_launch = look_at;
    fake_driver.param_bytes = 16;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    runtime_devices_remove();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(drawn_specs_keep_the_promises, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

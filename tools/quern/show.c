// SPDX-License-Identifier: Apache-2.0
// `quern show`: what preparing a spec would run on an architecture, without a device: the plan, the source text, the
// key, and (after compiling) the resources of each kernel.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/key.h"
#include "base/nearest.h"
#include "command.h"
#include "runtime/runtime.h"
#include "table.h"
#include "tune.h"

enum { SHOW_MAX_SIZES = 32 };

typedef struct show {
    command_settings settings;
    quern *q;
    const qn_family *family;
    quern_any_spec spec;
    char spec_text[512];
    command_sizes sizes;
    table *table;
    cJSON *kernels; // of source and key with --json
    bool one_size;  // only what serves this bucket
    size_t bucket;  //
    bool several;   // more than one kernel is shown
    bool is_here;   // the architectures are those of the devices present
} show;

// One kernel that is shown.
typedef struct shown {
    const qn_arch *arch;
    const qn_variant *variant;
    const qn_kernel_plan *plan;
    size_t stage;
    char sizes[192]; // and what of their launches the kernel does
} shown;

typedef struct show_kind {
    const char *name;
    quern_status (*each)(show *s, const shown *k); // for every kernel
    const table_column *columns;                   // NULL: it prints by itself
    size_t column_count;
    bool looks; // makes and changes nothing
} show_kind;

static const char text[] =
    "plan       which kernel serves which sizes, with which configuration, and why\n"
    "source     the complete CUDA text of each kernel\n"
    "key        what identifies it in a database\n"
    "resources  registers, memory, size and compile time; compiles what no database has, and keeps it\n"
    "With a size (--rows N) only the kernels that serve it. Without --arch: as prepare chooses on the\n"
    "devices of this machine; with it: as on the architecture's usual part.\n";

// ---- plan

static const table_column plan_columns[] = {
    {"arch", "arch", TABLE_TEXT, 0},
    {"sizes", "sizes", TABLE_TEXT, 0},
    {"configuration", "configuration", TABLE_TEXT, 0},
    {"chosen", "chosen", TABLE_TEXT, 0},
    {"threads", "threads", TABLE_INT, 0},
    {"CTAs/SM", "min_ctas", TABLE_INT, 0},
    {"cluster", "cluster", TABLE_INT, 0},
    {"shared", "dynamic_shared_bytes", TABLE_INT, 0},
    {"kernel", "kernel", TABLE_TEXT, 0},
    {"template", "template", TABLE_TEXT, 0},
    {"takes of an SM", "budget", TABLE_TEXT, 0}, // of families that say it
};

static quern_status each_plan(show *s, const shown *k)
{
    qn_text config = QN_TEXT_INIT;
    qn_text budget = QN_TEXT_INIT;
    qn_config_write(s->family, &k->variant->config, &config);
    if (s->family->budget && k->stage == 0) // of the configuration's own kernel
        s->family->budget(&s->spec.base, k->arch, &k->variant->config, &budget);
    table_add(s->table, k->arch->name, k->sizes, qn_text_string(&config), k->variant->chosen, (int64_t)k->plan->threads,
              (int64_t)k->plan->min_ctas, (int64_t)k->plan->cluster, (int64_t)k->plan->dynamic_shared, k->plan->entry,
              k->plan->template_path, budget.length ? qn_text_string(&budget) : NULL);
    qn_text_fini(&budget);
    qn_text_fini(&config);
    return QUERN_OK;
}

// ---- source

static cJSON *add_kernel_json(show *s, const shown *k)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "arch", k->arch->name);
    cJSON_AddStringToObject(object, "sizes", k->sizes);
    cJSON_AddStringToObject(object, "kernel", k->plan->entry);
    cJSON_AddItemToArray(s->kernels, object);
    return object;
}

// One kernel's text is printed as it is, to be compiled; several are told apart by a comment.
static quern_status each_source(show *s, const shown *k)
{
    qn_text source = QN_TEXT_INIT;
    quern_status status = qn_kernel_source(s->q, k->plan, k->arch, &source);
    if (status == QUERN_OK && s->settings.json) {
        cJSON_AddStringToObject(add_kernel_json(s, k), "source", qn_text_string(&source));
    } else if (status == QUERN_OK) {
        if (s->several) printf("// ==== %s, %s, %s\n", k->plan->entry, k->arch->name, k->sizes);
        fputs(qn_text_string(&source), stdout);
    }
    qn_text_fini(&source);
    return status;
}

// ---- key

// An item as people read it: text, else a number, else its hash.
static void item_text(const qn_key_item *item, char *out, size_t bytes)
{
    bool printable = item->count > 0;
    for (size_t i = 0; i < item->count && printable; i++) printable = isprint(item->bytes[i]);
    if (printable && item->count <= 120) {
        snprintf(out, bytes, "%.*s", (int)item->count, (const char *)item->bytes);
    } else if (item->count == 8) {
        uint64_t number = 0;
        for (size_t i = 8; i-- > 0;) number = number << 8 | item->bytes[i];
        snprintf(out, bytes, "%lld", (long long)number);
    } else {
        char hex[33];
        qn_hash hash = qn_hash_bytes(item->bytes, item->count);
        qn_hash_hex(&hash, hex);
        snprintf(out, bytes, "(%s)", hex);
    }
}

static table *key_items(const qn_text *key)
{
    static const table_column columns[] = {
        {"tag", "tag", TABLE_TEXT, 0}, {"bytes", "bytes", TABLE_INT, 0}, {"content", "content", TABLE_TEXT, 0}};
    table *t = table_create(columns, QN_COUNT(columns));
    qn_key_item item;
    for (size_t at = 0; qn_key_next(key->bytes, key->length, &at, &item);) {
        char content[128];
        const char tag[2] = {item.tag, 0};
        item_text(&item, content, sizeof content);
        table_add(t, tag, (int64_t)item.count, content);
    }
    return t;
}

static void print_key(show *s, const shown *k, const qn_text *key)
{
    char hex[33];
    table *items = key_items(key);
    qn_hash hash = qn_hash_bytes(key->bytes, key->length);
    qn_hash_hex(&hash, hex);
    if (s->settings.json) {
        cJSON *object = add_kernel_json(s, k);
        cJSON_AddStringToObject(object, "hash", hex);
        cJSON_AddNumberToObject(object, "bytes", (double)key->length);
        cJSON_AddItemToObject(object, "items", table_json(items));
    } else {
        printf("%s  %s  %s  %s, %zu bytes\n", hex, k->plan->entry, k->arch->name, k->sizes, key->length);
        table_print(items);
    }
    table_destroy(items);
}

static quern_status each_key(show *s, const shown *k)
{
    qn_text source = QN_TEXT_INIT, key = QN_TEXT_INIT;
    quern_status status = qn_kernel_source(s->q, k->plan, k->arch, &source);
    if (status == QUERN_OK) status = qn_kernel_key(s->q, qn_text_string(&source), k->plan->entry, k->arch, &key);
    if (status == QUERN_OK) print_key(s, k, &key);
    qn_text_fini(&source);
    qn_text_fini(&key);
    return status;
}

// ---- resources

static const table_column resource_columns[] = {
    {"arch", "arch", TABLE_TEXT, 0},
    {"sizes", "sizes", TABLE_TEXT, 0},
    {"threads", "threads", TABLE_INT, 0},
    {"registers", "registers", TABLE_INT, 0},
    {"local", "local_bytes", TABLE_INT, 0},
    {"static shared", "static_shared_bytes", TABLE_INT, 0},
    {"dynamic shared", "dynamic_shared_bytes", TABLE_INT, 0},
    {"image", "image_bytes", TABLE_INT, 0},
    {"compile ms", "compile_ms", TABLE_REAL, 1},
    {"origin", "origin", TABLE_TEXT, 0},
    {"kernel", "kernel", TABLE_TEXT, 0},
};

static const char *origin_name(quern_origin origin)
{
    switch (origin) {
    case QUERN_ORIGIN_COMPILED:
        return "compiled";
    case QUERN_ORIGIN_MEMORY:
        return "memory";
    case QUERN_ORIGIN_SEALED:
        return "sealed";
    case QUERN_ORIGIN_USER:
        return "user";
    }
    return "unknown";
}

static quern_status each_resource(show *s, const shown *k)
{
    const qn_image *image;
    QN_TRY(qn_kernel_obtain(s->q, k->plan, k->arch, s->spec_text, &image));
    table_add(s->table, k->arch->name, k->sizes, (int64_t)k->plan->threads, (int64_t)image->registers,
              (int64_t)image->local_bytes, (int64_t)image->shared_bytes, (int64_t)k->plan->dynamic_shared,
              (int64_t)image->bytes.length, (double)image->compile_us * 1e-3, origin_name(image->origin),
              k->plan->entry);
    return QUERN_OK;
}

static const show_kind kinds[] = {
    {"plan", each_plan, plan_columns, QN_COUNT(plan_columns), true},
    {"source", each_source, NULL, 0, true},
    {"key", each_key, NULL, 0, true},
    {"resources", each_resource, resource_columns, QN_COUNT(resource_columns), false},
};

// ---- which kernels

// Fills the family's sizes structure from the options. *any: a size was given.
static quern_status given_sizes(const show *s, void *sizes, bool *any)
{
    *any = false;
    memset(sizes, 0, s->family->sizes_bytes);
    memcpy(sizes, &s->family->sizes_bytes, sizeof(size_t)); // structures begin with their size
    for (size_t i = 0; i < s->family->size_count; i++) {
        const qn_field *size = &s->family->sizes[i];
        const char *given = command_size(&s->sizes, size->name);
        int64_t value;
        if (!given) continue;
        if (!qn_parse_int(given, &value) || value < 0 || value > size->max)
            return qn_fail(QUERN_BAD_VALUE, "--%s %s: a whole number from 0 to %lld is needed", size->name, given,
                           (long long)size->max);
        memcpy((char *)sizes + size->offset, &value, sizeof value);
        *any = true;
    }
    return QUERN_OK;
}

static quern_status show_variant(show *s, const show_kind *kind, const qn_arch *arch, const qn_variant *variant)
{
    shown k = {.arch = arch, .variant = variant};
    qn_buckets_name(s->family, variant->first_bucket, variant->last_bucket, k.sizes, sizeof k.sizes);
    size_t length = strlen(k.sizes);
    for (k.stage = 0; k.stage < variant->plan.stage_count; k.stage++) {
        k.plan = &variant->plan.stage[k.stage];
        k.sizes[length] = 0;
        bool beyond = k.plan->serves_beyond && variant->first_bucket >= k.plan->beyond;
        const char *serves = beyond ? k.plan->serves_beyond : k.plan->serves;
        if (serves) snprintf(k.sizes + length, sizeof k.sizes - length, ": %s", serves);
        QN_TRY(kind->each(s, &k));
    }
    return QUERN_OK;
}

// The first device here that is served by an architecture.
static bool find_device(const qn_arch *arch, char name[128], qn_tune_device *found)
{
    int count = 0;
    if (device_count(&count) != QUERN_OK) return false;
    for (int ordinal = 0; ordinal < count; ordinal++)
        if (tune_device(ordinal, name, found) && command_target(found->cc) == arch) return true;
    return false;
}

static quern_status show_arch(show *s, const show_kind *kind, const qn_arch *arch)
{
    char name[128];
    qn_tune_device here;
    bool is_here = s->is_here && find_device(arch, name, &here);
    static qn_variants variants; // large
    QN_TRY(qn_variants_plan_for(s->q, s->family, &s->spec.base, arch, is_here ? &here : NULL, &variants));
    if (s->one_size) {
        const qn_variant *variant = &variants.item[variants.of_bucket[s->bucket]];
        s->several = s->several || variant->plan.stage_count > 1;
        return show_variant(s, kind, arch, variant);
    }
    s->several = s->several || variants.count > 1;
    for (size_t v = 0; v < variants.count; v++) QN_TRY(show_variant(s, kind, arch, &variants.item[v]));
    return QUERN_OK;
}

// ---- the command

static void print_result(show *s, const show_kind *kind)
{
    if (s->settings.json) {
        cJSON *document = cJSON_CreateObject();
        cJSON_AddStringToObject(document, "spec", s->spec_text);
        cJSON_AddItemToObject(document, "kernels", kind->columns ? table_json(s->table) : s->kernels);
        s->kernels = kind->columns ? s->kernels : NULL;
        json_print(document);
    } else if (kind->columns) {
        table_print(s->table);
    }
}

static quern_status execute(show *s, const show_kind *kind, const command_archs *archs)
{
    s->several = archs->count > 1;
    s->settings.looks = kind->looks;
    QN_TRY(command_open(&s->settings, &s->q));
    s->table = table_create(kind->columns, kind->column_count - (kind->each == each_plan && !s->family->budget));
    s->kernels = cJSON_CreateArray();
    quern_status status = QUERN_OK;
    for (size_t i = 0; i < archs->count && status == QUERN_OK; i++) status = show_arch(s, kind, archs->item[i]);
    if (status == QUERN_OK) print_result(s, kind);
    cJSON_Delete(s->kernels);
    table_destroy(s->table);
    quern_close(s->q);
    return status;
}

static quern_status read_spec(show *s, const char *spec_text)
{
    _Alignas(16) unsigned char sizes[256];
    QN_TRY(quern_spec_parse(spec_text, &s->spec));
    QN_TRY(qn_family_find(s->spec.base.family, &s->family));
    QN_TRY(given_sizes(s, sizes, &s->one_size));
    if (s->family->check_sizes && s->family->check_sizes(sizes, sizes) != QUERN_OK)
        return qn_fail(QUERN_CONFLICT, "%s", quern_message());
    s->bucket = s->one_size ? s->family->bucket_of(sizes) : 0;
    QN_TRY(quern_spec_format(&s->spec.base, s->spec_text, sizeof s->spec_text));
    quern_any_spec full; // with the fields that follow from others
    QN_TRY(qn_spec_complete(&s->spec.base, &s->family, &full));
    s->spec = full;
    return QUERN_OK;
}

static int unknown_kind(const char *word)
{
    qn_nearest nearest;
    qn_nearest_init(&nearest, word, strlen(word));
    for (size_t i = 0; i < QN_COUNT(kinds); i++) qn_nearest_offer(&nearest, kinds[i].name);
    return command_usage("cannot show '%s'%s: plan, source, key and resources are known", word,
                         qn_nearest_hint(&nearest));
}

static int show_spec(show *s, int argc, char **argv, const char *arch)
{
    size_t kind = 0;
    command_archs archs;
    int exit_status;
    if (argc != 3) return command_usage("plan, source, key or resources, and one spec, are needed");
    while (kind < QN_COUNT(kinds) && strcmp(argv[1], kinds[kind].name) != 0) kind++;
    if (kind == QN_COUNT(kinds)) return unknown_kind(argv[1]);
    quern_status status = read_spec(s, argv[2]);
    if (status != QUERN_OK) return command_status(status);
    exit_status = command_check_sizes(&s->sizes, &s->family, 1);
    if (exit_status != COMMAND_OK) return exit_status;
    if (!command_choose_archs(arch, &archs, &exit_status)) return exit_status;
    s->is_here = !arch;
    status = execute(s, &kinds[kind], &archs);
    return status == QUERN_OK ? COMMAND_OK : command_status(status);
}

int command_show(int argc, char **argv)
{
    show s = {0};
    const char *arch = NULL;
    command_option options[COMMAND_MAX_SIZES + 5] = {
        COMMAND_OPTION_ARCH(&arch),
        COMMAND_OPTION_DB(&s.settings.db),
        COMMAND_OPTION_JSON(&s.settings.json),
        COMMAND_OPTION_VERBOSE(&s.settings.verbose),
    };
    size_t count = command_add_sizes(&s.sizes, "N", "only what serves this size", options, 4);
    options[count] = (command_option)COMMAND_OPTION_END;
    const command_syntax syntax = {"quern show plan|source|key|resources SPEC [options]", text, options};
    int exit_status;
    if (!command_parse(&syntax, &argc, argv, &exit_status)) return exit_status;
    return show_spec(&s, argc, argv, arch);
}

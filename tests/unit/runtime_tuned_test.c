// SPDX-License-Identifier: Apache-2.0
// Which tuning result serves: the order of the tables, staleness, frozen and off, results that this library cannot use,
// and that a warmed cache serves prepare whatever the tables say.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/tune.h"
#include "support/cache_fixture.h"
#include "support/fake_driver.h"
#include "support/runtime_fixture.h"

static const int hopper[] = {90};
static char folder[64], user_db[128], sealed_db[128];
static const qn_family *family;
static const qn_arch *arch;
static quern_softmax_topk_spec spec;
static char spec_text[512];
static qn_tune_device here; // the fake device

enum { BUCKET = 1 };
static const char bucket_text[] = "rows 5..14";

static int set_up(void **state)
{
    static char name[128];
    const qn_driver *driver;
    qn_fingerprint fingerprint;
    (void)state;
    cache_folder_make(folder);
    snprintf(user_db, sizeof user_db, "%s/user.db", folder);
    snprintf(sealed_db, sizeof sealed_db, "%s/sealed.db", folder);
    runtime_devices_make(hopper, 1);
    assert_int_equal(qn_driver_load(NULL, &driver), QUERN_OK);
    assert_int_equal(qn_fingerprint_read(driver, 0, &fingerprint), QUERN_OK);
    here = qn_fingerprint_device(&fingerprint);
    snprintf(name, sizeof name, "%s", here.name);
    here.name = name;
    spec = runtime_spec(5000, 8);
    assert_int_equal(quern_spec_format(&spec.base, spec_text, sizeof spec_text), QUERN_OK);
    assert_int_equal(qn_family_find("softmax_topk", &family), QUERN_OK);
    return qn_arch_find("sm_90a", &arch);
}

static int tear_down(void **state)
{
    (void)state;
    runtime_devices_remove();
    cache_folder_remove(folder);
    return 0;
}

// ---- rows. block tells them apart.

static qn_tune_row row_of(const qn_tune_device *device, int block, int64_t created)
{
    static char config[8][96];
    static int next;
    char *text = config[next++ % 8];
    snprintf(text, sizeof config[0], "plan=stream block=%d ctas=1 local_k=4 unroll=2", block);
    return (qn_tune_row){.device = *device,
                         .library = qn_tuned_library(),
                         .arch = "sm_90a",
                         .spec = spec_text,
                         .bucket = bucket_text,
                         .sizes = "rows=8",
                         .config = text,
                         .status = QN_TUNE_BEST,
                         .note = "",
                         .ns = 1000,
                         .spread_ns = 1,
                         .created = created};
}

static qn_tune_device other_name(void)
{
    qn_tune_device device = here;
    device.name = "Another Hopper";
    return device;
}

static qn_tune_device other_count(void)
{
    qn_tune_device device = here;
    device.name = "Small Hopper", device.sm_count = here.sm_count / 2;
    return device;
}

static void put(const char *file, const qn_tune_row *row)
{
    quern_store store = cache_open(file);
    if (qn_sqlite_tune_put(&store, row, 1, false, NULL) != QUERN_OK) fail_msg("%s", quern_message());
    qn_sqlite_close(&store);
}

// ---- what is chosen

typedef struct choice {
    int block;
    char chosen[48];
} choice;

static choice choose(const quern_options *options, const qn_tune_device *device)
{
    quern *q = runtime_open(options);
    qn_variants *variants = malloc(sizeof *variants);
    assert_non_null(variants);
    if (qn_variants_plan_for(q, family, &spec.base, arch, device, variants) != QUERN_OK)
        fail_msg("%s", quern_message());
    const qn_variant *variant = &variants->item[variants->of_bucket[BUCKET]];
    choice c = {.block = variant->config.value[1]};
    memcpy(c.chosen, variant->chosen, sizeof c.chosen);
    free(variants);
    quern_close(q);
    return c;
}

static choice choose_here(void)
{
    quern_options options = runtime_options(user_db, NULL);
    return choose(&options, &here);
}

static void without_results_the_heuristic_chooses(void **state)
{
    (void)state;
    assert_string_equal(choose_here().chosen, "heuristic");
}

static void the_order_is_device_then_sm_count_then_architecture(void **state)
{
    (void)state;
    const qn_tune_device same_count = other_name(), same_arch = other_count();
    const qn_tune_row by_arch = row_of(&same_arch, 128, 9000), by_count = row_of(&same_count, 256, 5000),
                      by_device = row_of(&here, 512, 1000);

    put(user_db, &by_arch);
    choice c = choose_here();
    assert_int_equal(c.block, 128);
    assert_string_equal(c.chosen, "tuned (same architecture)");

    put(user_db, &by_count);
    c = choose_here();
    assert_int_equal(c.block, 256);
    assert_string_equal(c.chosen, "tuned (same architecture and SM count)");

    put(user_db, &by_device);
    c = choose_here();
    assert_int_equal(c.block, 512);
    assert_string_equal(c.chosen, "tuned (this device)");
}

static void of_two_in_one_place_the_newer_counts_whichever_database_has_it(void **state)
{
    (void)state;
    const qn_tune_row older = row_of(&here, 128, 1000), newer = row_of(&here, 256, 2000);
    quern_options options = runtime_options(user_db, NULL);
    options.sealed_files = sealed_db;

    put(user_db, &older);
    put(sealed_db, &newer);
    assert_int_equal(choose(&options, &here).block, 256);

    put(user_db, &newer), put(sealed_db, &older);
    assert_int_equal(choose(&options, &here).block, 256);
}

static void another_architecture_spec_bucket_or_a_loser_does_not_count(void **state)
{
    (void)state;
    qn_tune_row rows[4] = {row_of(&here, 128, 1), row_of(&here, 128, 1), row_of(&here, 128, 1), row_of(&here, 128, 1)};
    rows[0].arch = "sm_100a", rows[1].spec = "softmax_topk V=5000 K=9 in=f32", rows[2].bucket = "rows 15..30";
    rows[2].sizes = "rows=16", rows[3].status = QN_TUNE_SLOWER;
    for (size_t i = 0; i < QN_COUNT(rows); i++) put(user_db, &rows[i]);

    assert_string_equal(choose_here().chosen, "heuristic");
}

static void results_of_another_version_or_driver_are_kept_and_not_used(void **state)
{
    (void)state;
    qn_tune_row version = row_of(&here, 128, 1), driver = row_of(&here, 256, 1);
    version.library = "0.0.9", driver.device.driver = here.driver + 1;
    const char *why;
    put(user_db, &version);
    put(user_db, &driver);

    assert_string_equal(choose_here().chosen, "heuristic");

    assert_int_equal(cache_sql_int(user_db, "SELECT count(*) FROM tune"), 2);
    assert_false(qn_tuned_is_current(&version, qn_tuned_library(), &here, &why));
    assert_non_null(strstr(why, "version of Quern"));
    assert_false(qn_tuned_is_current(&driver, qn_tuned_library(), &here, &why));
    assert_non_null(strstr(why, "driver"));
    assert_true(qn_tuned_is_current(&driver, qn_tuned_library(), NULL, &why)); // no device: any driver may come
}

static void a_configuration_that_has_no_plan_any_more_makes_way_for_the_next(void **state)
{
    (void)state;
    const qn_tune_device same_count = other_name(), same_arch = other_count();
    qn_tune_row bad[] = {row_of(&here, 128, 1), row_of(&same_count, 128, 1)};
    const qn_tune_row good = row_of(&same_arch, 256, 1);
    static const char *const configs[] = {"plan=stream",
                                          "plan=stream block=1024 ctas=8 local_k=32 unroll=1",
                                          "plan=stream block=100 ctas=1 local_k=4 unroll=1",
                                          "no such words",
                                          "=",
                                          "plan=cluster"};
    put(user_db, &good);
    for (size_t i = 0; i < QN_COUNT(configs); i++) {
        bad[0].config = bad[1].config = configs[i];
        put(user_db, &bad[0]);
        put(user_db, &bad[1]);
        choice c = choose_here();
        assert_int_equal(c.block, 256);
        assert_string_equal(c.chosen, "tuned (same architecture)");
    }
}

// A range of sizes that was cut in two since: its result serves the part that it was timed in, until a newer one is there.
static void a_result_of_former_borders_serves_the_range_of_its_sizes(void **state)
{
    (void)state;
    qn_tune_row former = row_of(&here, 128, 1000);
    former.bucket = "rows 1..30"; // timed with 8 rows
    put(user_db, &former);
    choice c = choose_here();
    assert_int_equal(c.block, 128);
    assert_string_equal(c.chosen, "tuned (this device)");

    const qn_tune_row of_now = row_of(&here, 256, 2000);
    put(user_db, &of_now);
    assert_int_equal(choose_here().block, 256);
}

// One warning says how many and why; a range of sizes that there never was is no former one.
static void results_that_could_never_be_used_are_left_out_with_a_warning(void **state)
{
    (void)state;
    static const char *const buckets[] = {"rows 5..14", "rows 9…", "rows 40..30", "N 1..64"};
    runtime_log log = RUNTIME_LOG_INIT;
    const quern_options options = runtime_options(user_db, &log);
    for (size_t i = 0; i < QN_COUNT(buckets); i++) {
        qn_tune_row row = row_of(&here, 128, 1000);
        row.bucket = buckets[i];
        if (i == 0) row.config = "block=128 plan=stream ctas=1 local_k=4 unroll=2"; // not in canonical form
        put(user_db, &row);
    }
    qn_tune_row another = row_of(&here, 128, 1000); // not this library's to judge
    another.library = "0.0.1-1", another.bucket = "rows of old";
    put(user_db, &another);

    assert_string_equal(choose(&options, &here).chosen, "heuristic");

    assert_true(runtime_log_has(&log, "4 tuning results are left out"));
    runtime_log_fini(&log);
}

static void a_batch_invariant_spec_keeps_its_one_configuration(void **state)
{
    (void)state;
    qn_tune_row row;
    quern_warm_report report = QUERN_WARM_REPORT_INIT;
    const quern_options options = runtime_options(user_db, NULL);
    spec.batch_invariant = 1;
    assert_int_equal(quern_spec_format(&spec.base, spec_text, sizeof spec_text), QUERN_OK);
    row = row_of(&here, 128, 1);
    put(user_db, &row);

    assert_string_equal(choose_here().chosen, "heuristic");

    quern *q = runtime_open(&options);
    if (quern_warm(q, &spec.base, "sm_90a", &report) != QUERN_OK) fail_msg("%s", quern_message());
    assert_int_equal(report.variants, 1);
    assert_int_equal(report.kernels, 1);
    quern_close(q);
}

static void frozen_does_not_read_the_users_table(void **state)
{
    (void)state;
    const qn_tune_row mine = row_of(&here, 128, 2000), shipped = row_of(&here, 256, 1000);
    quern_options options = runtime_options(user_db, NULL);
    options.sealed_files = sealed_db;
    options.tuning = QUERN_TUNING_FROZEN;
    put(user_db, &mine);
    put(sealed_db, &shipped);

    assert_int_equal(choose(&options, &here).block, 256);
    options.tuning = QUERN_TUNING_NORMAL;
    assert_int_equal(choose(&options, &here).block, 128);
    options.tuning = QUERN_TUNING_OFF;
    assert_string_equal(choose(&options, &here).chosen, "heuristic");
}

static void the_variable_says_the_same_and_an_option_wins(void **state)
{
    (void)state;
    const qn_tune_row mine = row_of(&here, 128, 2000);
    quern_options options = runtime_options(user_db, NULL);
    options.ignore_environment = 0;
    put(user_db, &mine);

    setenv("QUERN_TUNE", "off", 1);
    assert_string_equal(choose(&options, &here).chosen, "heuristic");
    setenv("QUERN_TUNE", "frozen", 1);
    assert_string_equal(choose(&options, &here).chosen, "heuristic");
    options.tuning = QUERN_TUNING_NORMAL;
    assert_int_equal(choose(&options, &here).block, 128);
    options.tuning = QUERN_TUNING_DEFAULT;
    setenv("QUERN_TUNE", "sometimes", 1);
    quern *q = NULL;
    assert_int_equal(quern_open(&options, &q), QUERN_BAD_ARGUMENT);
    assert_non_null(strstr(quern_message(), "normal, frozen, off"));
    unsetenv("QUERN_TUNE");
}

static void a_database_that_cannot_be_read_is_a_warning(void **state)
{
    (void)state;
    runtime_log log = RUNTIME_LOG_INIT;
    quern_options options = runtime_options(user_db, &log);
    quern_store store = cache_open(user_db);
    assert_int_equal(cache_put(&store, 1), QUERN_OK);
    qn_sqlite_close(&store);
    cache_sql(user_db, "CREATE TABLE tune(x)");

    assert_string_equal(choose(&options, &here).chosen, "heuristic");

    assert_true(runtime_log_has(&log, "tuning results"));
    runtime_log_fini(&log);
}

// ---- the built-in table, as a snapshot that a test makes

static void the_built_in_table_comes_after_databases_and_knows_no_driver(void **state)
{
    (void)state;
    qn_tune_row built_in = row_of(&here, 512, 1);
    built_in.device.driver = here.driver + 5;
    built_in.library = "0.0.1";
    const qn_tune_device same_arch = other_count();
    const qn_tune_row from_database = row_of(&same_arch, 128, 1);
    qn_tuned tuned = {.list = QN_TUNE_LIST_INIT,
                      .built_in = &built_in,
                      .built_in_count = 1,
                      .spec = spec_text,
                      .library = qn_tuned_library()};
    qn_tuned_view view = {.tuned = &tuned, .device = &here};
    qn_config config;

    assert_int_equal(qn_tuned_choose(&view, family, &spec.base, arch, BUCKET, &config), QN_TUNED_BUILT_IN);
    assert_int_equal(config.value[1], 512);
    assert_string_equal(qn_tuned_word(QN_TUNED_BUILT_IN), "built-in table");
    assert_int_equal(qn_tune_list_add(&tuned.list, &from_database), QUERN_OK);
    assert_int_equal(qn_tuned_choose(&view, family, &spec.base, arch, BUCKET, &config), QN_TUNED_ARCH);
    view.own = true;
    assert_int_equal(qn_tuned_choose(&view, family, &spec.base, arch, BUCKET, &config), QN_TUNED_BUILT_IN);
    qn_tuned_fini(&tuned);
}

// On fewer SMs its launches would not be what was timed; what they could be instead was not timed anywhere.
static void a_winner_of_more_sms_that_cannot_be_itself_here_is_passed_over(void **state)
{
    static const char text[] = "indexer H=64 C=128 k=512 q=mxfp4 page=64";
    (void)state;
    quern_any_spec full;
    qn_config config;
    qn_tune_device small = other_count(), usual = other_name();
    qn_tune_row row = row_of(&usual, 0, 1);
    assert_int_equal(quern_spec_parse(text, &full), QUERN_OK);
    row.spec = text, row.bucket = "T 1, max_length 8193..32768", row.config = "plan=wgmma warps=12 shares=128";
    qn_tuned tuned = {
        .list = QN_TUNE_LIST_INIT, .built_in = &row, .built_in_count = 1, .spec = text, .library = qn_tuned_library()};
    qn_tuned_view view = {.tuned = &tuned, .device = &here};
    const size_t bucket = 2;

    assert_int_equal(qn_tuned_choose(&view, &qn_family_indexer, &full.base, arch, bucket, &config),
                     QN_TUNED_BUILT_IN + QN_TUNED_SM_COUNT);
    assert_int_equal(config.value[2], 128);
    view.device = &small;
    assert_int_equal(qn_tuned_choose(&view, &qn_family_indexer, &full.base, arch, bucket, &config), QN_TUNED_HEURISTIC);
    assert_int_equal(config.value[1], 16);
    assert_int_equal(config.value[2], 64); // of 66 SMs
    row.config = "plan=wgmma warps=12 shares=32";
    assert_int_equal(qn_tuned_choose(&view, &qn_family_indexer, &full.base, arch, bucket, &config),
                     QN_TUNED_BUILT_IN + QN_TUNED_ARCH);
    assert_int_equal(config.value[2], 32);
}

// Two ranges with former borders that are one now: each has its winner, and as of two in one place the newer counts, whichever
// is read first. Neither is left out: it is known which won.
static void of_two_former_ranges_that_are_one_the_newer_serves(void **state)
{
    (void)state;
    for (int newer = 0; newer < 2; newer++) {
        qn_tune_row low = row_of(&here, 128, newer ? 2000 : 1000), high = row_of(&here, 256, newer ? 1000 : 2000);
        low.bucket = "rows 5..8", low.sizes = "rows=8", high.bucket = "rows 9..14", high.sizes = "rows=12";
        put(user_db, &low), put(user_db, &high);
        choice c = choose_here();
        assert_int_equal(c.block, newer ? 128 : 256);
        assert_string_equal(c.chosen, "tuned (this device)");
        cache_sql(user_db, "DELETE FROM tune");
    }
}

static void every_built_in_result_has_a_plan(void **state)
{
    (void)state;
    for (size_t i = 0; i < qn_tuned_built_in_count; i++) {
        const qn_tune_row *row = &qn_tuned_built_in[i];
        const qn_arch *of = NULL;
        const qn_family *f = NULL;
        quern_any_spec full;
        qn_config config;
        bool has_bucket = false;
        assert_int_equal(qn_tune_check(row), QUERN_OK);
        assert_string_equal(row->status, QN_TUNE_BEST);
        assert_int_equal(quern_spec_parse(row->spec, &full), QUERN_OK);
        assert_int_equal(qn_family_find(full.base.family, &f), QUERN_OK);
        assert_int_equal(qn_arch_find(row->arch, &of), QUERN_OK);
        if (qn_config_parse(f, row->config, &config) != QUERN_OK ||
            qn_config_check(f, &full.base, of, &config) != QUERN_OK)
            fail_msg("%s, %s: %s", row->spec, row->bucket, quern_message());
        for (size_t b = 0; b < f->bucket_count; b++) {
            char name[96];
            f->bucket_name(b, name, sizeof name);
            has_bucket |= !strcmp(name, row->bucket);
        }
        assert_true(has_bucket);
    }
}

// ---- prepare and warm

static const char *chosen_of(quern *q, int *block)
{
    static char chosen[48];
    quern_op *op = NULL;
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    quern_softmax_topk_sizes sizes = QUERN_SOFTMAX_TOPK_SIZES_INIT;
    sizes.rows = 8;
    if (quern_prepare(q, &spec.base, 0, &op) != QUERN_OK) fail_msg("%s", quern_message());
    assert_int_equal(quern_op_describe(op, quern_op_variant_for(op, &sizes), 0, &info), QUERN_OK);
    snprintf(chosen, sizeof chosen, "%s", info.chosen);
    *block = info.threads;
    quern_op_release(op);
    return chosen;
}

static void prepare_takes_the_tuned_configuration_and_says_so(void **state)
{
    (void)state;
    const qn_tune_row row = row_of(&here, 256, 1);
    const quern_options options = runtime_options(user_db, NULL);
    put(user_db, &row);
    quern *q = runtime_open(&options);
    int block;

    assert_string_equal(chosen_of(q, &block), "tuned (this device)");

    assert_int_equal(block, 256);
    quern_close(q);
}

static void a_warmed_cache_serves_prepare_on_each_device_of_its_tables(void **state)
{
    (void)state;
    const qn_tune_device same_count = other_name(), same_arch = other_count();
    const qn_tune_row rows[] = {row_of(&here, 128, 1), row_of(&same_count, 256, 2), row_of(&same_arch, 512, 3)};
    quern_options options = runtime_options(user_db, NULL);
    quern_warm_report report = QUERN_WARM_REPORT_INIT;
    int block;
    for (size_t i = 0; i < QN_COUNT(rows); i++) put(user_db, &rows[i]);
    quern *q = runtime_open(&options);
    if (quern_warm(q, &spec.base, "sm_90a", &report) != QUERN_OK) fail_msg("%s", quern_message());
    quern_close(q);
    assert_int_equal(report.compiled, report.stored);
    assert_int_equal(report.kernels, report.compiled);

    // This device, then one that has only the SM count, then one that has nothing of its own.
    for (size_t gone = 0; gone <= QN_COUNT(rows); gone++) {
        if (gone)
            cache_sql(user_db, gone == 1   ? "DELETE FROM tune WHERE created=1"
                               : gone == 2 ? "DELETE FROM tune WHERE created=2"
                                           : "DELETE FROM tune");
        options.mode = QUERN_MODE_STRICT;
        q = runtime_open(&options);
        const char *chosen = chosen_of(q, &block);
        assert_string_equal(chosen, gone == 0   ? "tuned (this device)"
                                    : gone == 1 ? "tuned (same architecture and SM count)"
                                    : gone == 2 ? "tuned (same architecture)"
                                                : "heuristic");
        assert_int_equal(runtime_counters(q).compiled, 0);
        quern_close(q);
    }
}

static void in_strict_mode_the_own_choice_serves_where_the_tuned_one_was_not_warmed(void **state)
{
    (void)state;
    runtime_log log = RUNTIME_LOG_INIT;
    quern_options options = runtime_options(user_db, &log);
    const qn_tune_row row = row_of(&here, 256, 1);
    int block;
    quern *q = runtime_open(&options);
    if (quern_warm(q, &spec.base, "sm_90a", NULL) != QUERN_OK) fail_msg("%s", quern_message());
    quern_close(q);
    put(user_db, &row); // tuned after the warm

    options.mode = QUERN_MODE_STRICT;
    q = runtime_open(&options);
    assert_string_equal(chosen_of(q, &block), "heuristic");
    assert_true(runtime_log_has(&log, "the library's own choices serve"));
    quern_close(q);

    options.mode = QUERN_MODE_NORMAL;
    q = runtime_open(&options);
    assert_string_equal(chosen_of(q, &block), "tuned (this device)");
    assert_true(runtime_counters(q).compiled > 0);
    quern_close(q);
    runtime_log_fini(&log);
}

static void strict_without_anything_warmed_still_names_the_tuned_kernel(void **state)
{
    (void)state;
    quern_options options = runtime_options(user_db, NULL);
    const qn_tune_row row = row_of(&here, 256, 1);
    quern_op *op = NULL;
    put(user_db, &row);
    options.mode = QUERN_MODE_STRICT;
    quern *q = runtime_open(&options);

    assert_int_equal(quern_prepare(q, &spec.base, 0, &op), QUERN_WOULD_COMPILE);

    assert_null(op);
    quern_close(q);
}

// ---- devices with few SMs

static const char indexer_text[] = "indexer H=64 C=128 k=512 q=mxfp4 page=64";

// The configuration for one long row on a device with so many SMs, from what was warmed.
static void assert_serves(const char *file, int sm_count, bool whole, const char *config, const char *line)
{
    runtime_log log = RUNTIME_LOG_INIT;
    quern_options options = runtime_options(file, &log);
    quern_kernel_info info = QUERN_KERNEL_INFO_INIT;
    quern_indexer_sizes sizes = QUERN_INDEXER_SIZES_INIT;
    quern_any_spec full;
    quern_op *op = NULL;
    sizes.T = sizes.B = 1, sizes.max_length = 131072;
    assert_int_equal(quern_spec_parse(indexer_text, &full), QUERN_OK);
    options.mode = QUERN_MODE_STRICT;
    fake_driver.sm_count = sm_count;
    quern *q = runtime_open(&options);
    const quern_status status =
        whole ? quern_prepare(q, &full.base, 0, &op) : quern_prepare_sizes(q, &full.base, &sizes, &sizes, 0, &op);
    if (status != QUERN_OK) fail_msg("%d SMs: %s", sm_count, quern_message());
    assert_int_equal(quern_op_describe(op, quern_op_variant_for(op, &sizes), 0, &info), QUERN_OK);
    assert_string_equal(info.config, config);
    assert_int_equal(runtime_counters(q).compiled, 0);
    assert_true(runtime_log_has(&log, "the library's own choices serve") == (line != NULL));
    assert_true(!line || runtime_log_has(&log, line));
    quern_op_release(op);
    quern_close(q);
    fake_driver.sm_count = 0;
    runtime_log_fini(&log);
}

static void a_warm_without_a_device_serves_devices_with_fewer_sms(void **state)
{
    (void)state;
    quern_options options = runtime_options(user_db, NULL);
    quern_indexer_sizes sizes = QUERN_INDEXER_SIZES_INIT;
    quern_any_spec full;
    sizes.T = sizes.B = 1, sizes.max_length = 131072;
    assert_int_equal(quern_spec_parse(indexer_text, &full), QUERN_OK);
    quern *q = runtime_open(&options);
    if (quern_warm(q, &full.base, "sm_90a", NULL) != QUERN_OK) fail_msg("%s", quern_message());
    quern_close(q);
    options = runtime_options(sealed_db, NULL);
    q = runtime_open(&options);
    if (quern_warm_sizes(q, &full.base, &sizes, &sizes, "sm_90a", NULL) != QUERN_OK) fail_msg("%s", quern_message());
    quern_close(q);

    assert_serves(user_db, 132, true, "plan=wgmma warps=16 shares=128", NULL);
    assert_serves(user_db, 114, true, "plan=wgmma warps=16 shares=64", NULL);
    assert_serves(user_db, 16, true, "plan=wgmma warps=16 shares=16", NULL);
    assert_serves(user_db, 1, true, "plan=wgmma warps=16 shares=1", NULL);
    assert_serves(sealed_db, 132, false, "plan=wgmma warps=16 shares=128", NULL);
    assert_serves(sealed_db, 114, false, "plan=wgmma warps=16 shares=128", "those for more SMs");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(without_results_the_heuristic_chooses),
        TEST(the_order_is_device_then_sm_count_then_architecture),
        TEST(of_two_in_one_place_the_newer_counts_whichever_database_has_it),
        TEST(another_architecture_spec_bucket_or_a_loser_does_not_count),
        TEST(results_of_another_version_or_driver_are_kept_and_not_used),
        TEST(a_configuration_that_has_no_plan_any_more_makes_way_for_the_next),
        TEST(a_result_of_former_borders_serves_the_range_of_its_sizes),
        TEST(results_that_could_never_be_used_are_left_out_with_a_warning),
        TEST(a_batch_invariant_spec_keeps_its_one_configuration),
        TEST(frozen_does_not_read_the_users_table),
        TEST(the_variable_says_the_same_and_an_option_wins),
        TEST(a_database_that_cannot_be_read_is_a_warning),
        TEST(the_built_in_table_comes_after_databases_and_knows_no_driver),
        TEST(a_winner_of_more_sms_that_cannot_be_itself_here_is_passed_over),
        TEST(of_two_former_ranges_that_are_one_the_newer_serves),
        TEST(every_built_in_result_has_a_plan),
        TEST(prepare_takes_the_tuned_configuration_and_says_so),
        TEST(a_warmed_cache_serves_prepare_on_each_device_of_its_tables),
        TEST(in_strict_mode_the_own_choice_serves_where_the_tuned_one_was_not_warmed),
        TEST(strict_without_anything_warmed_still_names_the_tuned_kernel),
        TEST(a_warm_without_a_device_serves_devices_with_fewer_sms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

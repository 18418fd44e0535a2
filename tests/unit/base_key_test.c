// SPDX-License-Identifier: Apache-2.0
// Keys: no two contents have the same bytes, hostile bytes are refused, and the hash is XXH3-128 in canonical form.
#include "base/key.h"

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void the_bytes_are_tag_length_content(void **state)
{
    qn_text key = QN_TEXT_INIT;
    static const unsigned char wanted[] = {'s',  2,    0,    0,    0,    0,    0, 0, 0, 'a',  'b', //
                                           'i',  8,    0,    0,    0,    0,    0, 0, 0, 0xfe, 0xff,
                                           0xff, 0xff, 0xff, 0xff, 0xff, 0xff, //
                                           'n',  0,    0,    0,    0,    0,    0, 0, 0};

    (void)state;
    qn_key_put_string(&key, 's', "ab");
    qn_key_put_int(&key, 'i', -2);
    qn_key_put_bytes(&key, 'n', NULL, 0);
    assert_int_equal(key.length, sizeof wanted);
    assert_memory_equal(key.bytes, wanted, sizeof wanted);
    qn_text_fini(&key);
}

// Contents that a writer without tags and lengths would confuse.
static void put_case(qn_text *key, int which)
{
    switch (which) {
    case 0:
        qn_key_put_string(key, 'a', "bc");
        break;
    case 1:
        qn_key_put_string(key, 'b', "bc");
        break;
    case 2:
        qn_key_put_string(key, 'a', "b"), qn_key_put_string(key, 'a', "c");
        break;
    case 3:
        qn_key_put_string(key, 'a', "b"), qn_key_put_string(key, 'c', "");
        break;
    case 4:
        qn_key_put_string(key, 'a', ""), qn_key_put_string(key, 'a', "bc");
        break;
    case 5:
        qn_key_put_string(key, 'a', "bc"), qn_key_put_string(key, 'a', "");
        break;
    case 6:
        qn_key_put_int(key, 'a', 'b');
        break;
    case 7:
        qn_key_put_bytes(key, 'a', "b\0\0\0\0\0\0", 7);
        break;
    case 8:
        qn_key_put_bytes(key, 'a', "a\1\0\0\0\0\0\0\0c", 10);
        break;
    case 9:
        qn_key_put_string(key, 'a', ""), qn_key_put_string(key, 'a', "c");
        break;
    case 10:
        break;
    default:
        qn_key_put_string(key, 'a', "cb");
        break;
    }
}

static void different_contents_give_different_keys(void **state)
{
    enum { CASES = 12 };
    qn_text key[CASES];

    (void)state;
    memset(key, 0, sizeof key);
    for (int i = 0; i < CASES; i++) {
        put_case(&key[i], i);
        for (int j = 0; j < i; j++) {
            bool same = key[i].length == key[j].length &&
                        !memcmp(qn_text_string(&key[i]), qn_text_string(&key[j]), key[i].length);
            if (same) fail_msg("cases %d and %d have the same key", i, j);
        }
    }
    for (int i = 0; i < CASES; i++) qn_text_fini(&key[i]);
}

static void items_come_back_in_order(void **state)
{
    qn_text key = QN_TEXT_INIT;
    qn_key_item item;
    size_t at = 0;

    (void)state;
    qn_key_put_string(&key, 'x', "one");
    qn_key_put_int(&key, 'y', 0x0102030405060708);
    assert_true(qn_key_next(key.bytes, key.length, &at, &item));
    assert_int_equal(item.tag, 'x');
    assert_int_equal(item.count, 3);
    assert_memory_equal(item.bytes, "one", 3);
    assert_true(qn_key_next(key.bytes, key.length, &at, &item));
    assert_int_equal(item.tag, 'y');
    assert_memory_equal(item.bytes, "\x08\x07\x06\x05\x04\x03\x02\x01", 8);
    assert_false(qn_key_next(key.bytes, key.length, &at, &item));
    assert_int_equal(at, key.length);
    qn_text_fini(&key);
}

static void cut_or_lying_bytes_end_the_walk(void **state)
{
    qn_text key = QN_TEXT_INIT;
    qn_key_item item;

    (void)state;
    qn_key_put_string(&key, 'x', "one");
    for (size_t length = 0; length < key.length; length++) {
        size_t at = 0;
        assert_false(qn_key_next(key.bytes, length, &at, &item));
        assert_int_equal(at, 0);
    }
    memset(key.bytes + 1, 0xff, 8); // a length near 2^64
    size_t at = 0;
    assert_false(qn_key_next(key.bytes, key.length, &at, &item));
    at = SIZE_MAX;
    assert_false(qn_key_next(key.bytes, key.length, &at, &item));
    qn_text_fini(&key);
}

// The vectors are what `xxhsum -H2` prints (hash of nothing, and of "quern").
static void the_hash_is_xxh3_128_in_canonical_form(void **state)
{
    char hex[33];
    qn_hash hash = qn_hash_bytes(NULL, 0);

    (void)state;
    qn_hash_hex(&hash, hex);
    assert_string_equal(hex, "99aa06d3014798d86001c324468d497f");
    hash = qn_hash_bytes("quern", 5);
    qn_hash_hex(&hash, hex);
    assert_string_equal(hex, "d483a383bc596930ea0d8941912eac6d");
}

static void a_files_hash_is_that_of_its_bytes(void **state)
{
    static char block[200000];
    char path[] = "/tmp/quern-key-XXXXXX";
    qn_hash of_file, of_bytes;
    int fd = mkstemp(path);

    (void)state;
    for (size_t i = 0; i < sizeof block; i++) block[i] = (char)(i * 31 >> 3);
    assert_true(fd >= 0 && write(fd, block, sizeof block) == (ssize_t)sizeof block);
    close(fd);
    assert_int_equal(qn_hash_file(path, &of_file), QUERN_OK);
    of_bytes = qn_hash_bytes(block, sizeof block);
    assert_memory_equal(&of_file, &of_bytes, sizeof of_file);
    unlink(path);
    assert_int_equal(qn_hash_file(path, &of_file), QUERN_FILE_ERROR);
    assert_non_null(strstr(quern_message(), path));
    assert_int_equal(qn_hash_file("/", &of_file), QUERN_FILE_ERROR);
    assert_memory_equal(&of_file, &of_bytes, sizeof of_file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_are_tag_length_content),
        cmocka_unit_test(different_contents_give_different_keys),
        cmocka_unit_test(items_come_back_in_order),
        cmocka_unit_test(cut_or_lying_bytes_end_the_walk),
        cmocka_unit_test(the_hash_is_xxh3_128_in_canonical_form),
        cmocka_unit_test(a_files_hash_is_that_of_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

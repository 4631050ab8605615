/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a typing slip finds the name that was meant, and nonsense finds none.
 * Method: known distances by hand, symmetric both ways; then words against a small vocabulary.
 */
#include "base/nearest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"

/* Without a zero byte behind, where ASan would see a look. */
static char *exact_copy(const char *text, size_t length)
{
    char *copy = malloc(length > 0 ? length : 1);
    assert_non_null(copy);
    memcpy(copy, text, length);
    return copy;
}

static void test_distance(void **state)
{
    (void)state;
    static const struct {
        const char *a;
        const char *b;
        size_t distance;
    } cases[] = {
        {"", "", 0},
        {"", "abc", 3},
        {"serve", "serve", 0},
        {"serve", "SERVE", 0},
        {"srve", "serve", 1},
        {"sserve", "serve", 1},
        {"sarve", "serve", 1},
        {"sevre", "serve", 1},
        {"esrve", "serve", 1},
        {"serev", "serve", 1},
        {"ca", "abc", 3}, /* 2 if unrestricted. */
        {"kitten", "sitting", 3},
        {"volume", "top", 5},
    };
    for (size_t i = 0; i < FW_ARRAY_LENGTH(cases); i++) {
        size_t a_length = strlen(cases[i].a);
        size_t b_length = strlen(cases[i].b);
        char *a = exact_copy(cases[i].a, a_length);
        char *b = exact_copy(cases[i].b, b_length);
        assert_int_equal(fw_nearest_distance(a, a_length, b, b_length), cases[i].distance);
        assert_int_equal(fw_nearest_distance(b, b_length, a, a_length), cases[i].distance);
        free(a);
        free(b);
    }
}

static const char *nearest_of(struct fw_nearest *nearest, const char *word)
{
    static const char *const names[] = {"serve", "stats", "volume", "version", "help", "port", "m"};
    fw_nearest_init(nearest, word, strlen(word));
    for (size_t i = 0; i < FW_ARRAY_LENGTH(names); i++) {
        fw_nearest_offer(nearest, names[i], strlen(names[i]));
    }
    return fw_nearest_found(nearest) ? nearest->best : "(none)";
}

static void test_nearest(void **state)
{
    (void)state;
    struct fw_nearest nearest;
    assert_string_equal(nearest_of(&nearest, "srve"), "serve");
    assert_string_equal(nearest_of(&nearest, "sevre"), "serve");
    assert_string_equal(nearest_of(&nearest, "server"), "serve");
    assert_string_equal(nearest_of(&nearest, "HELP"), "help");
    assert_string_equal(nearest_of(&nearest, "versoin"), "version");
    assert_string_equal(nearest_of(&nearest, "prot"), "port");
    assert_string_equal(nearest_of(&nearest, "sttas"), "stats");
    assert_string_equal(nearest_of(&nearest, "ver"), "version"); /* Its beginning. */
    assert_string_equal(nearest_of(&nearest, "VO"), "volume");
    assert_string_equal(nearest_of(&nearest, "v"), "(none)");
    assert_string_equal(nearest_of(&nearest, "pint"), "(none)");  /* Two slips in four letters. */
    assert_string_equal(nearest_of(&nearest, "sxaxs"), "stats");  /* In five they are allowed, */
    assert_string_equal(nearest_of(&nearest, "sxaxx"), "(none)"); /* but not three. */
    assert_string_equal(nearest_of(&nearest, "xyzzy"), "(none)");
    assert_string_equal(nearest_of(&nearest, "frobnicate"), "(none)");
    assert_string_equal(nearest_of(&nearest, "x"), "(none)"); /* One slip from "m", yet no guess. */
    assert_string_equal(nearest_of(&nearest, ""), "(none)");
}

/* A slip beats a beginning, whichever is offered first. */
static void test_slip_beats_beginning(void **state)
{
    (void)state;
    struct fw_nearest nearest;
    fw_nearest_init(&nearest, "port", 4);
    fw_nearest_offer(&nearest, "portable-names", 14);
    assert_string_equal(nearest.best, "portable-names");
    fw_nearest_offer(&nearest, "ports", 5);
    assert_string_equal(nearest.best, "ports");
    fw_nearest_offer(&nearest, "portable-names", 14);
    assert_string_equal(nearest.best, "ports");
}

static void test_first_of_equals_stays(void **state)
{
    (void)state;
    struct fw_nearest nearest;
    fw_nearest_init(&nearest, "statx", 5);
    fw_nearest_offer(&nearest, "staty", 5);
    fw_nearest_offer(&nearest, "statz", 5);
    assert_string_equal(nearest.best, "staty");
    fw_nearest_offer(&nearest, "statx", 5);
    assert_string_equal(nearest.best, "statx");
}

/* A word longer than the name does not begin it, whatever stands behind the name in memory. */
static void test_beginning_is_within_the_name(void **state)
{
    (void)state;
    struct fw_nearest nearest;
    fw_nearest_init(&nearest, "ab", 2);
    fw_nearest_offer(&nearest, "ab", 1);
    assert_false(fw_nearest_found(&nearest));
}

static void test_long_words(void **state)
{
    (void)state;
    char word[FW_NEAREST_LENGTH_MAX + 1];
    memset(word, 'a', sizeof word);
    struct fw_nearest nearest;

    fw_nearest_init(&nearest, word, FW_NEAREST_LENGTH_MAX);
    fw_nearest_offer(&nearest, word, FW_NEAREST_LENGTH_MAX + 1);
    assert_false(fw_nearest_found(&nearest));
    fw_nearest_offer(&nearest, word, FW_NEAREST_LENGTH_MAX);
    assert_true(fw_nearest_found(&nearest));
    assert_int_equal(strlen(nearest.best), FW_NEAREST_LENGTH_MAX);

    fw_nearest_init(&nearest, word, FW_NEAREST_LENGTH_MAX + 1);
    fw_nearest_offer(&nearest, word, FW_NEAREST_LENGTH_MAX);
    assert_false(fw_nearest_found(&nearest));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distance),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_slip_beats_beginning),
        cmocka_unit_test(test_first_of_equals_stays),
        cmocka_unit_test(test_beginning_is_within_the_name),
        cmocka_unit_test(test_long_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

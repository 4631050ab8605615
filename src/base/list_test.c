/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: elements keep their order through every way of adding, removing and joining lists, and a
 * link knows whether it is on a list. Method: after each operation the list is read forwards along
 * `next` and backwards along `previous` and both are compared with what it should hold, so that a
 * forgotten pointer of either direction shows. Misuse must end in an assertion.
 */
#include "base/list.h"

#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { TASKS = 6 };

/* The link is not the first member, so that FW_LIST_ENTRY has something to subtract. */
struct task {
    char name;
    struct fw_list_link link;
};

static struct fw_list list, other;
static struct task tasks[TASKS];

static int setup(void **state)
{
    (void)state;
    fw_list_init(&list);
    fw_list_init(&other);
    for (int i = 0; i < TASKS; i++) {
        tasks[i].name = (char)('a' + i);
        fw_list_link_init(&tasks[i].link);
    }
    return 0;
}

/* Asserts that `actual` holds the tasks named by `expected`, in this order, both ways round. */
static void assert_list(const struct fw_list *actual, const char *expected)
{
    char forwards[TASKS + 1] = "";
    char backwards[TASKS + 1] = "";
    size_t count = 0;
    FW_LIST_FOR_EACH (actual, const struct task, link, task) {
        assert_true(fw_list_is_linked(&task->link));
        if (count == TASKS) {
            break; /* Round and round. */
        }
        forwards[count++] = task->name;
    }
    assert_string_equal(forwards, expected);
    size_t at = TASKS; /* Filled from its end. */
    for (struct fw_list_link *link = actual->head.previous; link != &actual->head && at > 0;
         link = link->previous) {
        backwards[--at] = FW_LIST_ENTRY(link, const struct task, link)->name;
    }
    assert_string_equal(&backwards[at], expected);
    assert_int_equal(fw_list_is_empty(actual), expected[0] == '\0');
}

static void push_back_all(struct fw_list *to, int from, int count)
{
    for (int i = from; i < from + count; i++) {
        fw_list_push_back(to, &tasks[i].link);
    }
}

static void test_push(void **state)
{
    (void)state;
    assert_list(&list, "");
    assert_null(fw_list_first(&list));
    fw_list_push_back(&list, &tasks[1].link);
    assert_list(&list, "b");
    fw_list_push_back(&list, &tasks[2].link);
    assert_list(&list, "bc");
    fw_list_push_front(&list, &tasks[0].link);
    assert_list(&list, "abc");
    fw_list_insert_between(&tasks[3].link, &tasks[0].link, &tasks[1].link);
    assert_list(&list, "adbc");
    assert_ptr_equal(fw_list_first(&list), &tasks[0].link);
    fw_list_push_front(&other, &tasks[4].link); /* The first of an empty list from this end too. */
    assert_list(&other, "e");
}

static void test_remove(void **state)
{
    (void)state;
    push_back_all(&list, 0, 4);
    fw_list_remove(&tasks[1].link); /* The middle, */
    assert_list(&list, "acd");
    assert_false(fw_list_is_linked(&tasks[1].link));
    assert_null(tasks[1].link.next); /* Points nowhere, as the header says. */
    assert_null(tasks[1].link.previous);
    fw_list_remove(&tasks[0].link); /* the first, */
    assert_list(&list, "cd");
    fw_list_remove(&tasks[3].link); /* the last, */
    assert_list(&list, "c");
    fw_list_remove(&tasks[2].link); /* the only one. */
    assert_list(&list, "");
    fw_list_push_back(&list, &tasks[1].link); /* What was removed can come back. */
    assert_list(&list, "b");
}

static void test_pop(void **state)
{
    (void)state;
    assert_null(fw_list_pop_front(&list));
    push_back_all(&list, 0, 2);
    assert_ptr_equal(fw_list_pop_front(&list), &tasks[0].link);
    assert_false(fw_list_is_linked(&tasks[0].link));
    assert_list(&list, "b");
    assert_ptr_equal(fw_list_pop_front(&list), &tasks[1].link);
    assert_list(&list, "");
    assert_null(fw_list_pop_front(&list));
}

static void test_append(void **state)
{
    (void)state;
    fw_list_append(&list, &other); /* Nothing to nothing, */
    assert_list(&list, "");
    push_back_all(&other, 0, 2);
    fw_list_append(&list, &other); /* two to nothing, */
    assert_list(&list, "ab");
    assert_list(&other, "");
    fw_list_append(&list, &other); /* nothing to two, */
    assert_list(&list, "ab");
    push_back_all(&other, 2, 3);
    fw_list_append(&list, &other); /* three to two. */
    assert_list(&list, "abcde");
    assert_list(&other, "");
    push_back_all(&other, 5, 1); /* Both still work. */
    assert_list(&other, "f");
    fw_list_remove(&tasks[4].link);
    assert_list(&list, "abcd");
}

/* The walk ends at the head, which need not lie where such an element could. UBSan looks on. */
static void test_walk_of_aligned_elements(void **state)
{
    (void)state;
    struct aligned {
        alignas(64) int number;
        struct fw_list_link link;
    } elements[2] = {{.number = 1}, {.number = 2}};
    struct {
        alignas(64) struct fw_list lists[2]; /* Two at different distances from an alignment. */
    } heads;
    for (int i = 0; i < 2; i++) {
        int sum = 0;
        fw_list_init(&heads.lists[i]);
        fw_list_push_back(&heads.lists[i], &elements[0].link);
        fw_list_push_back(&heads.lists[i], &elements[1].link);
        FW_LIST_FOR_EACH (&heads.lists[i], struct aligned, link, element) {
            sum = 10 * sum + element->number;
        }
        assert_int_equal(sum, 12);
        fw_list_remove(&elements[0].link);
        fw_list_remove(&elements[1].link);
    }
}

static void test_misuse_asserts(void **state)
{
    (void)state;
    struct fw_list_link zeroed = {0};
    assert_false(fw_list_is_linked(&zeroed));
    fw_list_push_back(&list, &zeroed);
    expect_assert_failure(fw_list_push_back(&list, &zeroed));
    expect_assert_failure(fw_list_push_front(&other, &zeroed)); /* One list at a time. */
    fw_list_remove(&zeroed);
    expect_assert_failure(fw_list_remove(&zeroed));
    assert_list(&list, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_push, setup),
        cmocka_unit_test_setup(test_remove, setup),
        cmocka_unit_test_setup(test_pop, setup),
        cmocka_unit_test_setup(test_append, setup),
        cmocka_unit_test(test_walk_of_aligned_elements),
        cmocka_unit_test_setup(test_misuse_asserts, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

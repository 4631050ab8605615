/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a range takes addresses and no memory, what is enabled can be used, what is given back is
 * zero and takes no memory, and no addresses is an error with a reason.
 * Method: reserve far more than the machine has; ask mincore() what is there; ask for more than
 * there is.
 */
#include "io/range.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

static size_t pages_present(const struct fw_range *range, size_t offset, size_t size)
{
    unsigned char present[64];
    size_t unit = fw_range_unit();
    assert_true(size / unit <= sizeof present);
    assert_int_equal(mincore(range->memory + offset, size, present), 0);
    size_t count = 0;
    for (size_t i = 0; i < size / unit; i++) {
        count += present[i] & 1;
    }
    return count;
}

static void test_life(void **state)
{
    (void)state;
    struct fw_range range;
    size_t unit = fw_range_unit();
    assert_int_equal(fw_range_reserve(&range, (size_t)1 << 36, FW_RANGE_SMALL, NULL), 0);
    assert_int_equal((uintptr_t)range.memory % FW_RANGE_ALIGNMENT, 0);
    size_t offset = ((size_t)1 << 36) - 16 * unit; /* Up to the last byte. */
    assert_int_equal(fw_range_enable(&range, offset, 16 * unit), 0);
    assert_int_equal(pages_present(&range, offset, 16 * unit), 0);
    for (size_t i = 0; i < 16 * unit; i++) {
        assert_int_equal(range.memory[offset + i], 0);
        range.memory[offset + i] = 'x';
    }
    assert_int_equal(pages_present(&range, offset, 16 * unit), 16);
    fw_range_give_back(&range, offset + unit, 3 * unit);
    assert_int_equal(pages_present(&range, offset, 16 * unit), 13);
    assert_int_equal(range.memory[offset + unit], 0);
    assert_int_equal(range.memory[offset + 4 * unit - 1], 0);
    assert_int_equal(range.memory[offset + unit - 1], 'x');
    assert_int_equal(range.memory[offset + 4 * unit], 'x');
    assert_int_equal(fw_range_enable(&range, offset, 16 * unit), 0); /* Again: nothing changes. */
    assert_int_equal(range.memory[offset], 'x');
    fw_range_release(&range);
}

/* Whether the kernel has huge pages or not: the bytes stay, and what is given back is gone. */
static void test_collapse(void **state)
{
    (void)state;
    struct fw_range range;
    size_t unit = fw_range_unit();
    size_t size = 2 * (size_t)FW_RANGE_HUGE_PAGE;
    assert_int_equal(fw_range_reserve(&range, size, FW_RANGE_HUGE, NULL), 0);
    assert_int_equal((uintptr_t)range.memory % FW_RANGE_HUGE_PAGE, 0);
    for (size_t offset = 0; offset < size; offset += 16 * unit) {
        assert_int_equal(fw_range_enable(&range, offset, 16 * unit), 0);
        memset(range.memory + offset, (int)(offset / unit % 100), 16 * unit);
    }
    bool can = fw_range_collapse(&range, FW_RANGE_HUGE_PAGE);
    print_message("the kernel %s\n", can ? "made a huge page" : "has no huge pages");
    for (size_t offset = 0; offset < size; offset += 16 * unit) {
        assert_int_equal(range.memory[offset], offset / unit % 100);
        assert_int_equal(range.memory[offset + 16 * unit - 1], offset / unit % 100);
    }
    fw_range_give_back(&range, 16 * unit, 16 * unit);
    assert_int_equal(pages_present(&range, 16 * unit, 16 * unit), 0);
    assert_int_equal(pages_present(&range, 0, 16 * unit), 16);
    assert_false(fw_range_collapse(&range, 0)); /* It would all be there again. */
    assert_int_equal(pages_present(&range, 16 * unit, 16 * unit), 0);
    assert_int_equal(range.memory[16 * unit], 0);
    assert_int_equal(range.memory[32 * unit], 32);
    expect_assert_failure((void)fw_range_collapse(&range, unit));
    fw_range_release(&range);

    assert_int_equal(fw_range_reserve(&range, size, FW_RANGE_SMALL, NULL), 0);
    assert_false(fw_range_collapse(&range, 0));
    fw_range_release(&range);
}

/* The linker (--wrap) sends our calls here: what is asked for is noted, and may be refused. */
int __real_madvise(void *memory, size_t size, int advice);
int __wrap_madvise(void *memory, size_t size, int advice);
int __real_mprotect(void *memory, size_t size, int protection);
int __wrap_mprotect(void *memory, size_t size, int protection);

enum { COLLAPSE = 25 }; /* MADV_COLLAPSE, which old headers do not have. */

static struct {
    int small_pages; /* So often MADV_NOHUGEPAGE was asked for, ... */
    const void *small_memory;
    size_t small_size;
    int collapses; /* ... and so often MADV_COLLAPSE. */
    bool answers;  /* The latter does nothing and returns `answer`. */
    int answer;
    bool no_memory;
} fake;

int __wrap_madvise(void *memory, size_t size, int advice)
{
    if (advice == MADV_NOHUGEPAGE) {
        fake.small_pages++;
        fake.small_memory = memory;
        fake.small_size = size;
    }
    if (advice == COLLAPSE) {
        fake.collapses++;
        if (fake.answers) {
            return fake.answer;
        }
    }
    return __real_madvise(memory, size, advice);
}

int __wrap_mprotect(void *memory, size_t size, int protection)
{
    if (fake.no_memory) {
        errno = ENOMEM;
        return -1;
    }
    return __real_mprotect(memory, size, protection);
}

/* Small pages are asked for at once, or when something is given back and not before, and once. */
static void test_what_the_system_is_told(void **state)
{
    (void)state;
    struct fw_range range;
    size_t size = 2 * (size_t)FW_RANGE_HUGE_PAGE;
    memset(&fake, 0, sizeof fake);
    fake.answers = true;
    assert_int_equal(fw_range_reserve(&range, size, FW_RANGE_SMALL, NULL), 0);
    assert_int_equal(fake.small_pages, 1);
    assert_ptr_equal(fake.small_memory, range.mapped);
    assert_int_equal(fake.small_size, range.mapped_size);
    assert_false(fw_range_collapse(&range, 0));
    assert_int_equal(fake.collapses, 0);
    fw_range_release(&range);
    assert_null(range.memory);

    memset(&fake, 0, sizeof fake);
    fake.answers = true;
    assert_int_equal(fw_range_reserve(&range, size, FW_RANGE_HUGE, NULL), 0);
    assert_true(fw_range_collapse(&range, FW_RANGE_HUGE_PAGE));
    assert_int_equal(fake.collapses, 1);
    fake.answer = -1;
    assert_false(fw_range_collapse(&range, FW_RANGE_HUGE_PAGE));
    assert_int_equal(fake.small_pages, 0);
    for (int i = 0; i < 2; i++) {
        fw_range_give_back(&range, 0, fw_range_unit());
        assert_int_equal(fake.small_pages, 1);
    }
    assert_ptr_equal(fake.small_memory, range.mapped);
    assert_int_equal(fake.small_size, range.mapped_size);
    fake.answer = 0;
    assert_false(fw_range_collapse(&range, FW_RANGE_HUGE_PAGE));
    assert_int_equal(fake.collapses, 2);
    fake.no_memory = true;
    assert_int_equal(fw_range_enable(&range, 0, fw_range_unit()), -ENOMEM);
    fw_range_release(&range);
    memset(&fake, 0, sizeof fake);
}

static void test_misuse(void **state)
{
    (void)state;
    struct fw_range range;
    size_t unit = fw_range_unit();
    assert_int_equal(fw_range_reserve(&range, 4 * unit, FW_RANGE_SMALL, NULL), 0);
    expect_assert_failure((void)(fw_range_enable(&range, 0, 5 * unit) == 0));
    expect_assert_failure((void)(fw_range_enable(&range, 5 * unit, 0) == 0));
    expect_assert_failure(fw_range_give_back(&range, 1, unit));
    fw_range_release(&range);
    expect_assert_failure(fw_range_give_back(&range, 0, unit));
}

static void test_no_addresses(void **state)
{
    (void)state;
    struct fw_range range;
    struct fw_reason reason = {.text = ""};
    assert_int_equal(fw_range_reserve(&range, (size_t)1 << 60, FW_RANGE_HUGE, &reason), -ENOMEM);
    assert_non_null(strstr(reason.text, "1099511627776 MiB of addresses"));
    size_t most = SIZE_MAX & ~(fw_range_unit() - 1); /* The alignment on top does not fit. */
    assert_int_equal(fw_range_reserve(&range, most, FW_RANGE_SMALL, &reason), -ENOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_collapse),
        cmocka_unit_test(test_what_the_system_is_told),
        cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_no_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

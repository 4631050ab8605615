/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lets a unit test run out of memory where it wants to.
 *
 *     fail_memory_after(0);
 *     assert_int_equal(fw_spsc_init(&ring, 4), -ENOMEM);
 *
 * A test program that has the dependency `fail_memory` is linked so that its calls of malloc(),
 * calloc(), realloc() and aligned_alloc(), and those of the libraries it contains, come through
 * here. Calls from shared libraries (the C library, cmocka) do not. Not the usual interposed
 * malloc(): the sanitizers have one already, and ours calls whichever there is.
 */
#pragma once

/*
 * `count` more allocations succeed, the one after them fails, and all later ones succeed again.
 * One counter for all threads, to be set while only the test's own thread allocates.
 */
void fail_memory_after(int count);

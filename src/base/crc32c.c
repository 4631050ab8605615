/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crc32c.h"

#include <endian.h>
#include <stdatomic.h>
#include <string.h>

#include "base/assert.h"
#include "base/thread.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

/*
 * Bits are reflected throughout, as the standard wants: bit 31 of a word is the coefficient of x^0.
 * The polynomial is x^32 + 0x1EDC6F41, which reflected and without its highest term is this.
 */
#define CRC32C_POLYNOMIAL UINT32_C(0x82F63B78)

enum { WORD = sizeof(uint64_t) };

static uint64_t load_word(const unsigned char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return le64toh(word);
}

/*
 * The tables: entry [k][b] is the effect of byte b when k more bytes follow it in the same word.
 *
 * They are filled by the first who needs them, and by all who come before that one is done: each
 * stores the same values. Entries are relaxed because table_ready orders them.
 */
static _Atomic uint32_t table[WORD][256];
static _Atomic bool table_ready;

static uint32_t table_get(size_t following, uint64_t byte)
{
    return atomic_load_explicit(&table[following][byte & 0xff], memory_order_relaxed);
}

static void table_fill(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (crc & 1 ? CRC32C_POLYNOMIAL : 0);
        }
        atomic_store_explicit(&table[0][byte], crc, memory_order_relaxed);
    }
    FW_YIELD_POINT("crc32c: filled one table of eight");
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = table_get(0, byte);
        for (size_t following = 1; following < WORD; following++) {
            crc = (crc >> 8) ^ table_get(0, crc);
            atomic_store_explicit(&table[following][byte], crc, memory_order_relaxed);
        }
    }
    /* Release, for the acquire in fw_crc32c_table(). */
    atomic_store_explicit(&table_ready, true, memory_order_release);
}

uint32_t fw_crc32c_table(uint32_t crc, const void *data, size_t length)
{
    /* Acquire, for the release in table_fill(): who sees it true sees all entries. */
    if (!atomic_load_explicit(&table_ready, memory_order_acquire)) {
        table_fill();
    }
    const unsigned char *bytes = data;
    crc = ~crc;
    for (; length >= WORD; bytes += WORD, length -= WORD) {
        uint64_t word = load_word(bytes) ^ crc;
        crc = table_get(7, word) ^ table_get(6, word >> 8) ^ table_get(5, word >> 16) ^
              table_get(4, word >> 24) ^ table_get(3, word >> 32) ^ table_get(2, word >> 40) ^
              table_get(1, word >> 48) ^ table_get(0, word >> 56);
    }
    for (; length > 0; bytes++, length--) {
        crc = (crc >> 8) ^ table_get(0, crc ^ *bytes);
    }
    return ~crc;
}

#if defined(__x86_64__)

/*
 * The instruction takes eight bytes in three cycles, but can start one in each. So long data is cut
 * into blocks of three stripes whose checksums are computed side by side and then joined. Stripes
 * of 256 bytes: shorter ones join too often, longer ones leave too much of a 4 KiB page to the slow
 * rest.
 */
enum { STRIPE = 256, BLOCK = 3 * STRIPE };

/*
 * To join, a checksum is moved over the n bytes that follow it, which is a multiplication by
 * x^(8 n) modulo the polynomial. A carry-less product of two reflected words comes out multiplied
 * by x, the instruction that reduces it multiplies by x^32, so the factor is x^(8 n - 33).
 */
#define OVER_ONE_STRIPE  UINT64_C(0xB9E02B86) /* x^2015 */
#define OVER_TWO_STRIPES UINT64_C(0xDD7E3B0C) /* x^4063 */

#define CRC32C_TARGET __attribute__((target("sse4.2,pclmul")))

CRC32C_TARGET static inline uint64_t crc_times(uint64_t crc, uint64_t factor)
{
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc),
                                           _mm_cvtsi64_si128((long long)factor), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

CRC32C_TARGET static uint64_t crc_block(uint64_t crc, const unsigned char *bytes)
{
    uint64_t first = crc, second = 0, third = 0;
    for (const unsigned char *end = bytes + STRIPE; bytes < end; bytes += WORD) {
        first = _mm_crc32_u64(first, load_word(bytes));
        second = _mm_crc32_u64(second, load_word(bytes + STRIPE));
        third = _mm_crc32_u64(third, load_word(bytes + STRIPE + STRIPE));
    }
    uint64_t moved = crc_times(first, OVER_TWO_STRIPES) ^ crc_times(second, OVER_ONE_STRIPE);
    return _mm_crc32_u64(0, moved) ^ third;
}

CRC32C_TARGET uint32_t fw_crc32c_hardware(uint32_t crc, const void *data, size_t length)
{
    const unsigned char *bytes = data;
    uint64_t wide = ~crc; /* The instruction's operand; its upper half stays zero. */
    for (; length >= BLOCK; bytes += BLOCK, length -= BLOCK) {
        wide = crc_block(wide, bytes);
    }
    for (; length >= WORD; bytes += WORD, length -= WORD) {
        wide = _mm_crc32_u64(wide, load_word(bytes));
    }
    crc = (uint32_t)wide;
    for (; length > 0; bytes++, length--) {
        crc = _mm_crc32_u8(crc, *bytes);
    }
    return ~crc;
}

bool fw_crc32c_has_hardware(void)
{
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

#elif defined(__ARM_FEATURE_CRC32)

uint32_t fw_crc32c_hardware(uint32_t crc, const void *data, size_t length)
{
    const unsigned char *bytes = data;
    crc = ~crc;
    for (; length >= WORD; bytes += WORD, length -= WORD) {
        crc = __crc32cd(crc, load_word(bytes));
    }
    for (; length > 0; bytes++, length--) {
        crc = __crc32cb(crc, *bytes);
    }
    return ~crc;
}

bool fw_crc32c_has_hardware(void)
{
    return true;
}

#else

uint32_t fw_crc32c_hardware(uint32_t crc, const void *data, size_t length)
{
    FW_ASSERT(fw_crc32c_has_hardware());
    return fw_crc32c_table(crc, data, length);
}

bool fw_crc32c_has_hardware(void)
{
    return false;
}

#endif

static uint32_t crc32c_choose(uint32_t crc, const void *data, size_t length);

/* Relaxed: the functions it may point to need nothing that was stored before it. */
static uint32_t (*_Atomic crc32c_chosen)(uint32_t crc, const void *data,
                                         size_t length) = crc32c_choose;

static uint32_t crc32c_choose(uint32_t crc, const void *data, size_t length)
{
    bool hardware = fw_crc32c_has_hardware();
    atomic_store_explicit(&crc32c_chosen, hardware ? fw_crc32c_hardware : fw_crc32c_table,
                          memory_order_relaxed);
    return fw_crc32c(crc, data, length);
}

uint32_t fw_crc32c(uint32_t crc, const void *data, size_t length)
{
    return atomic_load_explicit(&crc32c_chosen, memory_order_relaxed)(crc, data, length);
}

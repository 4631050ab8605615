/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: the meta commands answer as memcached 1.6.18 does, to the byte: flags in their order, who
 * wins and what is stale, errors and which of several, what quiet commands leave out.
 * Method: tables of what is said and what memcached answered to it, each on an empty cache. Then a
 * conversation with every command is cut in two at each of its bytes and said byte by byte: the
 * answers must stay the same. What depends on the clock is looked at with the clock set by hand.
 */
#include "cache/meta.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cache/base64.h"
#include "support/conversation.h"

enum { LARGE = 9000 };

/* "c" and a number: the number of a CAS, of which only the order is promised. */
static uint64_t ask_cas(const char *said)
{
    const char *answer = ask(said);
    const char *found = strstr(answer, " c");
    assert_non_null(found);
    return strtoull(found + 2, NULL, 10);
}

struct exchange {
    const char *said;
    const char *answered;
};

/* Each on an empty cache and a new connection. */
static void converse_through(const struct exchange *exchanges, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        converse_reconnect(converse);
        fw_operation_flush(&converse->local, 0);
        const char *answer = ask(exchanges[i].said);
        if (strcmp(answer, exchanges[i].answered) != 0) {
            print_error("said: %s\n", exchanges[i].said);
        }
        assert_string_equal(answer, exchanges[i].answered);
        assert_false(converse->is_closed);
    }
}

#define CONVERSE(exchanges) converse_through(exchanges, FW_ARRAY_LENGTH(exchanges))

#define LONG_OPAQUE "Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" /* 33 characters. */
#define FULL_OPAQUE "Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"  /* 32 */

static void test_get(void **state)
{
    (void)state;
    static const struct exchange exchanges[] = {
        {"mg a\r\n", "EN\r\n"},
        {"mg a v Ofoo k\r\n", "EN Ofoo ka\r\n"},
        {"mg a k Ofoo q\r\nmn\r\n", "MN\r\n"},
        {"ms a 2 T0 F5\r\nhi\r\nmg a s v f t h l k O12 \r\n",
         "HD\r\nVA 2 s2 f5 t-1 h0 l0 ka O12\r\nhi\r\n"},
        {"ms a 2\r\nhi\r\nmg a\r\nmg a O\r\nmg a OLP k\r\n", "HD\r\nHD\r\nHD O\r\nHD OLP ka\r\n"},
        {"ms a 2\r\nhi\r\nmg a q\r\nmg a q v\r\n", "HD\r\nHD\r\nVA 2\r\nhi\r\n"},
        {"ms a 2\r\nhi\r\nmg a " FULL_OPAQUE "\r\n", "HD\r\nHD " FULL_OPAQUE "\r\n"},
        {"ms a 2\r\nhi\r\nmg a " LONG_OPAQUE "\r\n",
         "HD\r\nCLIENT_ERROR opaque token too long\r\n"},
        {"ms a 2\r\nhi\r\nmg a " LONG_OPAQUE "\r\nmg a h\r\n",
         "HD\r\nCLIENT_ERROR opaque token too long\r\nHD h1\r\n"},
        {"ms a 2\r\nhi\r\nmg a l " LONG_OPAQUE "\r\nmg a h\r\n",
         "HD\r\nCLIENT_ERROR opaque token too long\r\nHD h0\r\n"},
        {"ms a 2\r\nhi\r\nmg a " LONG_OPAQUE " l\r\nmg a h\r\n",
         "HD\r\nCLIENT_ERROR opaque token too long\r\nHD h0\r\n"},
        {"mg a " LONG_OPAQUE "\r\nmg a q " LONG_OPAQUE "\r\n",
         "CLIENT_ERROR opaque token too long\r\nCLIENT_ERROR opaque token too long\r\n"},
        {"ms a 2 T100\r\nhi\r\nmg a T50 " LONG_OPAQUE "\r\nmg a t\r\n",
         "HD\r\nCLIENT_ERROR opaque token too long\r\nHD t50\r\n"},
        {"ms a 2 T100\r\nhi\r\nmg a t T50\r\nmg a T20 t\r\n", "HD\r\nHD t100\r\nHD t20\r\n"},
        {"ms a 0\r\n\r\nmg a v s\r\n", "HD\r\nVA 0 s0\r\n\r\n"},
        /* Flags of others are taken, and mean nothing. */
        {"ms a 2\r\nhi\r\nmg a D1 J1 MA F1 C1 I L1 P1\r\n", "HD\r\nHD\r\n"},
        {"mg  a   v\r\n mg a v \nmg a\tv\r\n", "EN\r\nEN\r\nEN\r\n"},
        {"ms a 2\r\nhi\r\nmg a v\r\r\n", "HD\r\nVA 2\r\nhi\r\n"},
        /* Read or not, before and after. */
        {"ms a 2\r\nhi\r\nmg a u\r\nmg a h u\r\nmg a h\r\nmg a h\r\n",
         "HD\r\nHD\r\nHD h0\r\nHD h0\r\nHD h1\r\n"},
    };
    CONVERSE(exchanges);
}

static void test_line_errors(void **state)
{
    (void)state;
    static const struct exchange exchanges[] = {
        {"mg\r\nmd\r\nma\r\nms\r\n", "ERROR\r\nERROR\r\nERROR\r\nERROR\r\n"},
        {"me\r\n", "CLIENT_ERROR bad command line format\r\n"},
        {"mn a b\r\nmx a\r\nmgg a\r\n", "MN\r\nERROR\r\nERROR\r\n"},
        {"mg a v v\r\nmg a e\r\nmg a \x80\r\nmg a \x7f\r\n",
         "CLIENT_ERROR duplicate flag\r\nCLIENT_ERROR invalid flag\r\n"
         "CLIENT_ERROR duplicate flag\r\nCLIENT_ERROR duplicate flag\r\n"},
        {"mg a E1\r\nmg a x\r\nmg a S2\r\n",
         "CLIENT_ERROR invalid flag\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR invalid flag\r\n"},
        {"mg a T\r\nmg a Nx\r\nmg a Rx\r\nmg a Cx\r\n",
         "CLIENT_ERROR bad token in command line format\r\n"
         "CLIENT_ERROR bad token in command line format\r\n"
         "CLIENT_ERROR bad token in command line format\r\n"
         "CLIENT_ERROR bad token in command line format\r\n"},
        {"mg a Fx\r\nmg a Jx\r\nmg a Dx\r\nmg a M\r\nmg a Mab\r\n",
         "CLIENT_ERROR bad command line format\r\nCLIENT_ERROR invalid numeric initial value\r\n"
         "CLIENT_ERROR invalid numeric delta value\r\n"
         "CLIENT_ERROR incorrect length for M token\r\n"
         "CLIENT_ERROR incorrect length for M token\r\n"},
        /* Of several errors: the last that has a text, unless reading ends at once. */
        {"mg a b Tx\r\nmg a Tx b\r\nmg a Tx Fx\r\nmg a Tx v v\r\n",
         "CLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR error decoding key\r\n"
         "CLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR duplicate flag\r\n"},
        {"md a x\r\nma a x\r\nmd a v v\r\nma a Dx\r\nmd a b\r\n",
         "CLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\n"
         "CLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\n"
         "CLIENT_ERROR invalid or duplicate flag\r\n"},
        /* 17 flags, and 18. */
        {"mg a O1 k c q T1 F1 C1 MS I1 D1 J1 R1 P1 L1 v s t\r\nmn\r\n"
         "mg a O1 k c q T1 F1 C1 MS I1 D1 J1 R1 P1 L1 v s t h\r\n",
         "MN\r\nCLIENT_ERROR options flags are too long\r\n"},
        {"md a O1 k c q T1 F1 C1 MS I1 D1 J1 R1 P1 L1 v s t h\r\n",
         "CLIENT_ERROR options flags too long\r\n"},
        {"ma a O1 k c q T1 F1 C1 MS I1 D1 J1 R1 P1 L1 v s t h l u f\r\n",
         "CLIENT_ERROR options flags too long\r\n"},
    };
    CONVERSE(exchanges);
}

static void test_key_length(void **state)
{
    (void)state;
    char key[FW_ITEM_KEY_MAX + 2];
    char line[FW_ITEM_KEY_MAX + 32];
    memset(key, 'k', sizeof key);
    key[FW_ITEM_KEY_MAX + 1] = '\0';
    static const char *const commands[] = {"mg", "md", "ma", "me"};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(commands); i++) {
        (void)snprintf(line, sizeof line, "%s %s k\r\n", commands[i], key);
        assert_string_equal(ask(line), "CLIENT_ERROR bad command line format\r\n");
    }
    (void)snprintf(line, sizeof line, "ms %s 2\r\nhi\r\n", key);
    assert_string_equal(ask(line), "CLIENT_ERROR bad command line format\r\nERROR\r\n");
    key[FW_ITEM_KEY_MAX] = '\0';
    (void)snprintf(line, sizeof line, "ms %s 2\r\nhi\r\n", key);
    assert_string_equal(ask(line), "HD\r\n");
    char expected[FW_ITEM_KEY_MAX + 32];
    (void)snprintf(line, sizeof line, "mg %s k\r\n", key);
    (void)snprintf(expected, sizeof expected, "HD k%s\r\n", key);
    assert_string_equal(ask(line), expected);
}

static void test_zero_byte_ends_line(void **state)
{
    (void)state;
    static const char said[] = "ms a 2 \0 x\r\nhi\r\nmg a v\0k\r\nmg a\0b v\r\n";
    converse_say(converse, said, sizeof said - 1, 0);
    assert_string_equal(converse_answer(converse), "HD\r\nVA 2\r\nhi\r\nHD\r\n");
}

static void test_base64(void **state)
{
    (void)state;
    static const struct exchange exchanges[] = {
        {"mg YQ== b k v s f O1\r\n", "EN kYQ== b O1\r\n"},
        {"mg a b v k\r\n", "CLIENT_ERROR error decoding key\r\n"},
        {"ms YQ== 2 k O1 b\r\nhi\r\nmg a k v\r\nmg YQ== b k\r\nme a\r\n",
         "HD kYQ== b O1\r\nVA 2 kYQ== b\r\nhi\r\nHD kYQ== b\r\n"},
        /* Who stores it by its name shows it by its name. */
        {"ms Y2M= 2 b\r\nhi\r\nms cc 2\r\nxx\r\nmg Y2M= b k\r\n", "HD\r\nHD\r\nHD kcc\r\n"},
        {"ms YQ== 2 b\r\nhi\r\nms a 2 MA\r\nzz\r\nmg a k v\r\nms YQ== 2 MP b\r\nhi\r\nmg a k v\r\n",
         "HD\r\nHD\r\nVA 4 ka\r\nhizz\r\nHD\r\nVA 6 ka\r\nhihizz\r\n"},
        {"mg YmI= b N30 k t\r\nmg YmI= b k\r\n", "HD kbb t30 W\r\nHD kbb Z\r\n"},
        {"ma ZGQ= b N30 k t v\r\nmd ZGQ= b k\r\n", "VA 1 kZGQ= b t30\r\n0\r\nHD kZGQ= b\r\n"},
        /* What is not base64 is passed over; what is left over is dropped. */
        {"mg Y!Q== b k\r\nmg YQ=a b k\r\nmg Y=== b k\r\nmg YR== b k\r\nmg =QYY b k\r\n",
         "EN kYQ== b\r\nEN kYQA= b\r\nCLIENT_ERROR error decoding key\r\nEN kYQ== b\r\n"
         "EN kAQY= b\r\n"},
        {"mg Y!Q==AAAA b k\r\nmg YQ==!!! b k\r\nmg AAAA==== b k\r\nmg !!!! b k\r\nmg AA-- b k\r\n",
         "EN kYQ== b\r\nEN kYQ== b\r\nCLIENT_ERROR error decoding key\r\n"
         "CLIENT_ERROR error decoding key\r\nCLIENT_ERROR error decoding key\r\n"},
        {"mg A+/9 b k\r\nmg AAAAYQ b k\r\nmg AAAAY=== b k\r\n",
         "EN kA+/9 b\r\nCLIENT_ERROR error decoding key\r\nCLIENT_ERROR error decoding key\r\n"},
        {"me a b\r\nme YQ== b c\r\nme YQ== c b\r\n",
         "CLIENT_ERROR bad command line format\r\nEN\r\nEN\r\n"},
    };
    const char *debug = "ME YQ== exp=-1 la=0 cas=";
    for (size_t i = 0; i < FW_ARRAY_LENGTH(exchanges); i++) {
        converse_reconnect(converse);
        fw_operation_flush(&converse->local, 0);
        const char *answer = ask(exchanges[i].said);
        size_t length = strlen(exchanges[i].answered);
        assert_memory_equal(answer, exchanges[i].answered, length);
        /* Only one ends with what cannot be known. */
        assert_true(answer[length] == '\0' ||
                    (i == 2 && memcmp(answer + length, debug, strlen(debug)) == 0));
    }
}

static void test_base64_round(void **state)
{
    (void)state;
    char bytes[FW_ITEM_KEY_MAX];
    char text[FW_ITEM_KEY_MAX * 2];
    char again[FW_ITEM_KEY_MAX + 3];
    for (size_t length = 1; length <= sizeof bytes; length++) {
        for (size_t i = 0; i < length; i++) {
            bytes[i] = (char)(i * 37 + length * 101);
        }
        char *end = fw_base64_encode(bytes, length, text);
        assert_int_equal(end - text, fw_base64_size(length));
        assert_int_equal(fw_base64_decode(text, (size_t)(end - text), again), length);
        assert_memory_equal(again, bytes, length);
    }
}

static void test_set(void **state)
{
    (void)state;
    static const struct exchange exchanges[] = {
        {"ms a\r\nms a x\r\nms a -1\r\nms a 2147483646\r\nms a 99999999999999999999\r\n",
         "CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n"
         "CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n"
         "CLIENT_ERROR bad command line format\r\n"},
        {"ms a 02\r\nhi\r\nms a +2\r\nhi\r\nms a 2x\r\nmn\r\n",
         "HD\r\nHD\r\nCLIENT_ERROR bad command line format\r\nMN\r\n"},
        /* Where the length is known the value is dropped with the command. */
        {"ms a 2 S2\r\nhi\r\nms a 2 Mx\r\nhi\r\nms a 2 MES\r\nhi\r\nms a 2 b\r\nhi\r\n"
         "ms a 2 Tx\r\nhi\r\nms a 2 F-1\r\nhi\r\nmn\r\n",
         "CLIENT_ERROR invalid flag\r\nCLIENT_ERROR invalid mode for ms M token\r\n"
         "CLIENT_ERROR incorrect length for M token\r\nCLIENT_ERROR error decoding key\r\n"
         "CLIENT_ERROR bad token in command line format\r\n"
         "CLIENT_ERROR bad command line format\r\nMN\r\n"},
        {"ms a 2 q " LONG_OPAQUE "\r\nhi\r\nms a 2 Mx " LONG_OPAQUE "\r\nhi\r\nmn\r\n",
         "CLIENT_ERROR opaque token too long\r\nCLIENT_ERROR invalid mode for ms M token\r\n"
         "MN\r\n"},
        {"ms a 2 \r\nhixx\r\nmn\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\nMN\r\n"},
        {"ms a 2 q\r\nhi\nxmn\r\nmg a\r\n", "CLIENT_ERROR bad data chunk\r\nMN\r\nEN\r\n"},
        {"ms a 2 T0\nhi\r\nmn\n", "HD\r\nMN\r\n"},
        {"ms a 2 q k O1\r\nhi\r\nmn\r\nms a 2 k O1 v s t f l h N5\r\nhi\r\n", "MN\r\nHD ka O1\r\n"},
        {"ms a 2 F4294967297\r\nhi\r\nmg a f\r\nms a 2 F7\txx\r\nhi\r\nmg a f\r\n",
         "HD\r\nHD f1\r\nHD\r\nHD f7\r\n"},
        {"ms a 2 T-1\r\nhi\r\nmg a\r\nms a 2 T4294967296\r\nhi\r\nmg a t\r\n",
         "HD\r\nEN\r\nHD\r\nHD t-1\r\n"},
        {"ms a 2 O1 k c q T1 F1 C1 MS I1 D1 J1 N1 R1 P1 L1 v s\r\nhi\r\n",
         "CLIENT_ERROR options flags too long\r\nERROR\r\n"},
        /* Modes. */
        {"ms a 2 ME k\r\nhi\r\nms a 2 ME k q\r\nyo\r\nmg a v\r\n",
         "HD ka\r\nNS ka\r\nVA 2\r\nhi\r\n"},
        {"ms a 2 MR k\r\nhi\r\nms a 2 MA\r\nhi\r\nms a 2 MP\r\nhi\r\nms a 1 MS\r\nm\r\n"
         "ms a 1 MA\r\nz\r\nms a 1 MP\r\na\r\nmg a v\r\nms a 1 MR\r\nr\r\nmg a v\r\n",
         "NS ka\r\nNS\r\nNS\r\nHD\r\nHD\r\nHD\r\nVA 3\r\namz\r\nHD\r\nVA 1\r\nr\r\n"},
    };
    CONVERSE(exchanges);
}

static void test_set_compares(void **state)
{
    (void)state;
    static const struct exchange exchanges[] = {
        {"ms a 2 C1 c\r\nhi\r\nms a 2 C1 c q MR\r\nhi\r\n", "NF c0\r\nNF c0\r\n"},
        {"ms a 2\r\nhi\r\nms a 2 C0\r\nyo\r\nms a 2 C0 I\r\nyo\r\nms a 2 C0 MR\r\nyo\r\n",
         "HD\r\nEX\r\nEX\r\nEX\r\n"},
        {"ms a 2\r\nhi\r\nms a 2 C0 MA\r\nyo\r\nms a 2 C5555555 MA k q\r\nyo\r\n",
         "HD\r\nHD\r\nEX ka\r\n"},
        {"ms a 2 C5 ME\r\nhi\r\nms a 2 C5 ME\r\nhi\r\n", "HD\r\nNS\r\n"},
    };
    CONVERSE(exchanges);
    uint64_t cas = ask_cas("ms a 2 c\r\nhi\r\n");
    char line[64];
    (void)snprintf(line, sizeof line, "ms a 2 C%llu c\r\nyo\r\n", (unsigned long long)cas);
    uint64_t cas_next = ask_cas(line);
    assert_true(cas_next > cas);
    assert_string_equal(ask(line), "EX c0\r\n");
    assert_int_equal(ask_cas("mg a c\r\n"), cas_next);
}

static void test_stale(void **state)
{
    (void)state;
    static const struct exchange exchanges[] = {
        {"ms a 2\r\nhi\r\nmd a I T30 k O1\r\nmg a v t\r\nmg a v\r\nmg a t\r\n",
         "HD\r\nHD ka O1\r\nVA 2 t30 X W\r\nhi\r\nVA 2 Z X\r\nhi\r\nHD t30 Z X\r\n"},
        {"ms a 2\r\nhi\r\nmd a I q\r\nms a 2\r\nyo\r\nmg a v\r\n", "HD\r\nHD\r\nVA 2\r\nyo\r\n"},
        {"md a I k\r\nms a 2\r\nhi\r\nmd a I C1\r\nmg a\r\n", "NF ka\r\nHD\r\nEX\r\nHD\r\n"},
        {"ms a 2\r\nhi\r\nmd a I\r\nmg a\r\nmd a I\r\nmg a\r\n",
         "HD\r\nHD\r\nHD X W\r\nHD\r\nHD X W\r\n"},
        {"ms a 2\r\nhi\r\nmd a I\r\nms a 2 MA\r\nap\r\nmg a v\r\n",
         "HD\r\nHD\r\nHD\r\nVA 4\r\nhiap\r\n"},
        /* An older version is stored, but as stale; it keeps the time to live. */
        {"ms a 2 T50\r\nhi\r\nms a 2 C1 I T100 F7\r\nyo\r\nmg a v t f\r\nmg a\r\n",
         "HD\r\nHD\r\nVA 2 t50 f7 X W\r\nyo\r\nHD Z X\r\n"},
        {"ms a 2\r\nhi\r\nms a 2 C99999999 I\r\nyo\r\nms a 2 C1 I MA\r\nyo\r\n"
         "ms a 2 C1 I ME\r\nyo\r\nms a 2 C1 I MR\r\nyo\r\nmg a v\r\n",
         "HD\r\nEX\r\nEX\r\nNS\r\nHD\r\nVA 2 X W\r\nyo\r\n"},
    };
    CONVERSE(exchanges);
    uint64_t cas = ask_cas("ms a 2 c\r\nhi\r\n");
    assert_string_equal(ask("md a I\r\n"), "HD\r\n");
    assert_true(ask_cas("mg a c\r\n") > cas);
}

static void test_vivify_and_recache(void **state)
{
    (void)state;
    static const struct exchange exchanges[] = {
        {"mg a N30 t v s k\r\nmg a N30 t v\r\nmg a\r\nms a 2\r\nok\r\nmg a v\r\n",
         "VA 0 t30 s0 ka W\r\n\r\nVA 0 t30 Z\r\n\r\nHD Z\r\nHD\r\nVA 2\r\nok\r\n"},
        {"mg a t N30\r\nmg a t\r\n", "HD t-1 W\r\nHD t30 Z\r\n"},
        {"ms a 2 T100\r\nhi\r\nmg a R30 v\r\nmg a R200 v\r\nmg a R200\r\nmg a\r\n",
         "HD\r\nVA 2\r\nhi\r\nVA 2 W\r\nhi\r\nHD Z\r\nHD Z\r\n"},
        {"ms a 2\r\nhi\r\nmg a R30\r\n", "HD\r\nHD\r\n"},
        {"mg a N30 R60\r\n", "HD W\r\n"},
    };
    CONVERSE(exchanges);
}

static void test_delete(void **state)
{
    (void)state;
    static const struct exchange exchanges[] = {
        {"md a\r\nmd a q k O1\r\n", "NF\r\nNF ka O1\r\n"},
        {"ms a 2\r\nhi\r\nmd a k O1\r\nmg a\r\n", "HD\r\nHD ka O1\r\nEN\r\n"},
        {"ms a 2\r\nhi\r\nmd a q\r\nmg a\r\n", "HD\r\nEN\r\n"},
        {"ms a 2\r\nhi\r\nmd a C0\r\nmd a C1 q k O2\r\nmg a\r\nmd zz C0\r\n",
         "HD\r\nEX\r\nEX ka O2\r\nHD\r\nNF\r\n"},
        {"ms a 2\r\nhi\r\nmd a " LONG_OPAQUE "\r\nmg a\r\n",
         "HD\r\nCLIENT_ERROR opaque token too long\r\nHD\r\n"},
        {"ms a 2\r\nhi\r\nmd a T30\r\nmg a\r\n", "HD\r\nHD\r\nEN\r\n"},
    };
    CONVERSE(exchanges);
    uint64_t cas = ask_cas("ms a 2 c\r\nhi\r\n");
    char line[64];
    (void)snprintf(line, sizeof line, "md a C%llu\r\n", (unsigned long long)cas);
    assert_string_equal(ask(line), "HD\r\n");
}

static void test_count(void **state)
{
    (void)state;
    static const struct exchange exchanges[] = {
        {"ma n\r\nma n q\r\nma n k O1\r\n", "NF\r\nNF\r\nNF kn O1\r\n"},
        {"ma n N0 J5 v\r\nma n v\r\nma n D5 v t N9 k O1\r\nma n MD D3\r\nma n MI v\r\nma n M- v\r\n"
         "ma n M+ v\r\nma n MD D100 v\r\nmg n v\r\n",
         "VA 1\r\n5\r\nVA 1\r\n6\r\nVA 2 t-1 kn O1\r\n11\r\nHD\r\nVA 1\r\n9\r\nVA 1\r\n8\r\n"
         "VA 1\r\n9\r\nVA 1\r\n0\r\nVA 2\r\n0 \r\n"},
        {"ma n MX\r\nma n Mi\r\n", "CLIENT_ERROR invalid mode for ma M token\r\nCLIENT_ERROR "
                                   "invalid mode for ma M token\r\n"},
        {"ms n 2\r\nhi\r\nma n v\r\n",
         "HD\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n"},
        /* Made quietly it is told of, counted quietly not. */
        {"ma n N30 q v k O1\r\nma n N30 q v k O1\r\nmn\r\n", "VA 1 kn O1\r\n0\r\nMN\r\n"},
        {"ms n 1\r\n5\r\nma n C0 v\r\nma n C1 v k\r\nma n C1 q\r\nma zz C1 N0 v\r\n",
         "HD\r\nVA 1\r\n6\r\nEX kn\r\nEX\r\nVA 1\r\n0\r\n"},
        {"ms n 1\r\n5\r\nma n D18446744073709551615 v\r\nma n D18446744073709551616 v\r\n",
         "HD\r\nVA 1\r\n4\r\nCLIENT_ERROR invalid or duplicate flag\r\n"},
        /* The time to live, as of its place in the line. */
        {"ms n 1\r\n5\r\nma n t T30\r\nma n T60 t\r\nma n t N9\r\n",
         "HD\r\nHD t-1\r\nHD t60\r\nHD t60\r\n"},
        {"ma n t N30\r\nmg n t\r\nmd n\r\nma n N30 T60 t\r\nmg n t\r\nmd n\r\nma n T60 N30 t\r\n"
         "mg n t\r\n",
         "HD t-1\r\nHD t30\r\nHD\r\nHD t60\r\nHD t60\r\nHD\r\nHD t30\r\nHD t30\r\n"},
        /* Too long an opaque is seen too late. */
        {"ms n 1\r\n5\r\nma n " LONG_OPAQUE "\r\nma n q " LONG_OPAQUE "\r\nmg n v\r\n",
         "HD\r\nCLIENT_ERROR opaque token too long\r\nCLIENT_ERROR opaque token too long\r\n"
         "VA 1\r\n7\r\n"},
    };
    CONVERSE(exchanges);
}

static void test_debug(void **state)
{
    (void)state;
    assert_string_equal(ask("me a\r\n"), "EN\r\n");
    assert_string_equal(ask("ms a 2 T30\r\nhi\r\n"), "HD\r\n");
    const char *begin = "ME a exp=-30 la=0 cas=";
    assert_memory_equal(ask("me a\r\n"), begin, strlen(begin));
    assert_non_null(strstr(ask("me a\r\n"), " fetch=no cls=1 size=21\r\n"));
    assert_string_equal(ask("mg a\r\n"), "HD\r\n");
    assert_non_null(strstr(ask("me a x y\r\n"), " fetch=yes "));
    assert_int_equal(fw_counter_get(&converse->local.metrics->cmd_meta), 4);
}

static void test_clock(void **state)
{
    (void)state;
    assert_string_equal(ask("ms a 2 T30\r\nhi\r\n"), "HD\r\n");
    uint32_t now = converse->local.now;
    converse->local.now = now + 10;
    fw_table_local_set_now(converse->local.table, now + 10);
    assert_string_equal(ask("mg a t l\r\nmg a l\r\n"), "HD t20 l10\r\nHD l0\r\n");
    converse->local.now = now + 30;
    fw_table_local_set_now(converse->local.table, now + 30);
    assert_string_equal(ask("mg a t\r\n"), "EN\r\n");
    assert_int_equal(fw_counter_get(&converse->local.metrics->get_expired), 1);
}

static void test_counters(void **state)
{
    (void)state;
    const struct fw_metrics_cache *metrics = converse->local.metrics;
    (void)ask("mg a\r\nmg a T30\r\nms a 1\r\nx\r\nmg a\r\nmg a T30\r\nmg a u\r\nmd a C5\r\n"
              "md a I\r\nmd a\r\nmd a\r\nmg b N30\r\n");
    assert_int_equal(fw_counter_get(&metrics->cmd_get), 5);
    assert_int_equal(fw_counter_get(&metrics->get_hits), 3);
    assert_int_equal(fw_counter_get(&metrics->get_misses), 2);
    assert_int_equal(fw_counter_get(&metrics->cmd_touch), 1);
    assert_int_equal(fw_counter_get(&metrics->touch_hits), 1);
    assert_int_equal(fw_counter_get(&metrics->touch_misses), 0);
    assert_int_equal(fw_counter_get(&metrics->delete_hits), 1);
    assert_int_equal(fw_counter_get(&metrics->delete_misses), 2);
    assert_int_equal(fw_counter_get(&metrics->cmd_set), 1);
}

static char large[2 * LARGE];

/* A line, a value of `length` and what ends it. */
static void say_large(const char *line, size_t length, const char *end)
{
    memset(large, 'v', length);
    converse_say(converse, line, strlen(line), 0);
    converse_say(converse, large, length, 0);
    converse_say(converse, end, strlen(end), 0);
}

static void test_large(void **state)
{
    (void)state;
    say_large("ms bGFyZ2U= 9000 k O1 b F3\r\n", LARGE, "\r\n");
    assert_string_equal(converse_answer(converse), "HD kbGFyZ2U= b O1\r\n");
    const char *answer = ask("mg large v k f\r\n");
    const char *line = "VA 9000 kbGFyZ2U= b f3\r\n";
    assert_memory_equal(answer, line, strlen(line));
    assert_memory_equal(answer + strlen(line), large, LARGE);
    assert_string_equal(answer + strlen(line) + LARGE, "\r\n");
    say_large("ms large 9000 q\r\n", LARGE, "xxmn\r\n");
    assert_string_equal(converse_answer(converse), "CLIENT_ERROR bad data chunk\r\nMN\r\n");
    say_large("ms large 9000 ME k\r\n", LARGE, "\r\n");
    assert_string_equal(converse_answer(converse), "NS klarge\r\n");
    say_large("ms large 9000 MA q\r\n", LARGE, "\r\nmg large s\r\n");
    assert_string_equal(converse_answer(converse), "HD s18000\r\n");
}

static void test_too_large(void **state)
{
    (void)state;
    converse->cache.settings.item_size_max = LARGE;
    assert_string_equal(ask("ms a 2\r\nhi\r\n"), "HD\r\n");
    /* In whatever mode: what was to be changed is gone. */
    say_large("ms a 9000 MA k O1 q\r\n", LARGE, "\r\nmg a\r\n");
    assert_string_equal(converse_answer(converse),
                        "SERVER_ERROR object too large for cache\r\nEN\r\n");
    assert_int_equal(fw_counter_get(&converse->local.metrics->store_too_large), 1);
}

static void test_cuts(void **state)
{
    (void)state;
    static char script[2 * LARGE];
    static const char first[] =
        "ms a 5 T0 k O1\r\nhello\r\nmg a v k O2\r\nmd a I q\r\nmg a v\r\nmg none q\r\nmg none\r\n"
        "ma n N0 v\r\nma n MD q\r\nms b 2 Mx\r\nhi\r\nms b 2\r\nhixx\r\nms YQ== 3 b MA\r\nabc\r\n"
        "mg YQ== b v\r\nmn\r\nms large 9000 k q\r\n";
    static const char last[] = "\r\nmg large s v\r\nms large 9000\r\n";
    size_t length = sizeof first - 1;
    memcpy(script, first, length);
    memset(script + length, 'v', LARGE);
    length += LARGE;
    memcpy(script + length, last, sizeof last - 1);
    length += sizeof last - 1;

    static char expected[2 * LARGE];
    fw_operation_flush(&converse->local, 0);
    converse_say(converse, script, length, 0);
    size_t expected_length = converse->replies_length;
    memcpy(expected, converse_answer(converse), expected_length);
    assert_true(expected_length > LARGE);
    for (size_t cut = 0; cut <= length; cut++) {
        converse_reconnect(converse);
        fw_operation_flush(&converse->local, 0);
        converse_say(converse, script, cut, 0);
        converse_say(converse, script + cut, length - cut, cut == 0 ? 1 : 0);
        assert_int_equal(converse->replies_length, expected_length);
        assert_memory_equal(converse_answer(converse), expected, expected_length);
    }
    assert_true(converse->input_most < FW_SESSION_INPUT_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_get, setup, teardown),
        cmocka_unit_test_setup_teardown(test_line_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_key_length, setup, teardown),
        cmocka_unit_test_setup_teardown(test_zero_byte_ends_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_base64, setup, teardown),
        cmocka_unit_test(test_base64_round),
        cmocka_unit_test_setup_teardown(test_set, setup, teardown),
        cmocka_unit_test_setup_teardown(test_set_compares, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stale, setup, teardown),
        cmocka_unit_test_setup_teardown(test_vivify_and_recache, setup, teardown),
        cmocka_unit_test_setup_teardown(test_delete, setup, teardown),
        cmocka_unit_test_setup_teardown(test_count, setup, teardown),
        cmocka_unit_test_setup_teardown(test_debug, setup, teardown),
        cmocka_unit_test_setup_teardown(test_clock, setup, teardown),
        cmocka_unit_test_setup_teardown(test_counters, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cuts, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: every command and every error of the text protocol is answered as memcached answers it, to
 * the letter, however the bytes arrive. Method: each conversation was held with memcached 1.6.18,
 * and what it said stands beside it. Here it is held with the input cut into portions of every size
 * from one byte up, and cut in two at every place; the answer must always be the same.
 *
 * What takes long input or a long answer is in text_long_test.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/version.h"
#include "support/conversation.h"

#define K50  "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
#define K250 K50 K50 K50 K50 K50

struct conversation {
    const char *said;
    size_t said_length;
    const char *answered;
    size_t answered_length;
    bool is_closed; /* At the end, by the server. */
};

#define CONVERSATION(said_text, answered_text, closed)                                          \
    {                                                                                           \
        .said = (said_text), .said_length = sizeof(said_text) - 1, .answered = (answered_text), \
        .answered_length = sizeof(answered_text) - 1, .is_closed = (closed)                     \
    }
#define SAID(said_text, answered_text) CONVERSATION(said_text, answered_text, false)
#define LAST(said_text, answered_text) CONVERSATION(said_text, answered_text, true)

static const struct conversation reading[] = {
    SAID("get a\r\n", "END\r\n"),
    SAID("set a 0 0 1\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    SAID("set a 5 0 0\r\n\r\nget a\r\n", "STORED\r\nVALUE a 5 0\r\n\r\nEND\r\n"),
    SAID("set a 4294967295 0 3\r\nabc\r\nget a b a\r\n",
         "STORED\r\nVALUE a 4294967295 3\r\nabc\r\nVALUE a 4294967295 3\r\nabc\r\nEND\r\n"),
    SAID("get\r\n", "ERROR\r\n"),
    SAID("get \r\n", "ERROR\r\n"),
    SAID("get  \r\n", "ERROR\r\n"),
    SAID("gets\r\n", "ERROR\r\n"),
    SAID("bget\r\n", "ERROR\r\n"),
    SAID("bget a\r\n", "END\r\n"),
    SAID("gat\r\n", "ERROR\r\n"),
    SAID("gat 5\r\n", "END\r\n"),
    SAID("gat 5 \r\n", "END\r\n"),
    SAID("gat x a\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
    SAID("gats\r\n", "ERROR\r\n"),
    SAID("gats 1x a\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
    SAID("set a 0 0 1\r\nx\r\ngat 100 a\r\ngat -1 a\r\nget a\r\n",
         "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\nVALUE a 0 1\r\nx\r\nEND\r\nEND\r\n"),
    SAID(" get a\r\n", "END\r\n"),
    SAID("  get   a   b  \r\n", "END\r\n"),
    SAID("get a\n", "END\r\n"),
    SAID("get a\rb\n", "END\r\n"),
    SAID("set a\rb 0 0 1\r\nx\r\nget a\rb\r\nget a\rb\n",
         "STORED\r\nVALUE a\rb 0 1\r\nx\r\nEND\r\nVALUE a\rb 0 1\r\nx\r\nEND\r\n"),
    SAID("set a\tb 0 0 1\r\nx\r\nget a\tb\r\n", "STORED\r\nVALUE a\tb 0 1\r\nx\r\nEND\r\n"),
    SAID("set a 0 0 1\r\nx\r\nget a\000b\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    SAID("set a 0 0 1\r\nx\r\nget a\000 b\r\nget\000 a\r\n",
         "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\nERROR\r\n"),
    SAID("set " K250 " 0 0 1\r\nx\r\nget " K250 "\r\n",
         "STORED\r\nVALUE " K250 " 0 1\r\nx\r\nEND\r\n"),
    SAID("get " K250 "x\r\n", "CLIENT_ERROR bad command line format\r\n"),
    SAID("get a " K250 "x b\r\n", "CLIENT_ERROR bad command line format\r\n"),
    SAID("gat 0 " K250 "x\r\n", "CLIENT_ERROR bad command line format\r\n"),
    SAID("set a 0 0 1\r\nx\r\nset b 0 0 1\r\ny\r\nset c 0 0 1\r\nz\r\n",
         "STORED\r\nSTORED\r\nSTORED\r\n"),
    SAID("set a 0 0 1\r\nx\r\nset b 0 0 y\r\nset c 0 0 1\r\nxx\r\nset a 0 0 2\r\nzz\r\nget a\r\n",
         "STORED\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad data chunk\r\n"
         "ERROR\r\nSTORED\r\nVALUE a 0 2\r\nzz\r\nEND\r\n"),
    SAID("set a 0 0 1\r\nx\r\nset " K250 "x 0 0 1\r\nset a 0 0 999999999999\r\nset \r\nget a\r\n",
         "STORED\r\nCLIENT_ERROR bad command line format\r\n"
         "CLIENT_ERROR bad command line format\r\nERROR\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    SAID("set a 0 0 1\r\nx\r\nget a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a\r\n",
         "STORED\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 "
         "1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 "
         "1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 "
         "1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 "
         "1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 "
         "1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 "
         "1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 "
         "1\r\nx\r\nVALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    SAID("set a 0 0 2\r\nxy\r\nget a\r\nget b\r\nget a\r\nget a a\r\nget b\r\nversionx\r\n",
         "STORED\r\nVALUE a 0 2\r\nxy\r\nEND\r\nEND\r\nVALUE a 0 2\r\nxy\r\nEND\r\nVALUE a 0 "
         "2\r\nxy\r\nVALUE a 0 2\r\nxy\r\nEND\r\nEND\r\nERROR\r\n"),
};

static const struct conversation storing[] = {
    SAID("set a 0 0 1\r\nxyz\r\nget a\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\nEND\r\n"),
    SAID("set a 0 0 1\r\nxyzget a\r\n", "CLIENT_ERROR bad data chunk\r\nEND\r\n"),
    SAID("set a 0 0 1 noreply\r\nxyz\r\nget a\r\n", "ERROR\r\nEND\r\n"),
    SAID("set a 0 0 3\r\na\nc\r\nget a\r\n", "STORED\r\nVALUE a 0 3\r\na\nc\r\nEND\r\n"),
    SAID("set a 0 0 4\r\n\r\n\r\n\r\nget a\r\n", "STORED\r\nVALUE a 0 4\r\n\r\n\r\n\r\nEND\r\n"),
    SAID("set a 0 0 -1\r\n", "CLIENT_ERROR bad command line format\r\n"),
    SAID("set a 0 0 -1\r\nabc\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    SAID("set a 0 0\r\nfoo\r\n", "ERROR\r\nERROR\r\n"),
    SAID("set a 0 0 1 2 3\r\nfoo\r\n", "ERROR\r\nERROR\r\n"),
    SAID("set\r\n", "ERROR\r\n"),
    SAID("set a -1 0 1\r\nx\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    SAID("set a 4294967296 0 1\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    SAID("set a 18446744073709551615 0 1\r\nx\r\nget a\r\n",
         "STORED\r\nVALUE a 4294967295 1\r\nx\r\nEND\r\n"),
    SAID("set a 18446744073709551616 0 1\r\nx\r\n",
         "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    SAID("set a 0 4294967297 1\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    SAID("set a 0 2147483648 1\r\nx\r\nget a\r\n", "STORED\r\nEND\r\n"),
    SAID("set a 0 -1 1\r\nx\r\nget a\r\n", "STORED\r\nEND\r\n"),
    SAID("set a 0 2592001 1\r\nx\r\nget a\r\n", "STORED\r\nEND\r\n"),
    SAID("set a 0 2592000 1\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    SAID("set a 0 0 4294967297\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    SAID("set a 0 0 2147483647\r\nx\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    SAID("set a 0 0 2147483646\r\nx\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    SAID("set a +5 0 1\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 5 1\r\nx\r\nEND\r\n"),
    SAID("set a 5x 0 1\r\nx\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    SAID("set a 5\tx 0 1\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 5 1\r\nx\r\nEND\r\n"),
    SAID("set a \t5 0 1\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 5 1\r\nx\r\nEND\r\n"),
    SAID("set a 0 0 1\t\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    SAID("set a 0 0 \t\r\nx\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    SAID("set a 007 0 01\r\nx\r\nget a\r\n", "STORED\r\nVALUE a 7 1\r\nx\r\nEND\r\n"),
    SAID("set  a  0  0  1 \r\nx\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    SAID("set a 0 0 1\nx\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    SAID("set a 0 0 1\r\nx\n\nget a\r\n", "CLIENT_ERROR bad data chunk\r\nEND\r\n"),
    SAID("set " K250 "x 0 0 1\r\nx\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    SAID("set " K250 "x 0 0 1 noreply\r\nx\r\n", "ERROR\r\n"),
    SAID("set a 0 0 x noreply\r\nfoo\r\n", "ERROR\r\n"),
    SAID("set a 0 0 1 foo\r\nx\r\n", "STORED\r\n"),
    SAID("set a 0 0 1 noreply\r\nx\r\nget a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"),
    SAID("set a 0 0 1 noreplyx\r\nx\r\n", "STORED\r\n"),
    SAID("set a 0 0 1 noreply \r\nx\r\nget a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"),
    SAID("add a 3 0 1\r\nx\r\nadd a 4 0 1\r\ny\r\nget a\r\n",
         "STORED\r\nNOT_STORED\r\nVALUE a 3 1\r\nx\r\nEND\r\n"),
    SAID("add a 3 0 1 noreply\r\nx\r\nadd a 4 0 1 noreply\r\ny\r\nget a\r\n",
         "VALUE a 3 1\r\nx\r\nEND\r\n"),
    SAID("replace a 0 0 1\r\nx\r\nset a 0 0 1\r\nx\r\nreplace a 7 0 2\r\nyy\r\nget a\r\n",
         "NOT_STORED\r\nSTORED\r\nSTORED\r\nVALUE a 7 2\r\nyy\r\nEND\r\n"),
    SAID("append a 0 0 1\r\nx\r\nset a 7 0 1\r\nx\r\nappend a 9 0 2\r\nyz\r\nprepend a 9 100 "
         "2\r\nvw\r\nget a\r\nappend a 0 0 0\r\n\r\nget a\r\n",
         "NOT_STORED\r\nSTORED\r\nSTORED\r\nSTORED\r\nVALUE a 7 "
         "5\r\nvwxyz\r\nEND\r\nSTORED\r\nVALUE a 7 5\r\nvwxyz\r\nEND\r\n"),
    SAID("prepend a 0 0 1\r\nx\r\nappend a x 0 1\r\nx\r\n",
         "NOT_STORED\r\nCLIENT_ERROR bad command line format\r\nERROR\r\n"),
    SAID("cas a 0 0 1\r\nfoo\r\n", "ERROR\r\nERROR\r\n"),
    SAID("cas a 0 0 1 x\r\nz\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    SAID("set a 0 0 1\r\nx\r\ncas a 0 0 1 0\r\nz\r\nget a\r\n",
         "STORED\r\nEXISTS\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    SAID("cas a 0 0 1 0\r\nz\r\n", "NOT_FOUND\r\n"),
    SAID("cas a 0 0 1 5 noreply\r\nz\r\nfoo\r\n", "ERROR\r\n"),
    SAID("cas a 0 0 1 -1\r\nz\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n"),
    SAID("cas a 0 0 1 1 2 3\r\n", "ERROR\r\n"),
    SAID("set a 0 0 1\r\nx\r\ncas a 0 0 1 18446744073709551615\r\ny\r\n", "STORED\r\nEXISTS\r\n"),
};

static const struct conversation changing[] = {
    SAID("set n 0 0 1\r\n5\r\nincr n 1\r\nincr n 10\r\nget n\r\n",
         "STORED\r\n6\r\n16\r\nVALUE n 0 2\r\n16\r\nEND\r\n"),
    SAID("set n 0 0 2\r\n16\r\ndecr n 10\r\n", "STORED\r\n6\r\n"),
    SAID("incr n 18446744073709551615\r\nincr n 18446744073709551616\r\nincr n -1\r\nincr n "
         "-0\r\nincr n x\r\nincr n\r\nincr n 1 2 3\r\nincr n 1 foo\r\nincr " K250
         "x 1\r\ndecr n 1\r\n",
         "NOT_FOUND\r\nCLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR invalid numeric "
         "delta argument\r\nNOT_FOUND\r\nCLIENT_ERROR invalid numeric delta "
         "argument\r\nERROR\r\nERROR\r\nNOT_FOUND\r\nCLIENT_ERROR bad command line "
         "format\r\nNOT_FOUND\r\n"),
    SAID("set n 5 0 20\r\n18446744073709551615\r\nincr n 1\r\n", "STORED\r\n0\r\n"),
    SAID("set n 0 0 1\r\n9\r\nincr n 18446744073709551615\r\n", "STORED\r\n8\r\n"),
    SAID("set n 0 0 1\r\n3\r\ndecr n 5\r\n", "STORED\r\n0\r\n"),
    SAID("set n 0 0 3\r\nabc\r\nincr n 1\r\n",
         "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
    SAID("set n 0 0 0\r\n\r\nincr n 1\r\n",
         "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
    SAID("set n 0 0 2\r\n 5\r\nincr n 1\r\nget n\r\n",
         "STORED\r\n6\r\nVALUE n 0 2\r\n6 \r\nEND\r\n"),
    SAID("set n 0 0 5\r\n5 abc\r\nincr n 1\r\nget n\r\n",
         "STORED\r\n6\r\nVALUE n 0 5\r\n6    \r\nEND\r\n"),
    SAID("set n 0 0 2\r\n-5\r\nincr n 1\r\n",
         "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
    SAID("set n 0 0 2\r\n-0\r\nincr n 1\r\nget n\r\n",
         "STORED\r\n1\r\nVALUE n 0 2\r\n1 \r\nEND\r\n"),
    SAID("set n 0 0 2\r\n+5\r\ndecr n 1\r\nget n\r\n",
         "STORED\r\n4\r\nVALUE n 0 2\r\n4 \r\nEND\r\n"),
    SAID("set n 0 0 21\r\n000000000000000000005\r\nincr n 1\r\nget n\r\n",
         "STORED\r\n6\r\nVALUE n 0 21\r\n6                    \r\nEND\r\n"),
    SAID("set n 0 0 20\r\n99999999999999999999\r\nincr n 1\r\n",
         "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
    SAID("set n 0 0 20\r\n-9223372036854775809\r\nincr n 1\r\nget n\r\n",
         "STORED\r\n9223372036854775808\r\nVALUE n 0 20\r\n9223372036854775808 \r\nEND\r\n"),
    SAID("set n 0 0 2\r\n5x\r\nincr n 1\r\n",
         "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
    SAID("set n 0 0 3\r\n5\000x\r\nincr n 1\r\n", "STORED\r\n6\r\n"),
    SAID("set n 0 0 1\r\n5\r\nincr n 1 noreply\r\ndecr n 2 noreply\r\nget n\r\nincr n "
         "noreply\r\nincr n x noreply\r\nfoo\r\n",
         "STORED\r\nVALUE n 0 1\r\n4\r\nEND\r\nERROR\r\n"),
    SAID("touch a\r\ntouch a x\r\nset a 0 0 1\r\nx\r\ntouch a 100\r\ntouch zz 5\r\ntouch a 100 "
         "noreply\r\ntouch a 100 foo\r\ntouch " K250
         "x 5\r\ntouch a 1 2 3\r\ntouch a -1\r\nget a\r\n",
         "ERROR\r\nCLIENT_ERROR invalid exptime "
         "argument\r\nSTORED\r\nTOUCHED\r\nNOT_FOUND\r\nTOUCHED\r\nCLIENT_ERROR bad command line "
         "format\r\nERROR\r\nTOUCHED\r\nEND\r\n"),
    SAID("set a 0 0 1\r\nx\r\ndelete a\r\ndelete a\r\n", "STORED\r\nDELETED\r\nNOT_FOUND\r\n"),
    SAID("delete a 0\r\ndelete a 1\r\ndelete a 0 noreply\r\ndelete a noreply\r\ndelete a 1 "
         "noreply\r\ndelete\r\ndelete a b c d\r\ndelete " K250
         "x\r\ndelete a noreply foo\r\nfoo\r\n",
         "NOT_FOUND\r\nCLIENT_ERROR bad command line format.  Usage: delete <key> "
         "[noreply]\r\nERROR\r\nERROR\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad "
         "command line format.  Usage: delete <key> [noreply]\r\nERROR\r\n"),
    SAID("set f 0 0 1\r\nx\r\nflush_all\r\nget f\r\nset f 0 0 1\r\nx\r\nget f\r\n",
         "STORED\r\nOK\r\nEND\r\nSTORED\r\nVALUE f 0 1\r\nx\r\nEND\r\n"),
    SAID("set f 0 0 1\r\nx\r\nflush_all -1\r\nget f\r\n", "STORED\r\nOK\r\nEND\r\n"),
    SAID("set f 0 0 1\r\nx\r\nflush_all 1\r\nget f\r\n", "STORED\r\nOK\r\nEND\r\n"),
    SAID("set f 0 0 1\r\nx\r\nflush_all 100\r\nget f\r\n",
         "STORED\r\nOK\r\nVALUE f 0 1\r\nx\r\nEND\r\n"),
    SAID("set f 0 0 1\r\nx\r\nflush_all 2592001\r\nget f\r\n",
         "STORED\r\nOK\r\nVALUE f 0 1\r\nx\r\nEND\r\n"),
    SAID("flush_all x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
    SAID("flush_all noreply\r\nfoo\r\n", "ERROR\r\n"),
    SAID("flush_all 5 noreply\r\nfoo\r\n", "ERROR\r\n"),
    SAID("flush_all x noreply\r\nfoo\r\n", "ERROR\r\n"),
    SAID("flush_all 1 2\r\n", "OK\r\n"),
    SAID("flush_all 1 2 3\r\n", "ERROR\r\n"),
    SAID("set f 0 0 1\r\nx\r\nflush_all 0 noreply\r\nget f\r\n", "STORED\r\nEND\r\n"),
};

static const struct conversation administering[] = {
    SAID("\r\n", "ERROR\r\n"),
    SAID("\n", "ERROR\r\n"),
    SAID("a\r\n", "ERROR\r\n"),
    SAID("ab\r\n", "ERROR\r\n"),
    SAID("verbosity\r\n", "ERROR\r\n"),
    SAID("verbosity 1\r\n", "OK\r\n"),
    SAID("verbosity x\r\n", "CLIENT_ERROR bad command line format\r\n"),
    SAID("verbosity 1 noreply\r\nfoo\r\n", "ERROR\r\n"),
    SAID("verbosity noreply\r\nfoo\r\n", "ERROR\r\n"),
    SAID("verbosity 1 2\r\n", "OK\r\n"),
    SAID("verbosity 1 2 3\r\n", "ERROR\r\n"),
    SAID("verbosity -1\r\n", "CLIENT_ERROR bad command line format\r\n"),
    SAID("foo noreply\r\n", "ERROR\r\n"),
    LAST("quit\r\n", ""),
    LAST("quit foo\r\nfoo\r\n", ""),
    LAST("foo\r\nquit\r\nfoo\r\n", "ERROR\r\n"),
    SAID("shutdown\r\n", "ERROR: shutdown not enabled\r\n"),
    SAID("shutdown graceful\r\n", "ERROR: shutdown not enabled\r\n"),
    SAID("cache_memlimit\r\n", "ERROR\r\n"),
    SAID("cache_memlimit 5\r\n", "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n"),
    SAID("cache_memlimit 64 noreply\r\nfoo\r\n", "ERROR\r\n"),
    SAID("cache_memlimit x\r\n", "ERROR\r\n"),
    SAID("cache_memlimit 64 1 2\r\n", "ERROR\r\n"),
    SAID("cache_memlimit 1000000001\r\n",
         "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n"),
    SAID("cache_memlimit 64\r\n", "OK\r\n"),
    SAID("misbehave\r\n", "ERROR\r\n"),
    LAST("GET / HTTP/1.0\r\n", ""),
    LAST("foo HTTP/\r\n", ""),
    SAID("get HTTP/1\r\n", "END\r\n"),
    SAID("ab HTTP/1.1 x\r\n", "ERROR\r\n"),
    LAST("HTTP/1.1\r\n", ""),
    SAID("dd HTTP/1.1\r\n", "ERROR\r\n"),
    SAID("delete HTTP/1.1\r\n", "NOT_FOUND\r\n"),
    SAID("lru\r\n", "ERROR\r\n"),
    SAID("lru tune\r\n", "ERROR\r\n"),
    SAID("lru tune 10 25 0.1 2.0\r\n", "OK\r\n"),
    SAID("lru tune 50 50 0.1 2.0\r\n", "ERROR hot and warm pcts must not exceed 80\r\n"),
    SAID("lru tune 10 25 0 2.0\r\n", "ERROR hot/warm age factors must be greater than 0\r\n"),
    SAID("lru tune 10 25 0.1 0\r\n", "ERROR hot/warm age factors must be greater than 0\r\n"),
    SAID("lru tune x 25 0 2.0\r\n", "ERROR\r\n"),
    SAID("lru mode\r\n", "ERROR\r\n"),
    SAID("lru mode flat\r\n", "OK\r\n"),
    SAID("lru mode segmented\r\n", "OK\r\n"),
    SAID("lru mode x\r\n", "ERROR\r\n"),
    SAID("lru temp_ttl 5\r\n", "OK\r\n"),
    SAID("lru temp_ttl x\r\n", "ERROR\r\n"),
    SAID("lru foo\r\n", "ERROR\r\n"),
    SAID("lru mode flat noreply\r\nfoo\r\n", "ERROR\r\n"),
    SAID("slabs\r\n", "ERROR\r\n"),
    SAID("slabs reassign x 2\r\n", "CLIENT_ERROR bad command line format\r\n"),
    SAID("slabs reassign 1 1\r\n", "SAME src and dst class are identical\r\n"),
    SAID("slabs reassign -5 5\r\n", "BADCLASS invalid src or dst class id\r\n"),
    SAID("slabs automove\r\n", "ERROR\r\n"),
    SAID("slabs automove 0\r\n", "OK\r\n"),
    SAID("slabs automove 1\r\n", "OK\r\n"),
    SAID("slabs automove 3\r\n", "ERROR\r\n"),
    SAID("slabs automove x\r\n", "CLIENT_ERROR bad command line format\r\n"),
    SAID("slabs automove ratio 0.5\r\n", "OK\r\n"),
    SAID("slabs automove ratio\r\n", "ERROR\r\n"),
    SAID("slabs automove ratio x\r\n", "ERROR\r\n"),
    SAID("slabs foo bar\r\n", "ERROR\r\n"),
    SAID("slabs automove 1 noreply\r\nfoo\r\n", "ERROR\r\n"),
    SAID("lru_crawler\r\n", "ERROR\r\n"),
    SAID("lru_crawler foo\r\n", "ERROR\r\n"),
    SAID("lru_crawler tocrawl 5\r\n", "OK\r\n"),
    SAID("lru_crawler tocrawl x\r\n", "CLIENT_ERROR bad command line format\r\n"),
    SAID("lru_crawler sleep 100\r\n", "OK\r\n"),
    SAID("lru_crawler sleep x\r\n", "CLIENT_ERROR bad command line format\r\n"),
    SAID("lru_crawler sleep 1000001\r\n", "CLIENT_ERROR sleep must be one second or less\r\n"),
    SAID("lru_crawler crawl x\r\n", "BADCLASS invalid class id\r\n"),
    SAID("lru_crawler crawl 99\r\n", "BADCLASS invalid class id\r\n"),
    SAID("lru_crawler metadump\r\n", "ERROR\r\n"),
    SAID("lru_crawler metadump x\r\n", "BADCLASS invalid class id\r\n"),
    SAID("lru_crawler mgdump all\r\n", "ERROR\r\n"),
    SAID("refresh_certs\r\n", "Error TLS not enabled\r\n"),
    SAID("extstore\r\n", "ERROR\r\n"),
    SAID("stats cachedump\r\n", "CLIENT_ERROR bad command line\r\n"),
    SAID("stats cachedump 1\r\n", "CLIENT_ERROR bad command line\r\n"),
    SAID("stats cachedump 2 0\r\n", "END\r\n"),
    SAID("stats cachedump 64 0\r\n", "CLIENT_ERROR Illegal slab id\r\n"),
    SAID("stats cachedump x 0\r\n", "CLIENT_ERROR bad command line format\r\n"),
    SAID("stats foo\r\n", "ERROR\r\n"),
    SAID("stats reset\r\n", "RESET\r\n"),
    SAID("stats reset foo\r\n", "RESET\r\n"),
    SAID("stats sizes\r\n", "STAT sizes_status disabled\r\nEND\r\n"),
    SAID("stats noreply\r\nfoo\r\n", "ERROR\r\nERROR\r\n"),
    SAID("stats detail\r\n", "CLIENT_ERROR usage: stats detail on|off|dump\r\n"),
    SAID("stats detail foo\r\n", "CLIENT_ERROR usage: stats detail on|off|dump\r\n"),
};

static const struct conversation counting[] = {
    SAID(
        "stats detail on\r\nstats reset\r\nset p:a 0 0 1\r\nx\r\nget p:a p:b\r\ngat 0 p:a\r\ntouch "
        "p:a 0\r\ndelete p:q\r\nget bar\r\nset p:c 0 0 1\r\nyyy\r\nstats detail dump\r\nstats "
        "detail off\r\nget p:a\r\nstats detail dump\r\nstats reset\r\nstats detail dump\r\n",
        "OK\r\nRESET\r\nSTORED\r\nVALUE p:a 0 1\r\nx\r\nEND\r\nVALUE p:a 0 "
        "1\r\nx\r\nEND\r\nTOUCHED\r\nNOT_FOUND\r\nEND\r\nCLIENT_ERROR bad data "
        "chunk\r\nERROR\r\nPREFIX p get 3 hit 2 set 2 del 1\r\nEND\r\nOK\r\nVALUE p:a 0 "
        "1\r\nx\r\nEND\r\nPREFIX p get 3 hit 2 set 2 del 1\r\nEND\r\nRESET\r\nEND\r\n"),
};

/* An empty cache, and a new session. */
static void begin(void)
{
    static const char reset[] = "flush_all\r\nstats detail off\r\n";
    converse_reconnect(converse);
    converse_say(converse, reset, sizeof reset - 1, 0);
    assert_string_equal(converse_answer(converse), "OK\r\nOK\r\n");
}

static void check(const struct conversation *conversation)
{
    assert_int_equal(converse->replies_length, conversation->answered_length);
    assert_memory_equal(converse_answer(converse), conversation->answered,
                        conversation->answered_length);
    assert_int_equal(converse->is_closed, conversation->is_closed);
}

static void hold(const struct conversation *conversation)
{
    size_t length = conversation->said_length;
    for (size_t piece = 1; piece <= length; piece++) {
        begin();
        converse_say(converse, conversation->said, length, piece);
        check(conversation);
    }
    for (size_t cut = 1; cut < length; cut++) {
        begin();
        converse_say(converse, conversation->said, cut, 0);
        converse_say(converse, conversation->said + cut, length - cut, 0);
        check(conversation);
    }
}

#define HOLD_ALL(array)                                       \
    do {                                                      \
        for (size_t i = 0; i < FW_ARRAY_LENGTH(array); i++) { \
            hold(&(array)[i]);                                \
        }                                                     \
    } while (0)

static void test_reading(void **state)
{
    (void)state;
    HOLD_ALL(reading);
}

static void test_storing(void **state)
{
    (void)state;
    HOLD_ALL(storing);
}

static void test_changing(void **state)
{
    (void)state;
    HOLD_ALL(changing);
}

static void test_administering(void **state)
{
    (void)state;
    HOLD_ALL(administering);
}

static void test_counting(void **state)
{
    (void)state;
    HOLD_ALL(counting);
}

static void say(const char *said, const char *answered)
{
    converse_say(converse, said, strlen(said), 0);
    assert_string_equal(converse_answer(converse), answered);
}

/* All gets in one portion are looked up together: the answers must still be each its own. */
static void test_pipeline(void **state)
{
    (void)state;
    begin();
    say("set a 1 0 1\r\nx\r\nset b 12 0 2\r\nyy\r\nset c 123 0 3\r\nzzz\r\n",
        "STORED\r\nSTORED\r\nSTORED\r\n");
    char said[4096] = "";
    char answered[4096] = "";
    size_t said_length = 0;
    size_t answered_length = 0;
    static const char *const requests[] = {"get a\r\n", "get b\r\n", "get c\r\n", "get d\r\n"};
    static const char *const answers[] = {"VALUE a 1 1\r\nx\r\nEND\r\n",
                                          "VALUE b 12 2\r\nyy\r\nEND\r\n",
                                          "VALUE c 123 3\r\nzzz\r\nEND\r\n", "END\r\n"};
    for (size_t i = 0; i < 100; i++) {
        size_t which = i * i % 4 + i % 3 == 0 ? 3 : i % 4;
        memcpy(said + said_length, requests[which], strlen(requests[which]));
        said_length += strlen(requests[which]);
        memcpy(answered + answered_length, answers[which], strlen(answers[which]));
        answered_length += strlen(answers[which]);
    }
    for (size_t piece = 1; piece <= said_length; piece += 13) {
        converse->commands = 0;
        converse_say(converse, said, said_length, piece);
        assert_string_equal(converse_answer(converse), answered);
        assert_int_equal(converse->commands, 100);
    }
}

static void test_cas(void **state)
{
    (void)state;
    struct converse *before = converse;
    converse = converse_create(); /* Its numbers begin anew. */
    say("set a 0 0 1\r\nx\r\ngets a\r\n", "STORED\r\nVALUE a 0 1 1\r\nx\r\nEND\r\n");
    say("cas a 5 0 2 1\r\nyy\r\ngets a\r\n", "STORED\r\nVALUE a 5 2 2\r\nyy\r\nEND\r\n");
    say("cas a 0 0 1 1\r\nz\r\ngets a b a\r\n",
        "EXISTS\r\nVALUE a 5 2 2\r\nyy\r\nVALUE a 5 2 2\r\nyy\r\nEND\r\n");
    say("cas b 0 0 1 1\r\nz\r\n", "NOT_FOUND\r\n");
    say("touch a 100\r\ngats 0 a\r\n", "TOUCHED\r\nVALUE a 5 2 2\r\nyy\r\nEND\r\n");
    say("append a 0 0 1\r\nz\r\ngets a\r\n", "STORED\r\nVALUE a 5 3 3\r\nyyz\r\nEND\r\n");
    say("set a 0 0 1\r\n5\r\nincr a 1\r\ngets a\r\n",
        "STORED\r\n6\r\nVALUE a 0 1 5\r\n6\r\nEND\r\n");
    converse->cache.settings.has_cas = false;
    say("gets a\r\ncas a 0 0 1 5\r\nx\r\n", "VALUE a 0 1 0\r\n6\r\nEND\r\nEXISTS\r\n");
    converse_destroy(converse);
    converse = before;
}

/* Counting down leaves the length and fills with spaces; counting up beyond it makes it longer. */
static void test_count_length(void **state)
{
    (void)state;
    begin();
    say("set n 3 100 3\r\n100\r\n", "STORED\r\n");
    say("decr n 1\r\nget n\r\n", "99\r\nVALUE n 3 3\r\n99 \r\nEND\r\n");
    say("incr n 1\r\nget n\r\n", "100\r\nVALUE n 3 3\r\n100\r\nEND\r\n");
    say("incr n 9900\r\nget n\r\n", "10000\r\nVALUE n 3 5\r\n10000\r\nEND\r\n");
    say("decr n 99999\r\nget n\r\n", "0\r\nVALUE n 3 5\r\n0    \r\nEND\r\n");
}

static void set_time(int64_t seconds)
{
    fw_cache_local_set_time(&converse->local,
                            converse->cache.start_ns + seconds * INT64_C(1000000000));
}

static void test_time(void **state)
{
    (void)state;
    begin();
    set_time(10);
    say("set a 0 5 1\r\nx\r\nset b 0 0 1\r\ny\r\n", "STORED\r\nSTORED\r\n");
    set_time(14);
    say("get a b\r\n", "VALUE a 0 1\r\nx\r\nVALUE b 0 1\r\ny\r\nEND\r\n");
    set_time(15);
    say("get a b\r\n", "VALUE b 0 1\r\ny\r\nEND\r\n");
    say("add a 0 0 1\r\nz\r\n", "STORED\r\n");
    say("touch a 5\r\ngat 3 b\r\n", "TOUCHED\r\nVALUE b 0 1\r\ny\r\nEND\r\n");
    set_time(18);
    say("get a b\r\n", "VALUE a 0 1\r\nz\r\nEND\r\n");
    /* A flush that is to come later does not touch what is there, and is taken back by another. */
    say("set b 0 0 1\r\ny\r\nflush_all 10\r\nget b\r\n",
        "STORED\r\nOK\r\nVALUE b 0 1\r\ny\r\nEND\r\n");
    set_time(26);
    say("get b\r\n", "VALUE b 0 1\r\ny\r\nEND\r\n");
    set_time(27);
    say("get b\r\nset b 0 0 1\r\nz\r\n", "END\r\nSTORED\r\n");
    set_time(30);
    say("get b\r\n", "VALUE b 0 1\r\nz\r\nEND\r\n");
    say("flush_all 10\r\nflush_all\r\nset b 0 0 1\r\nw\r\n", "OK\r\nOK\r\nSTORED\r\n");
    set_time(100);
    say("get b\r\n", "VALUE b 0 1\r\nw\r\nEND\r\n");
    set_time(0);
}

static void test_permissions(void **state)
{
    (void)state;
    begin();
    say("version\r\n", "VERSION " FW_CACHE_VERSION "\r\n");
    converse->cache.settings.has_flush = false;
    say("flush_all\r\nflush_all noreply\r\n", "CLIENT_ERROR flush_all not allowed\r\n");
    converse->cache.settings.has_flush = true;
    converse->cache.settings.has_dump = false;
    say("stats cachedump 1 0\r\nlru_crawler metadump all\r\n",
        "CLIENT_ERROR stats cachedump not allowed\r\nERROR metadump not allowed\r\n");
    converse->cache.settings.has_dump = true;
    say("verbosity 1\r\n", "OK\r\n");
    assert_int_equal(converse->verbosity, 1);
    say("verbosity 9\r\n", "OK\r\n");
    assert_int_equal(converse->verbosity, 2);
    converse->may_shut_down = true;
    say("shutdown foo\r\nshutdown graceful\r\nversion\r\n",
        "CLIENT_ERROR invalid shutdown mode\r\n");
    assert_true(converse->is_shut_down);
    assert_true(converse->is_closed);
    converse->may_shut_down = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reading),  cmocka_unit_test(test_storing),
        cmocka_unit_test(test_changing), cmocka_unit_test(test_administering),
        cmocka_unit_test(test_counting), cmocka_unit_test(test_pipeline),
        cmocka_unit_test(test_cas),      cmocka_unit_test(test_count_length),
        cmocka_unit_test(test_time),     cmocka_unit_test(test_permissions),
    };
    return cmocka_run_group_tests_name("text", tests, setup, teardown);
}

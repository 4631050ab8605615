/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner's protocol of the job kernel: two numbers and a list instead of a search.
 *
 * A parent rejoins its requests until it is told that none exists. One request is rejoinable and
 * posts a sibling before it ends; the sibling is not. Workers take no lock: they put what is
 * finished on the list `done`, or raise `finished`, and then look whether somebody waits. The
 * parent says that it waits and then looks once more before it sleeps. `expected` changes under a
 * lock that workers take only to wake.
 *
 *   none exist  <=>  expected == finished
 *
 * It is checked that "none exist" is final (nothing runs after it), and that the parent always
 * learns of it: a lost wake-up is an invalid end state. What goes wrong if
 *
 *   LATE_COUNT  the sibling is counted after the request that posts it is over;
 *   NO_RECHECK  the parent sleeps without the second look;
 *   NO_LOOK     the worker of a request that nobody will rejoin does not look for who waits;
 *   SCAN        the parent looks for its requests place by place, as the source document does
 *               (finished, then running, then waiting), instead of comparing the numbers.
 *
 * Verify: (none)         passes
 * Verify: -DLATE_COUNT   fails: assertion violated
 * Verify: -DNO_RECHECK   fails: invalid end state
 * Verify: -DNO_LOOK      fails: invalid end state
 * Verify: -DSCAN         fails: assertion violated
 */
byte expected = 1, finished = 0, done = 0; /* The first request was counted before it was seen. */
bool waits = 0, token = 0, lock = 0;       /* `waits`: the parent is in line; token: its parker. */
bool running1 = 0, running2 = 0, ready1 = 1, ready2 = 0;
bool said = 0; /* "None exist" was said. */

inline acquire() { atomic { !lock -> lock = 1 } }
inline release() { lock = 0 }

/* Under the lock: who waits leaves the line and gets a token. */
inline settle()
{
    acquire();
    if
    :: waits -> waits = 0; token = 1
    :: else
    fi;
    release()
}

active proctype first()
{
    atomic { ready1 -> ready1 = 0; running1 = 1; assert(!said) }
#ifndef LATE_COUNT
    acquire();
    expected++;
    release();
    ready2 = 1;
#endif
    atomic { done++; running1 = 0 }
    if
    :: waits -> settle()
    :: else
    fi;
#ifdef LATE_COUNT
    acquire();
    expected++;
    release();
    ready2 = 1
#endif
}

active proctype second()
{
    atomic { ready2 -> ready2 = 0; running2 = 1 }
    assert(!said);
    atomic { finished++; running2 = 0 }
#ifndef NO_LOOK
    if
    :: waits -> settle()
    :: else
    fi
#endif
}

/* One look at the owner, under the lock: takes what is finished, else sets `none`. */
inline look()
{
    none = 0;
    taken = 0;
#ifdef SCAN
    if
    :: done > 0 -> done--; expected--; taken = 1
    :: else ->
        if
        :: running1 || running2 -> skip
        :: else ->
            if
            :: ready1 || ready2 -> skip
            :: else -> none = 1
            fi
        fi
    fi
#else
    if
    :: done > 0 -> done--; expected--; taken = 1
    :: else ->
        if
        :: expected == finished -> none = 1
        :: else
        fi
    fi
#endif
}

active proctype parent()
{
    bool none = 0, taken = 0;
again:
    acquire();
    look();
    if
    :: none -> said = 1; release()
    :: taken -> release(); goto again
    :: else ->
        waits = 1;
#ifndef NO_RECHECK
        if
        :: done > 0 || expected == finished -> waits = 0; release(); goto again
        :: else
        fi;
#endif
        release();
        (token) -> token = 0;
        goto again
    fi
}

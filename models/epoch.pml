/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epochs over a group: three participants, one of whom may be slow, evicted, or dead.
 *
 * The group orders what is said; every member reads the same log, each at its own pace, and
 * computes the coordinator from it: who is live, who is ready, which epoch runs. A view is an entry
 * of that log. A participant says NEXT, waits for the start, and goes on; one that is told that it
 * was evicted joins anew. A clock may run out at any time while somebody is ready.
 *
 * It is checked that all who start the same epoch started it with the same participants (E2, E15),
 * that no epoch starts before every live one is ready (E1), that numbers rise by one (E6), that an
 * evicted one is ignored until it joins anew (E8), and that each NEXT has exactly one answer and
 * nobody waits for ever (E14, E10): a lost answer is an invalid end state. What goes wrong if
 *
 *   EAGER     a member counts its own NEXT when it says it, not when the log brings it;
 *   OWN_CLOCK a member evicts when its own clock has run out, without saying so to all;
 *   NO_VIEW   a member that has died stays live for the others;
 *   ANY_WORD  a word of one who was evicted counts as if it had joined anew;
 *   NO_TOLD   one that was evicted while its word was under way is not told.
 *
 * The moves are printed, so that what breaks a variant can be played to the real code, which must bear
 * it: tests/replay.
 *
 * Verify: (none)      passes
 * Verify: -DEAGER     fails: assertion violated
 * Verify: -DOWN_CLOCK fails: assertion violated
 * Verify: -DNO_VIEW   fails: invalid end state
 * Verify: -DANY_WORD  fails: assertion violated
 * Verify: -DNO_TOLD   fails: invalid end state
 */
#define MEMBERS 3
#define EPOCHS(m) (2 - ((m) > 0)) /* How many it wants to take part in: 2, 1 and 1. */
#define LOG 12        /* Entries; enough for all that can be said. */
#define NEXT 1        /* Entry: kind, member, number; number 0 joins. */
#define TIMEOUT 2
#define LEFT 3

byte kind[LOG], who[LOG], what[LOG];
byte length = 0;
bool is_dead[MEMBERS];
byte complaints = 1;  /* How many may still be made: clocks are slow. */

/* What each epoch was started with, by who was first to start it: a mask + 8 * number. */
byte started_with[LOG];

/* Each member's coordinator. */
byte at[MEMBERS], number[MEMBERS], live[MEMBERS], ready[MEMBERS];
/* Each member's participant. */
bool is_waiting[MEMBERS], is_first[MEMBERS], is_stale[MEMBERS];

inline say(k, m, n)
{
    assert(length < LOG);
    kind[length] = k;
    who[length] = m;
    what[length] = n;
    length++
}

#define BIT(m) (1 << (m))

/* All live ones are ready: the epoch starts, here. */
inline consider(i)
{
    if
    :: live[i] != 0 && ready[i] == live[i] ->
        number[i]++;
        if
        :: started_with[number[i]] == 0 -> started_with[number[i]] = live[i]
        :: else -> assert(started_with[number[i]] == live[i])
        fi;
        if
        :: ready[i] & BIT(i) && is_waiting[i] ->
            is_waiting[i] = false;
            is_first[i] = false;
            taken[i]++
        :: else
        fi;
        ready[i] = 0
    :: else
    fi
}

inline evict(i)
{
    if
    :: (live[i] & BIT(i)) && !(ready[i] & BIT(i)) ->
        if
#ifndef NO_TOLD
        :: is_waiting[i] && !is_first[i] -> is_waiting[i] = false; is_first[i] = true
#endif
        :: else -> is_stale[i] = true
        fi
    :: else
    fi;
    live[i] = live[i] & ready[i];
    consider(i)
}

/* Reads the next entry. */
inline read(i)
{
    k = kind[at[i]];
    m = who[at[i]];
    n = what[at[i]];
    at[i]++;
    if
    :: k == NEXT ->
        if
#ifdef ANY_WORD
        :: n == 0 || true ->
#else
        :: n == 0 || ((live[i] & BIT(m)) && n == number[i]) ->
#endif
            assert(n == 0 || (live[i] & BIT(m)));
            live[i] = live[i] | BIT(m);
            ready[i] = ready[i] | BIT(m);
            consider(i)
        :: else
        fi
    :: k == TIMEOUT ->
        if
        :: ready[i] != 0 && n == number[i] -> evict(i)
        :: else
        fi
    :: k == LEFT ->
#ifndef NO_VIEW
        live[i] = live[i] & ~BIT(m);
        ready[i] = ready[i] & ~BIT(m);
        consider(i)
#endif
    fi;
    k = 0;
    m = 0;
    n = 0
}

byte taken[MEMBERS];

proctype member(byte i)
{
    byte k, m, n;
    is_first[i] = true;
    do
    /* It is dead. */
    :: atomic { is_dead[i] -> break }
    /* Something has come. */
    :: atomic { !is_dead[i] && at[i] < length -> printf("MOVE read %d\n", i); read(i) }
    /* It wants the next epoch. */
    :: atomic {
        !is_dead[i] && !is_waiting[i] && taken[i] < EPOCHS(i) ->
        if
        :: is_stale[i] -> is_stale[i] = false; is_first[i] = true
        :: else
        fi;
        is_waiting[i] = true;
        printf("MOVE next %d\n", i);
        if
        :: is_first[i] -> say(NEXT, i, 0)
        :: else -> say(NEXT, i, number[i])
        fi;
#ifdef EAGER
        live[i] = live[i] | BIT(i);
        ready[i] = ready[i] | BIT(i);
        consider(i)
#endif
       }
    /* Its clock has run out. */
    :: atomic {
        !is_dead[i] && ready[i] != 0 && ready[i] != live[i] && complaints > 0 ->
        complaints--;
        printf("MOVE clock %d\n", i);
#ifdef OWN_CLOCK
        evict(i)
#else
        say(TIMEOUT, i, number[i])
#endif
       }
    /* It has had what it wanted, and leaves. */
    :: atomic {
        !is_dead[i] && !is_waiting[i] && taken[i] == EPOCHS(i) ->
        is_dead[i] = true;
        printf("MOVE die %d\n", i);
        say(LEFT, i, 0)
       }
    od
}

/* One of them dies at any time. */
proctype death()
{
    atomic {
        if
        :: !is_dead[2] -> is_dead[2] = true; printf("MOVE die 2\n"); say(LEFT, 2, 0)
        :: true
        fi
    }
}

init
{
    atomic {
        run member(0);
        run member(1);
        run member(2);
        run death()
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An extent that goes from the manager to a host, into a volume and back, and both may crash.
 *
 * There is one extent, and two hosts that want it. `logged` is what the manager's redo log says of
 * it: 0 free, 1 or 2 granted to that host, 3 or 4 placed by that host. `generation` is that of its
 * last grant. A host has a down ring, with grants and complete lists, and an up ring, with
 * placements and returns; each holds at most one message, which stays until it is taken. `writes`
 * of a host is its mapping: while it is true the host may write to the extent. That must never be
 * true of two hosts, and never without the volume being the extent's owner in the log, or on its
 * way there in the ring.
 *
 * The manager sends grants again whenever it likes, as one does that has crashed and does not know
 * what it has sent. A host that crashes forgets its pool, asks for the list (`asks`), and drops what
 * is in the down ring; the manager answers when it has taken in the up ring. An extent is discarded
 * by taking the mapping away first.
 *
 * Mistakes that must be found:
 *   SEND_FIRST       a grant is sent before it is in the log, and a crash in between forgets it
 *   FORGETS_SEEN     a host takes in again a grant that it has had in this life
 *   LIST_TOO_EARLY   the manager answers with the list before it has taken in the up ring
 *   NO_GENERATION    a message counts although the extent has been granted anew since
 *
 * Verify: (none)             passes
 * Verify: -DSEND_FIRST       fails: assertion violated
 * Verify: -DFORGETS_SEEN     fails: assertion violated
 * Verify: -DLIST_TOO_EARLY   fails: assertion violated
 * Verify: -DNO_GENERATION    fails: assertion violated
 */
#define HOSTS     2
#define GRANTS    3 /* So many in all, and so many crashes. */
#define CRASHES   2
#define EMPTY     0

/* In an up ring. */
#define PLACE     1
#define GIVE_BACK 2

byte logged = 0;
byte generation = 0;
byte crashes = 0;

byte down[HOSTS];      /* The generation of a grant, or EMPTY. */
byte up[HOSTS];        /* PLACE, GIVE_BACK or EMPTY... */
byte up_number[HOSTS]; /* ... of the extent with this generation. */
bool asks[HOSTS];      /* Suspended and resumed: a list is due. */
bool listed[HOSTS];    /* It is there: `list` is in it, or nothing. */
byte list[HOSTS];
byte list_seen[HOSTS]; /* The newest generation when it was made. */
bool writes[HOSTS];

#define OWNED(h)  (logged == 3 + (h) || up[h] == PLACE)

inline check()
{
    assert(!(writes[0] && writes[1]));
    assert(!writes[0] || OWNED(0));
    assert(!writes[1] || OWNED(1))
}

/* Takes in what a host has said: one step, for the log is durable before the ring is advanced. */
inline receive(h)
{
    if
    :: up[h] == PLACE ->
#ifdef NO_GENERATION
        if
        :: logged == 1 + h -> logged = 3 + h
        :: else
        fi;
#else
        if
        :: logged == 1 + h && up_number[h] == generation -> logged = 3 + h
        :: else
        fi;
#endif
    :: up[h] == GIVE_BACK ->
#ifdef NO_GENERATION
        logged = 0;
#else
        if
        :: logged == 3 + h && up_number[h] == generation -> logged = 0
        :: else
        fi;
#endif
    :: else
    fi
}

active proctype manager()
{
    byte h;
    byte next;
end:
    do
    /* One host after the other, in any order. */
    :: atomic { h = 0 } -> goto round
    :: atomic { h = 1 } -> goto round
    od;
round:
    if
    :: atomic { up[h] != EMPTY -> receive(h); check() };
        if
        :: up[h] = EMPTY
        :: crashes < CRASHES -> crashes++ /* The message stays, and comes again. */
        fi
    :: atomic { logged == 0 && generation < GRANTS && down[h] == EMPTY && !asks[h] ->
                next = generation + 1 };
#ifdef SEND_FIRST
        atomic { down[h] == EMPTY -> down[h] = next };
        if
        :: atomic { generation = next; logged = 1 + h }
        :: crashes < CRASHES -> crashes++
        fi
#else
        atomic { generation = next; logged = 1 + h }
        /* Sent below, now, later, or by the next manager. */
#endif
    :: atomic { logged == 1 + h && down[h] == EMPTY && !asks[h] -> down[h] = generation }
    :: atomic {
#ifdef LIST_TOO_EARLY
        asks[h] ->
#else
        asks[h] && up[h] == EMPTY ->
#endif
        list[h] = (logged == 1 + h -> generation : EMPTY);
        list_seen[h] = generation;
        listed[h] = true;
        asks[h] = false }
    :: skip
    fi;
    goto end
}

proctype host(byte h)
{
    byte pool = EMPTY; /* The generation of the extent, if it is there. */
    byte seen = 0;
    byte mapped = EMPTY;
    bool runs = false;
end:
    do
    :: atomic { !runs && !asks[h] && !listed[h] -> pool = EMPTY; down[h] = EMPTY; asks[h] = true }
    :: atomic { !runs && listed[h] ->
                pool = list[h]; seen = list_seen[h]; listed[h] = false; runs = true }
    :: atomic { runs && down[h] != EMPTY ->
                if
#ifdef FORGETS_SEEN
                :: true -> pool = down[h]
#else
                :: down[h] > seen -> pool = down[h]; seen = down[h]
                :: else
#endif
                fi;
                down[h] = EMPTY }
    /* An allocation: push, then map. */
    :: atomic { runs && pool != EMPTY && mapped == EMPTY && up[h] == EMPTY ->
                up[h] = PLACE; up_number[h] = pool; mapped = pool; pool = EMPTY };
        atomic { writes[h] = true; check() }
    /* A discard: unmap, then push. */
    :: atomic { mapped != EMPTY && writes[h] && up[h] == EMPTY -> writes[h] = false };
        atomic { up[h] == EMPTY -> up[h] = GIVE_BACK; up_number[h] = mapped; mapped = EMPTY }
    /* The agent dies. What it had mapped is read again from ring and log. */
    :: atomic { crashes < CRASHES && runs -> crashes++; runs = false; pool = EMPTY; seen = 0 }
    od
}

init
{
    atomic {
        run host(0);
        run host(1)
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host leaves a group: what it had is given to others only when it cannot write any more.
 *
 * There is one volume, which the host opens, writes and closes, and a rival, who takes the volume
 * when the manager's log says that nobody has it open, or that the host is gone. `up` and `down` are
 * the rings. A message is taken from `up` in the same step in which its effect is in the log. An
 * operator orders the host to leave, once, and must be told how it ended: it is gone, or it stays.
 * Manager and agent crash: the manager forgets what it has sent (`told`), the agent what it has
 * open, and drops what is in `down`; its writes end with it. The agent can also be silent for any
 * time, as all processes here can.
 *
 * Mistakes that must be found:
 *   ACK_OPEN      LEFT is said while a volume is open
 *   ACK_EARLY     ... while a write is still under way
 *   FLAG          the manager releases the host when LEAVE is sent, without an answer
 *   OPEN_LATE     a volume is opened after LEFT
 *   USERS_DROPPED the manager forgets what is open when it has sent LEAVE
 *   NOT_LOGGED    the order is not in the log: a crash forgets it
 *   SILENCE       the manager takes a host that does not answer for dead
 *   RESTART       an agent starts though an earlier life of it has said LEFT
 *
 * Verify: (none)           passes
 * Verify: -DACK_OPEN       fails: assertion violated
 * Verify: -DACK_EARLY      fails: assertion violated
 * Verify: -DFLAG           fails: assertion violated
 * Verify: -DOPEN_LATE      fails: assertion violated
 * Verify: -DUSERS_DROPPED  fails: assertion violated
 * Verify: -DNOT_LOGGED     fails: invalid end state
 * Verify: -DSILENCE        fails: assertion violated
 * Verify: -DRESTART        fails: assertion violated
 */
#define CRASHES 2
#define OPENS   2

mtype = { OPEN, CLOSE, STAYS, LEFT, LEAVE };

chan up = [4] of { mtype };
chan down = [2] of { mtype };

/* The manager's log. */
bool listed = true;
bool users = false;
bool leaving = false;

/* The manager's memory. */
bool told = false;

/* The operator's. */
bool ordered = false;
bool stays = false;

/* The agent's; `writes` is under way on the disk. */
bool runs = true;
bool is_open = false;
bool writes = false;
bool gate = false; /* Shut. */
bool has_left = false; /* LEFT has been said, in this life or another. */
bool asked = false;

byte crashes = 0;
byte opens = 0;

inline check()
{
    assert(listed || !writes);
    assert(listed || !is_open)
}

/* Nobody else has the volume: then the rival writes. */
active proctype rival()
{
end:
    do
    :: atomic { !users && empty(up) -> assert(!is_open && !writes) }
    od
}

active proctype operator()
{
    ordered = true;
    (stays || !listed) /* An order that nobody remembers never ends. */
}

inline receive()
{
    if
    :: up ? OPEN -> users = true
    :: up ? CLOSE -> users = false
    :: up ? STAYS -> leaving = false; told = false; stays = true
    :: up ? [LEFT] -> listed = false; users = false; check()
    fi
}

active proctype manager()
{
    bool seen = false; /* The order has been done: the operator's ring is advanced. */
end:
    do
    :: atomic { listed && nempty(up) -> receive() }
    :: atomic { listed && ordered && !seen && empty(up) ->
                seen = true;
                if
                :: users -> stays = true
#ifdef NOT_LOGGED
                :: !users -> leaving = false; down ! LEAVE; told = true
#else
                :: !users -> leaving = true
#endif
                fi }
    :: atomic { listed && leaving && !told && !asked && users -> leaving = false; stays = true }
    :: atomic { listed && leaving && !told && !asked && !users && nfull(down) ->
                down ! LEAVE; told = true;
#ifdef FLAG
                listed = false; check()
#endif
              }
#ifdef USERS_DROPPED
    :: atomic { listed && leaving && told -> users = false }
#endif
#ifdef SILENCE
    :: atomic { listed && leaving && told -> listed = false; check() }
#endif
    :: atomic { listed && crashes < CRASHES -> crashes++; told = false }
    :: atomic { asked && empty(down) -> asked = false; told = false } /* A resync is answered. */
    :: !listed -> break
    od
}

active proctype agent()
{
end:
    do
    :: atomic { runs && !is_open && !gate && opens < OPENS && nfull(up) ->
                opens++; is_open = true; up ! OPEN; check() }
    :: atomic { runs && is_open && !writes -> writes = true; check() }
    :: atomic { writes -> writes = false }
    :: atomic { runs && is_open && nfull(up) &&
#ifndef ACK_EARLY
                !writes &&
#endif
                !gate -> is_open = false; up ! CLOSE }
    :: atomic { runs && !asked && nempty(down) && nfull(up) && !gate ->
                down ? LEAVE;
                if
#ifndef ACK_OPEN
                :: is_open -> up ! STAYS
                :: !is_open ->
#else
                :: true ->
#endif
#ifndef OPEN_LATE
                    gate = true;
#endif
                    has_left = true; up ! LEFT
                fi }
    /* It dies, and its writes with it. */
    :: atomic { runs && crashes < CRASHES && !writes ->
                crashes++; runs = false; is_open = false; gate = false }
    :: atomic { !runs && listed &&
#ifndef RESTART
                !has_left &&
#endif
                true ->
                runs = true; asked = true;
                do
                :: nempty(down) -> down ? LEAVE
                :: empty(down) -> break
                od }
    od
}

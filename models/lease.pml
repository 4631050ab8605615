/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manager's lease: one record on the disk, two hosts that want to hold it, and time.
 *
 * `record` is the host whose record is on the disk. `right` of a host is how long it may still
 * write, and `wait` how long its claim must stand before it counts. Time passes whenever it likes,
 * between any two steps, so anyone may be stopped anywhere and for long; `age` is how long ago a
 * host has read. A host may crash, and its next process finds the record that the last one left.
 * That a write is started in time and gets to the disk is one step here.
 *
 * Mistakes that must be found:
 *   SHORT        the claim counts before the rights of the others are over
 *   BLIND        the holder renews without looking whether the record is still its own
 *   FROM_WRITE   a right is counted from when the renewal was seen to be over, not from its beginning
 *   NO_CONFIRM   the claimer does not look again when it has waited
 *   LATE         a write is started however long ago the record was read
 *
 * Verify: (none)         passes
 * Verify: -DSHORT        fails: assertion violated
 * Verify: -DBLIND        fails: assertion violated
 * Verify: -DFROM_WRITE   fails: assertion violated
 * Verify: -DNO_CONFIRM   fails: assertion violated
 * Verify: -DLATE         fails: assertion violated
 */
#define HOLD 2
#ifdef SHORT
#define W    1
#else
#define W    3
#endif
#define OLD  W /* Ages above that are all the same. */

byte record = 0;
byte right[2];
byte wait[2];
byte age[2];

inline check()
{
    assert(right[0] == 0 || right[1] == 0)
}

active proctype time()
{
end:
    do
    :: d_step {
        right[0] = (right[0] > 0 -> right[0] - 1 : 0);
        right[1] = (right[1] > 0 -> right[1] - 1 : 0);
        wait[0] = (wait[0] > 0 -> wait[0] - 1 : 0);
        wait[1] = (wait[1] > 0 -> wait[1] - 1 : 0);
        age[0] = (age[0] < OLD -> age[0] + 1 : OLD);
        age[1] = (age[1] < OLD -> age[1] + 1 : OLD) }
    od
}

proctype host(byte h)
{
    byte found;
    bool held = false;
end:
    do
    /* A look: at its own record, which it renews or takes over from its dead process... */
    :: atomic { found = record; age[h] = 0 };
        if
#ifndef BLIND
        :: found == h ->
#else
        :: found == h || held ->
#endif
            if
#ifndef LATE
            :: atomic { age[h] < HOLD -> record = h;
#else
            :: atomic { true -> record = h;
#endif
#ifdef FROM_WRITE
                held = true };
                atomic { right[h] = HOLD; check() }
#else
                held = true;
                right[h] = (age[h] < HOLD -> HOLD - age[h] : 0);
                check() }
#endif
            :: else
            fi
        /* ... or at the other's, which has been silent or released: it claims. */
        :: found != h ->
            if
            :: atomic { age[h] < HOLD -> record = h; right[h] = 0; wait[h] = W };
                wait[h] == 0;
                atomic { found = record; age[h] = 0 };
                if
#ifdef NO_CONFIRM
                :: atomic { true -> right[h] = HOLD; check() }
#else
                :: found == h && age[h] < HOLD ->
                    atomic { right[h] = (age[h] < HOLD -> HOLD - age[h] : 0); check() }
#endif
                :: else
                fi
            :: else
            fi
        fi
    /* A crash, or a release. */
    :: right[h] > 0 -> atomic { right[h] = 0; held = false }
    od
}

init
{
    atomic { run host(0); run host(1) }
}

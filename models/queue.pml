/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol of suspending and resuming a queue, as the design document has it: one thread on each
 * side, no crashes, room for one message.
 *
 * The consumer suspends, waits for the acknowledgement, throws away what is left, resumes, and then
 * expects a full sync before any delta. `susp` is its bit on the disk, `ack` the producer's,
 * `inflight` the message in the queue. The producer looks at the bit and publishes in two steps, as
 * anyone with a disk must. What goes wrong if
 *
 *   LATE_DELTA    the producer acknowledges between looking and publishing;
 *   ACK_FIRST     it clears the acknowledgement before it sends the sync;
 *   NO_DRAIN      the consumer resumes without having thrown away what was left;
 *   EARLY_RESUME  the consumer resumes without having waited for the acknowledgement.
 *
 * Verify: (none)          passes
 * Verify: -DLATE_DELTA    fails: invalid end state
 * Verify: -DACK_FIRST     fails: assertion violated
 * Verify: -DNO_DRAIN      fails: invalid end state
 * Verify: -DEARLY_RESUME  fails: assertion violated
 */
mtype = { none, delta, sync };
mtype inflight = none;
bool susp = false, ack = false;

active proctype producer()
{
    bool looked;
end:
    do
    :: susp && !ack -> ack = true
    :: !susp && ack && inflight == none ->
#ifdef ACK_FIRST
        ack = false;
        inflight = sync
#else
        d_step { inflight = sync; ack = false } /* One write. */
#endif
    :: !ack && inflight == none ->
        looked = susp;
#ifdef LATE_DELTA
        if
        :: susp && !ack -> ack = true
        :: else
        fi;
#endif
        if
        :: !looked -> inflight = delta
        :: else
        fi
    od
}

active proctype consumer()
{
end:
    do
    :: d_step { inflight != none && !susp && !ack ->
        assert(inflight == delta); /* In steady state there are only deltas. */
        inflight = none }
    :: susp == ack && !susp ->
        susp = true;
#ifndef EARLY_RESUME
        (ack == true);
#endif
#ifndef NO_DRAIN
        inflight = none;
#endif
        susp = false;
        (ack == false);
        d_step { assert(inflight == sync); inflight = none }
    od
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring between two hosts, and a producer that may crash.
 *
 * The consumer suspends the queue, waits for the acknowledgement, resumes, and then waits for the
 * sync message that must follow every resume. `susp` is its bit on the disk, `ack` the producer's.
 *
 * The mistake: the producer acknowledges the resume in one write and sends the sync in a later one,
 * and clears the acknowledgement also when it attaches. If it crashes in between, the new one finds
 * nothing pending and the consumer waits for ever, which Spin reports as an invalid end state.
 * FIX: the acknowledgement is cleared only by the write that publishes the sync.
 *
 * Verify: -DFIX   passes
 * Verify: (none)  fails: invalid end state
 */
bool susp = false, ack = false, sync = false;
byte crashes = 0;

active proctype consumer()
{
    (susp == ack) -> susp = true;
    (ack == true) -> sync = false;
    susp = false;
    (ack == false) -> (sync) -> sync = false
}

active proctype producer()
{
attach:
    if
    :: (susp && !ack) -> ack = true
    :: (!susp && ack) ->
#ifdef FIX
        atomic { ack = false; sync = true }
#else
        ack = false /* And believes that the queue had been running. */
#endif
    :: else
    fi;
end:
    do
    :: (susp && !ack) -> ack = true
    :: (!susp && ack) ->
#ifdef FIX
        atomic { ack = false; sync = true }
#else
        ack = false;
        if
        :: sync = true
        :: crashes < 1 -> crashes++; goto attach
        fi
#endif
    :: crashes < 1 -> crashes++; goto attach
    od
}

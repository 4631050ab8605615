/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring between two hosts, and a producer that may crash.
 *
 * The consumer suspends the queue, waits for the acknowledgement, resumes, and then waits for the
 * sync message that must follow every resume. `susp` is its bit on the disk, `ack` the producer's.
 *
 * FIX: the acknowledgement is cleared only by the write that publishes the sync, whoever finds the
 * resume, a producer that runs or one that attaches. Without it this is the prototype, which
 * clears in one write and sends in a later one, and clears also when it attaches: if it crashes in
 * between, the new one finds nothing pending and the consumer waits for ever, which Spin reports as
 * an invalid end state. Each half of that is wrong alone, and so is sending first: then something
 * appears in a queue that its producer still calls suspended.
 *
 * Verify: -DFIX                   passes
 * Verify: (none)                  fails: invalid end state
 * Verify: -DFIX -DCLEAR_FIRST     fails: invalid end state
 * Verify: -DFIX -DATTACH_CLEARS   fails: invalid end state
 * Verify: -DFIX -DSYNC_FIRST      fails: assertion violated
 */
#ifndef FIX
#define CLEAR_FIRST
#define ATTACH_CLEARS
#endif

bool susp = false, ack = false, sync = false;
byte crashes = 0;

/* What a crash ends, wherever it comes. */
#define CRASH  crashes < 1 -> crashes++; goto attach

inline answer_resume()
{
#if defined(CLEAR_FIRST)
    ack = false;
    if
    :: sync = true
    :: CRASH
    fi
#elif defined(SYNC_FIRST)
    sync = true;
    if
    :: ack = false
    :: CRASH
    fi
#else
    atomic { ack = false; sync = true }
#endif
}

active proctype consumer()
{
    (susp == ack) -> susp = true;
    (ack == true) -> sync = false;
    susp = false;
    atomic { (sync || !ack) -> assert(!ack) };
    (sync) -> sync = false
}

active proctype producer()
{
attach:
    if
    :: (susp && !ack) -> ack = true
#ifdef ATTACH_CLEARS
    :: (!susp && ack) -> ack = false /* And believes that the queue had been running. */
#else
    :: (!susp && ack) -> answer_resume()
#endif
    :: else
    fi;
end:
    do
    :: (susp && !ack) -> ack = true
    :: (!susp && ack) -> answer_resume()
    :: CRASH
    od
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A producer with two threads: one pushes, one polls for suspend requests while nothing is pushed.
 *
 * The promise to the consumer: nothing appears after the acknowledgement of a suspend. `produced`
 * stands for the producer's pointer on the disk; the consumer looks at it repeatedly while it holds
 * the queue suspended.
 *
 * The mistake: push() checks for a suspend and publishing happens later under a second taking of the
 * lock; the poller acknowledges in between. FIX: check and publish under one taking of the lock.
 *
 * Verify: -DFIX   passes
 * Verify: (none)  fails: assertion violated
 */
bool susp = false, ack = false, locked = false;
byte produced = 0;

inline lock()
{
    atomic { !locked -> locked = true }
}

inline unlock()
{
    locked = false
}

inline acknowledge()
{
    if
    :: susp != ack -> ack = susp
    :: else
    fi
}

active proctype pusher()
{
    do
    :: produced < 3 ->
        lock();
        acknowledge();
        if
        :: susp -> unlock()
        :: else ->
#ifndef FIX
            unlock(); /* push() returns; the caller publishes later. */
            lock();
#endif
            produced++;
            unlock()
        fi
    :: produced >= 3 -> break
    od
}

active proctype poller()
{
end:
    do
    :: lock(); acknowledge(); unlock()
    od
}

active proctype consumer()
{
    byte seen;
end:
    do
    :: (susp == ack) -> susp = true;
        (ack == true) -> seen = produced;
        assert(produced == seen);
        assert(produced == seen);
        assert(produced == seen);
        susp = false;
        (ack == false)
    od
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A producer with two threads: one pushes, one polls for suspend requests while nothing is pushed.
 *
 * The promise to the consumer: nothing appears after the acknowledgement of a suspend. `produced`
 * stands for the producer's pointer on the disk; the consumer looks at it repeatedly while it holds
 * the queue suspended.
 *
 * FIX: check and publish under one taking of the lock. Without it push() checks for a suspend, and
 * publishing happens later under a second taking; the poller acknowledges in between. As bad are a
 * look before the lock is taken, and a poller that does not take it.
 *
 * Verify: -DFIX                 passes
 * Verify: (none)                fails: assertion violated
 * Verify: -DFIX -DEARLY_LOOK    fails: assertion violated
 * Verify: -DFIX -DBARE_POLLER   fails: assertion violated
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

inline acknowledge(seen)
{
    if
    :: seen != ack -> ack = seen
    :: else
    fi
}

active proctype pusher()
{
    bool stopped;
    do
    :: produced < 3 ->
#ifdef EARLY_LOOK
        stopped = susp;
        lock();
#else
        lock();
        stopped = susp;
#endif
        acknowledge(stopped);
        if
        :: stopped -> unlock()
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
    bool stopped;
end:
    do
#ifdef BARE_POLLER
    :: stopped = susp; acknowledge(stopped)
#else
    :: lock(); stopped = susp; acknowledge(stopped); unlock()
#endif
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

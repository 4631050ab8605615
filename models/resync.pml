/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A local allocator that crashes, comes back and asks for the free blocks again. One block.
 *
 * To allocate is to write it down in the journal, to map the block, to push the message to the
 * remote allocator, and to strike it out of the journal; the allocator may crash before each of
 * these. `used` counts how often the block was mapped anew, `lvm_free` is what the remote allocator
 * believes, `to_lvm` is the message on its way to it. After a crash the journal is replayed and then
 * the free list is asked for, by suspending and resuming the queue on which it comes. What goes
 * wrong if
 *
 *   NO_FLUSH     the remote allocator makes its list while the message still waits in the ring;
 *   EARLY_LIST   it makes the list when it acknowledges the suspend;
 *   NO_JOURNAL   the local allocator does not write down what it is about to do;
 *   LATE_REPLAY  it replays its journal only after it has asked for the list.
 *
 * Verify: (none)         passes
 * Verify: -DNO_FLUSH     fails: assertion violated
 * Verify: -DEARLY_LIST   fails: assertion violated
 * Verify: -DNO_JOURNAL   fails: assertion violated
 * Verify: -DLATE_REPLAY  fails: assertion violated
 */
bool lvm_free = true, to_lvm = false, journal = false;
byte used = 0, crashes = 0;
bool susp = false, ack = false, sync = false, sync_has_block = false;

#define CRASHES 2

/* The allocator may die here. */
inline mortal()
{
    if
    :: crashes < CRASHES -> crashes++; goto begin
    :: true
    fi
}

inline replay()
{
    if
    :: journal -> to_lvm = true; journal = false /* The block is mapped already, or is so again. */
    :: else
    fi
}

active proctype local_allocator()
{
    bool have;
begin:
    have = false;
#ifndef LATE_REPLAY
    replay();
#endif
    /* A life may have ended anywhere in the handshake; `susp` tells where. */
    if
    :: !susp -> (ack == false); susp = true
    :: else
    fi;
    mortal();
    (ack == true) -> sync = false;
    susp = false;
    (ack == false && sync) -> have = sync_has_block;
    sync = false;
#ifdef LATE_REPLAY
    replay();
#endif
    mortal();
    if
    :: have ->
        have = false;
#ifndef NO_JOURNAL
        journal = true;
#endif
        mortal();
        used++;
        assert(used <= 1);
        mortal();
        to_lvm = true;
        mortal();
        journal = false
    :: else
    fi
}

inline pop_all()
{
    if
    :: to_lvm -> to_lvm = false; lvm_free = false
    :: else
    fi
}

active proctype remote_allocator()
{
end:
    do
    :: susp && !ack ->
#ifdef EARLY_LIST
        sync_has_block = lvm_free;
#endif
        ack = true
    :: !susp && ack ->
#ifndef NO_FLUSH
        pop_all();
#endif
#ifndef EARLY_LIST
        sync_has_block = lvm_free;
#endif
        atomic { ack = false; sync = true }
    :: to_lvm -> pop_all()
    od
}

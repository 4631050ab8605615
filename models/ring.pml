/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring as src/ring does it: a producer with two threads that push and one that polls, whose
 * process may crash between any two steps and start again; a consumer that suspends and resumes.
 *
 * What is on the disk outlives a crash: the consumer's bit `susp`; the producer's `ack` and pointer
 * `produced`, which one write changes together; and whether the sync that follows a resume has been
 * published. A thread's step is a read or a write of the disk; a crash takes all threads and the
 * lock with it.
 *
 * Promised to the consumer: from the acknowledgement to the resume the pointer stands still, and
 * after every resume a sync comes, which the consumer would otherwise wait for forever. What goes
 * wrong if
 *
 *   TWO_STEPS       looking for a suspend and publishing are two takings of the lock;
 *   BARE_POLLER     the thread that polls acknowledges without the lock;
 *   CLEAR_ALONE     the acknowledgement is cleared in one write, the sync published in the next;
 *   ATTACH_CLEARS   whoever attaches answers a resume like anything else that is pending.
 *
 * Verify: (none)           passes
 * Verify: -DTWO_STEPS      fails: assertion violated
 * Verify: -DBARE_POLLER    fails: invalid end state
 * Verify: -DCLEAR_ALONE    fails: invalid end state
 * Verify: -DATTACH_CLEARS  fails: invalid end state
 */
#define PUSHES  2
#define CRASHES 2
#define ROUNDS  2

bool susp = false, ack = false, synced = false; /* On the disk. */
byte produced = 0;
bool locked = false; /* In the producer's process, as all below. */
byte life = 0, crashes = 0;

/* A step of a thread that finds out here that its process has died. */
#define STEP(what)  atomic { if :: life != own -> goto begin :: else -> what fi }

inline lock()
{
    atomic {
        if
        :: life != own -> goto begin
        :: life == own && !locked -> locked = true
        fi
    }
}

/* What push and poll do first. Sets `stopped`. */
inline handshake()
{
    STEP(looked = susp);
    stopped = looked;
    if
    :: looked && !ack -> STEP(ack = true)
    :: !looked && ack ->
#ifdef CLEAR_ALONE
        STEP(ack = false);
        STEP(synced = true)
#else
        STEP(ack = false; synced = true)
#endif
    :: else
    fi
}

active [2] proctype pusher()
{
    byte own;
    bool looked, stopped;
begin:
    own = life;
end:
    do
    :: produced < PUSHES ->
        lock();
        handshake();
#ifdef TWO_STEPS
        STEP(locked = false);
        lock();
#endif
        if
        :: !stopped && produced < PUSHES -> STEP(produced++)
        :: else
        fi;
        STEP(locked = false)
    :: produced >= PUSHES -> break
    od
}

active proctype poller()
{
    byte own;
    bool looked, stopped;
begin:
    own = life;
    /* Attaching: nobody else is there yet. */
#ifdef ATTACH_CLEARS
    STEP(ack = susp);
#endif
end:
    do
    :: susp != ack ->
#ifndef BARE_POLLER
        lock();
#endif
        handshake();
#ifndef BARE_POLLER
        STEP(locked = false)
#endif
    od
}

active proctype reaper()
{
end:
    do
    :: atomic { crashes < CRASHES -> crashes++; life++; locked = false }
    od
}

active proctype consumer()
{
    byte seen, rounds;
    do
    :: rounds < ROUNDS ->
        rounds++;
        susp = true;
        (ack == true) -> seen = produced;
        assert(produced == seen);
        assert(produced == seen);
        assert(produced == seen);
        synced = false;
        susp = false;
        (ack == false);
        (synced)
    :: else -> break
    od
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring with room for one message on a disk with a cache, and its power.
 *
 * A write can be seen at once and is durable some time later; when the power fails, what can be seen
 * goes back to what is durable, and both sides attach anew. Pointers are written such that they are
 * durable when the write is over (`p`, `c` seen; `p_durable`, `c_durable`), which says nothing about
 * what the other side has written. A flush makes all durable that can be seen. Messages are numbers
 * that count up; `slot` is the one in the ring.
 *
 * It is checked that a message whose push has returned is not lost, that none is handed out which a
 * power failure then takes back, and that the slot holds what the pointers say. What goes wrong if
 *
 *   POINTER_FIRST    the pointer is written before its message is durable;
 *   NO_POP_FLUSH     the consumer believes a pointer that may not be durable yet;
 *   NO_ROOM_FLUSH    the producer overwrites what the consumer's pointer, not durable yet, frees;
 *   NO_ATTACH_FLUSH  who attaches believes what a process that died left unflushed.
 *
 * Verify: (none)             passes
 * Verify: -DPOINTER_FIRST    fails: assertion violated
 * Verify: -DNO_POP_FLUSH     fails: assertion violated
 * Verify: -DNO_ROOM_FLUSH    fails: assertion violated
 * Verify: -DNO_ATTACH_FLUSH  fails: assertion violated
 */
#define MESSAGES 3
#define FAILURES 2
#define DEATHS   1

byte p = 0, p_durable = 0, c = 0, c_durable = 0, slot = 0, slot_durable = 0;
byte pushed = 0, handed = 0; /* What has been promised. */
byte failures = 0, deaths = 0, life = 0;

inline flush()
{
    p_durable = p; c_durable = c; slot_durable = slot
}

#define STEP(what)  atomic { if :: life != own -> goto begin :: else -> what fi }

/* The process dies, and the disk's power stays. */
inline mortal()
{
    if
    :: deaths < DEATHS -> deaths++; goto begin
    :: true
    fi
}

active proctype producer()
{
    byte own, next, safe;
begin:
    atomic { own = life; next = p; safe = c };
#ifndef NO_ATTACH_FLUSH
    STEP(flush());
#endif
end:
    do
    :: next < MESSAGES ->
        do
        :: next - safe < 1 -> break
        :: life != own -> goto begin
        :: next - safe >= 1 && c > safe ->
            STEP(safe = c);
#ifndef NO_ROOM_FLUSH
            STEP(flush())
#endif
        od;
        STEP(slot = next + 1);
#ifndef POINTER_FIRST
        STEP(slot_durable = slot);
#endif
        STEP(p = next + 1);
        mortal();
        STEP(p_durable = p);
        STEP(pushed = next + 1; next++)
    :: else -> break
    od
}

active proctype consumer()
{
    byte own, cursor, safe;
begin:
    atomic { own = life; cursor = c; safe = p };
#ifndef NO_ATTACH_FLUSH
    STEP(flush());
#endif
end:
    do
    :: cursor < MESSAGES ->
        do
        :: safe > cursor -> break
        :: life != own -> goto begin
        :: safe <= cursor && p > safe ->
            STEP(safe = p);
#ifndef NO_POP_FLUSH
            STEP(flush())
#endif
        od;
        STEP(assert(slot == cursor + 1); cursor++; handed = cursor);
        STEP(c = cursor);
        mortal();
        STEP(c_durable = c)
    :: else -> break
    od
}

active proctype power()
{
end:
    do
    :: atomic {
        failures < FAILURES -> failures++;
        life++;
        p = p_durable;
        c = c_durable;
        slot = slot_durable;
        assert(p >= pushed);
        assert(p >= handed);
        assert(c <= p);
        assert(p == c || slot == p)
        }
    :: d_step { p_durable != p -> p_durable = p } /* A cache may write back at any time. */
    :: d_step { c_durable != c -> c_durable = c }
    :: d_step { slot_durable != slot -> slot_durable = slot }
    od
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A local allocator that crashes, comes back and asks for the free blocks again. One block.
 *
 * `used` counts how often the block was given to a volume, `lvm_free` is what the remote allocator
 * believes, `to_lvm` is an allocation message on its way to it.
 *
 * The mistake: the remote allocator answers with its list of free blocks while the message that one
 * of them was used is still waiting in the ring, so the block is given out twice.
 * FLUSH: it pops all allocations before it makes the list.
 *
 * Verify: -DFLUSH  passes
 * Verify: (none)   fails: assertion violated
 */
bool lvm_free = true, to_lvm = false;
byte used = 0;
bool susp = false, ack = false, sync = false, sync_has_block = false;

active proctype local_allocator()
{
    bool have = false;
    byte crashes = 0;
resync:
    (susp == ack) -> susp = true;
    (ack == true) -> sync = false;
    susp = false;
    (ack == false && sync) -> have = sync_has_block;
    sync = false;
end:
    do
    :: have -> /* Allocates: maps the block, then pushes the message. */
        have = false;
        used++;
        assert(used <= 1);
        to_lvm = true
    :: crashes < 2 -> crashes++; goto resync
    :: else -> break
    od
}

active proctype remote_allocator()
{
end:
    do
    :: (susp && !ack) -> ack = true
    :: (!susp && ack) ->
#ifdef FLUSH
        if
        :: to_lvm -> to_lvm = false; lvm_free = false
        :: else
        fi;
#endif
        sync_has_block = lvm_free;
        atomic { ack = false; sync = true }
    :: to_lvm -> to_lvm = false; lvm_free = false
    od
}

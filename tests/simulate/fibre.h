/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fibre: a stack and a place to go on from. The simulator's threads are fibres.
 *
 * ucontext does the switching. It is slower than a few lines of assembly (it saves the signal mask
 * by a system call), but it works on every processor and a simulated step costs more than that
 * anyway. ASan is told of every switch, or it would take one stack for another. TSan is not: there
 * is only one thread, so it has nothing to say here.
 */
#pragma once

#include <stddef.h>
#include <ucontext.h>

#include "base/base.h"

struct fw_fibre {
    ucontext_t context;
    void *stack; /* NULL for the thread's own. */
    void (*run)(void *argument);
    void *argument;
    struct fw_fibre *back; /* Who switched here last; where it goes when it ends. */
    void *sanitizer_stack; /* ASan's own stack of this fibre while it is away. */
    const void *bottom;    /* Of the stack, for ASan. */
    size_t size;
};

/* The fibre runs `run(argument)` when first switched to, and afterwards goes back for good. */
FW_MUST_CHECK int fw_fibre_init(struct fw_fibre *fibre, void (*run)(void *argument),
                                void *argument);

/* Stands for the thread that calls it. */
void fw_fibre_init_main(struct fw_fibre *fibre);

/* The fibre has ended, or will never be switched to again. */
void fw_fibre_fini(struct fw_fibre *fibre);

void fw_fibre_switch(struct fw_fibre *from, struct fw_fibre *to);

/* SPDX-License-Identifier: Apache-2.0 */
#include "simulate/fibre.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/assert.h"

#if defined(__SANITIZE_ADDRESS__)
#define FIBRE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBRE_ASAN 1
#endif
#endif
#if defined(FIBRE_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK_SIZE = 256 * 1024, GUARD_SIZE = 4096 };

/* Stacks of ended fibres, kept for the next run: a run makes them by the thousand. */
struct spare {
    struct spare *next;
};
static struct spare *spares;

/* Completes a switch on its far side; ASan wants to know which stack was left. */
static void switch_arrived(struct fw_fibre *here)
{
#if defined(FIBRE_ASAN)
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(here->sanitizer_stack, &bottom, &size);
    if (here->back != NULL && here->back->stack == NULL) {
        here->back->bottom = bottom; /* The thread's own stack is learnt when it is left. */
        here->back->size = size;
    }
#else
    (void)here;
#endif
}

static void switch_leaving(struct fw_fibre *from, struct fw_fibre *to, int for_good)
{
#if defined(FIBRE_ASAN)
    __sanitizer_start_switch_fiber(for_good ? NULL : &from->sanitizer_stack, to->bottom, to->size);
#else
    (void)from;
    (void)to;
    (void)for_good;
#endif
}

/* makecontext() passes ints, so the pointer travels in two. */
static void fibre_entry(unsigned high, unsigned low)
{
    struct fw_fibre *fibre = (struct fw_fibre *)(((uintptr_t)high << 32) | (uintptr_t)low);
    switch_arrived(fibre);
    fibre->run(fibre->argument);
    switch_leaving(fibre, fibre->back, 1);
    (void)setcontext(&fibre->back->context);
}

static void *stack_take(void)
{
    if (spares != NULL) {
        void *stack = spares;
        spares = spares->next;
        return stack;
    }
    char *memory = mmap(NULL, GUARD_SIZE + STACK_SIZE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    int rc = mprotect(memory, GUARD_SIZE, PROT_NONE); /* An overflow faults at once. */
    FW_ASSERT(rc == 0);
    return memory + GUARD_SIZE;
}

int fw_fibre_init(struct fw_fibre *fibre, void (*run)(void *argument), void *argument)
{
    void *stack = stack_take();
    if (stack == NULL) {
        return -ENOMEM;
    }
    *fibre = (struct fw_fibre){
        .stack = stack, .run = run, .argument = argument, .bottom = stack, .size = STACK_SIZE};
    int rc = getcontext(&fibre->context);
    FW_ASSERT(rc == 0);
    fibre->context.uc_stack.ss_sp = stack;
    fibre->context.uc_stack.ss_size = STACK_SIZE;
    uintptr_t pointer = (uintptr_t)fibre;
    makecontext(&fibre->context, (void (*)(void))fibre_entry, 2, (unsigned)(pointer >> 32),
                (unsigned)(pointer & UINT32_MAX));
    return 0;
}

void fw_fibre_init_main(struct fw_fibre *fibre)
{
    *fibre = (struct fw_fibre){.stack = NULL};
}

void fw_fibre_fini(struct fw_fibre *fibre)
{
    if (fibre->stack != NULL) {
        struct spare *spare = fibre->stack;
        spare->next = spares;
        spares = spare;
        fibre->stack = NULL;
    }
}

void fw_fibre_switch(struct fw_fibre *from, struct fw_fibre *to)
{
    to->back = from;
    switch_leaving(from, to, 0);
    int rc = swapcontext(&from->context, &to->context);
    FW_ASSERT(rc == 0);
    switch_arrived(from);
}

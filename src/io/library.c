/* SPDX-License-Identifier: Apache-2.0 */
#include "io/library.h"

#include <dlfcn.h>
#include <string.h>

fw_library_function *fw_library_find(struct fw_library *library, const char *name)
{
    /* Acquire and release: what the loader has set up is seen by who finds the handle. */
    void *handle = atomic_load_explicit(&library->handle, memory_order_acquire);
    if (handle == NULL) {
        /* Two threads may come at once; the loader gives both the same handle. */
        handle = dlopen(library->name, RTLD_NOW | RTLD_LOCAL);
        if (handle == NULL) {
            return NULL;
        }
        atomic_store_explicit(&library->handle, handle, memory_order_release);
    }
    void *address = dlsym(handle, name);
    fw_library_function *function; /* POSIX says that this works, and C does not. */
    memcpy(&function, &address, sizeof function);
    return function;
}

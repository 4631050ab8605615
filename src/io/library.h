/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Libraries that most processes never need: loaded when one of their functions is first called.
 *
 * A part of Fairway that few use, HTTP, a cluster, LVM, brings a library that brings a dozen
 * others. Linked, they would be in every cache server: in its memory (half a byte per item of a
 * million), in the time it takes to start, and in what an administrator has to keep patched. And a
 * machine that lacks one could not start the server at all.
 *
 * So each such library has a file of ours with its functions, by name and type as its own header
 * declares them, which the compiler checks:
 *
 *     static struct fw_library cpg = {.name = "libcpg.so.4"};
 *     FW_LIBRARY_CALL(&cpg, cs_error_t, cpg_finalize, (cpg_handle_t handle), (handle),
 *                     CS_ERR_LIBRARY)
 *
 * Callers write plain calls and include the plain header. The last argument is what the call
 * answers where the library, or the function, is missing. Tests that bring functions of the same
 * names get their own, since the linker takes ours from an archive only if nobody else has them.
 *
 * Any thread may call them. A library that was loaded stays until the process ends.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>

/* All zero but for the name. */
struct fw_library {
    const char *name;
    void *_Atomic handle;
};

/* Any function; its caller knows the type. */
typedef void fw_library_function(void);

/* The function, or NULL. */
fw_library_function *fw_library_find(struct fw_library *library, const char *name);

/* NOLINTBEGIN(bugprone-macro-parentheses): `parameters` and `arguments` bring their own. */
#define FW_LIBRARY_CALL(library, type, name, parameters, arguments, absent)     \
    type name parameters                                                        \
    {                                                                           \
        fw_library_function *found = fw_library_find(library, #name);           \
        return found != NULL ? ((type(*) parameters)found)arguments : (absent); \
    }
/* NOLINTEND(bugprone-macro-parentheses) */

/* SPDX-License-Identifier: Apache-2.0 */
/* libmicrohttpd, which brings GnuTLS and its company along; see io/library.h. */
#include <microhttpd.h>
#include <stdarg.h>

#include "io/library.h"

static struct fw_library microhttpd = {.name = "libmicrohttpd.so.12"};

typedef struct MHD_Daemon *daemon_start(unsigned flags, uint16_t port, MHD_AcceptPolicyCallback apc,
                                        void *apc_context, MHD_AccessHandlerCallback handler,
                                        void *context, va_list options);

struct MHD_Daemon *MHD_start_daemon(unsigned flags, uint16_t port, MHD_AcceptPolicyCallback apc,
                                    void *apc_context, MHD_AccessHandlerCallback handler,
                                    void *context, ...)
{
    daemon_start *start = (daemon_start *)fw_library_find(&microhttpd, "MHD_start_daemon_va");
    struct MHD_Daemon *daemon = NULL;
    va_list options;
    va_start(options, context);
    if (start != NULL) {
        daemon = start(flags, port, apc, apc_context, handler, context, options);
    }
    va_end(options);
    return daemon;
}

/* The others are called by who has a daemon, so the library is there. */

void MHD_stop_daemon(struct MHD_Daemon *daemon)
{
    ((void (*)(struct MHD_Daemon *))fw_library_find(&microhttpd, "MHD_stop_daemon"))(daemon);
}

void MHD_destroy_response(struct MHD_Response *response)
{
    ((void (*)(struct MHD_Response *))fw_library_find(&microhttpd, "MHD_destroy_response"))(
        response);
}

FW_LIBRARY_CALL(&microhttpd, enum MHD_Result, MHD_add_response_header,
                (struct MHD_Response * response, const char *header, const char *content),
                (response, header, content), MHD_NO)
FW_LIBRARY_CALL(&microhttpd, enum MHD_Result, MHD_queue_response,
                (struct MHD_Connection * connection, unsigned status,
                 struct MHD_Response *response),
                (connection, status, response), MHD_NO)
FW_LIBRARY_CALL(&microhttpd, struct MHD_Response *, MHD_create_response_from_buffer,
                (size_t size, void *buffer, enum MHD_ResponseMemoryMode mode), (size, buffer, mode),
                NULL)
FW_LIBRARY_CALL(&microhttpd, const char *, MHD_lookup_connection_value,
                (struct MHD_Connection * connection, enum MHD_ValueKind kind, const char *key),
                (connection, kind, key), NULL)

const union MHD_ConnectionInfo *MHD_get_connection_info(struct MHD_Connection *connection,
                                                        enum MHD_ConnectionInfoType type, ...)
{
    typedef const union MHD_ConnectionInfo *info_get(struct MHD_Connection *,
                                                     enum MHD_ConnectionInfoType, ...);
    info_get *get = (info_get *)fw_library_find(&microhttpd, "MHD_get_connection_info");
    return get != NULL ? get(connection, type) : NULL;
}

const union MHD_DaemonInfo *MHD_get_daemon_info(struct MHD_Daemon *daemon,
                                                enum MHD_DaemonInfoType type, ...)
{
    typedef const union MHD_DaemonInfo *info_get(struct MHD_Daemon *, enum MHD_DaemonInfoType, ...);
    info_get *get = (info_get *)fw_library_find(&microhttpd, "MHD_get_daemon_info");
    return get != NULL ? get(daemon, type) : NULL;
}

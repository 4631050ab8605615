/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GLib's thread pool with one thread of its own, and a sort function, which is how it keeps
 * priorities. GLib's headers use alloca(), which is banned in every file here, so the four
 * functions are declared by hand.
 */
#include "bench/jobs/peer.h"

typedef struct _GThreadPool GThreadPool; // NOLINT: GLib's own name.
GThreadPool *g_thread_pool_new(void (*run)(void *data, void *context), void *context,
                               int threads_max, int exclusive, void **error);
void g_thread_pool_set_sort_function(GThreadPool *pool,
                                     int (*compare)(const void *a, const void *b, void *context),
                                     void *context);
int g_thread_pool_push(GThreadPool *pool, void *data, void **error);
void g_thread_pool_free(GThreadPool *pool, int immediate, int wait);

static GThreadPool *pool;
static int priority;

static void run(void *data, void *context)
{
    (void)data;
    (void)context;
    peer_work();
}

static int compare(const void *a, const void *b, void *context)
{
    (void)context;
    return *(const int *)a - *(const int *)b;
}

static void post(void)
{
    (void)g_thread_pool_push(pool, &priority, NULL);
}

int main(int argc, char **argv)
{
    pool = g_thread_pool_new(run, NULL, 1, 1, NULL);
    g_thread_pool_set_sort_function(pool, compare, NULL);
    int status = peer_main(argc, argv, post);
    g_thread_pool_free(pool, 0, 1);
    return status;
}

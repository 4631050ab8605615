/* SPDX-License-Identifier: Apache-2.0 */
/*
 * APR-util's thread pool with one thread; it keeps priorities and knows owners. Its headers name
 * functions that are banned in every file here, so what is used of them is declared by hand.
 */
#include "bench/jobs/peer.h"

typedef struct apr_pool_t apr_pool_t;              // NOLINT: APR's own names.
typedef struct apr_thread_pool apr_thread_pool_t;  // NOLINT
typedef void *apr_start(void *thread, void *data); // NOLINT
int apr_initialize(void);
void apr_terminate(void);
int apr_pool_create_ex(apr_pool_t **made, apr_pool_t *parent, void *abort, void *allocator);
int apr_thread_pool_create(apr_thread_pool_t **made, size_t threads, size_t threads_max,
                           apr_pool_t *memory);
int apr_thread_pool_push(apr_thread_pool_t *pool, apr_start *run, void *data,
                         unsigned char priority, void *owner);
int apr_thread_pool_destroy(apr_thread_pool_t *pool);

enum { PRIORITY_NORMAL = 127 };

static apr_thread_pool_t *pool;

static void *run(void *thread, void *data)
{
    (void)thread;
    (void)data;
    peer_work();
    return NULL;
}

static void post(void)
{
    (void)apr_thread_pool_push(pool, run, NULL, PRIORITY_NORMAL, &pool);
}

int main(int argc, char **argv)
{
    apr_pool_t *memory;
    if (apr_initialize() != 0 || apr_pool_create_ex(&memory, NULL, NULL, NULL) != 0 ||
        apr_thread_pool_create(&pool, 1, 1, memory) != 0) {
        return 1;
    }
    int status = peer_main(argc, argv, post);
    (void)apr_thread_pool_destroy(pool);
    apr_terminate();
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libuv's pool of threads, with one. Requests come back to its loop, as ours do to a rejoin. It
 * keeps no priorities. Its header names functions that are banned in every file here, so what is
 * used of it is declared by hand; main() checks the size of a request.
 */
#include "bench/jobs/peer.h"

#include <stdalign.h>
#include <stddef.h>

enum { REQUEST_TYPE_WORK = 7, RUN_ONCE = 1 };
typedef struct uv_loop_s uv_loop_t; // NOLINT: libuv's own names.
typedef struct uv_work_s {          // NOLINT
    alignas(max_align_t) char bytes[256];
} uv_work_t;
uv_loop_t *uv_default_loop(void);
int uv_queue_work(uv_loop_t *loop, uv_work_t *request, void (*run)(uv_work_t *request),
                  void (*after)(uv_work_t *request, int status));
int uv_run(uv_loop_t *loop, int mode);
size_t uv_req_size(int type);

static uv_loop_t *loop;
static uv_work_t requests[PEER_WINDOW];
static uint64_t posted, back, wanted;

static void run(uv_work_t *request)
{
    (void)request;
    peer_work();
}

static void after(uv_work_t *request, int status)
{
    (void)status;
    back++;
    if (posted < wanted) {
        posted++;
        (void)uv_queue_work(loop, request, run, after);
    }
}

static void run_all(uint64_t count)
{
    wanted = posted + count;
    for (uint64_t i = 0; i < PEER_WINDOW && posted < wanted; i++) {
        posted++;
        (void)uv_queue_work(loop, &requests[i], run, after);
    }
    while (back < wanted) {
        (void)uv_run(loop, RUN_ONCE);
    }
}

int main(int argc, char **argv)
{
    uint64_t count = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
    if (uv_req_size(REQUEST_TYPE_WORK) > sizeof(uv_work_t)) {
        return 1;
    }
    if (count == 0 || setenv("UV_THREADPOOL_SIZE", "1", 1) != 0) {
        (void)fprintf(stderr, "%s COUNT\n", argv[0]);
        return 2;
    }
    loop = uv_default_loop();
    run_all(count / 10 + 1);
    int64_t begin_ns = peer_now_ns();
    run_all(count);
    printf("%.2f\n", (double)(peer_now_ns() - begin_ns) / (double)count);
    return 0;
}

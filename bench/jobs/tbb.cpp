/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oneTBB: an arena with one worker beside the thread that enqueues. It keeps no strict priorities.
 */
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <tbb/global_control.h>
#include <tbb/task_arena.h>

namespace
{
constexpr std::uint64_t window = 1024;
std::atomic<std::uint64_t> done{0};

void wait(std::uint64_t posted, std::uint64_t in_flight)
{
    while (posted - done.load(std::memory_order_acquire) >= in_flight) {
        std::this_thread::yield();
    }
}
} // namespace

int main(int argc, char **argv)
{
    std::uint64_t count = argc == 2 ? std::strtoull(argv[1], nullptr, 10) : 0;
    if (count == 0) {
        (void)std::fprintf(stderr, "%s COUNT\n", argv[0]);
        return 2;
    }
    tbb::global_control two(tbb::global_control::max_allowed_parallelism, 2);
    tbb::task_arena arena(1, 0);
    std::uint64_t warm = count / 10;
    auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t posted = 0; posted < warm + count; posted++) {
        if (posted == warm) {
            wait(posted, 1);
            begin = std::chrono::steady_clock::now();
        }
        wait(posted, window);
        arena.enqueue([] { done.fetch_add(1, std::memory_order_release); });
    }
    wait(warm + count, 1);
    std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
    std::printf("%.2f\n", taken.count() / static_cast<double>(count));
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The three system calls that every request makes, without what libc adds to them.
 *
 * recv(), send(), sendmsg() and epoll_wait() are cancellation points: in a process with several
 * threads libc changes the thread's cancellation type before each and changes it back behind, two
 * locked instructions and some sixty others per call. Nothing here is ever cancelled, so the calls
 * are made directly: a request of one key then costs about 2 % less in all.
 *
 * They answer as libc's do, with -1 and errno. Under a sanitizer they are libc's: it knows what
 * memory those write, and which thread's words another has read.
 */
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FW_SYSCALL_IS_LIBC 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define FW_SYSCALL_IS_LIBC 1
#endif
#endif

/* Not every architecture has a call of its own for epoll_wait(). */
#if !defined(FW_SYSCALL_IS_LIBC) && defined(SYS_recvfrom) && defined(SYS_sendto) && \
    defined(SYS_sendmsg) && defined(SYS_epoll_pwait)

static inline ssize_t fw_syscall_recv(int fd, void *buffer, size_t size, int flags)
{
    return syscall(SYS_recvfrom, fd, buffer, size, flags, NULL, NULL);
}

static inline ssize_t fw_syscall_send(int fd, const void *bytes, size_t size, int flags)
{
    return syscall(SYS_sendto, fd, bytes, size, flags, NULL, 0);
}

static inline ssize_t fw_syscall_sendmsg(int fd, const struct msghdr *message, int flags)
{
    return syscall(SYS_sendmsg, fd, message, flags);
}

static inline int fw_syscall_epoll_wait(int fd, struct epoll_event *events, int count, int time_ms)
{
    return (int)syscall(SYS_epoll_pwait, fd, events, count, time_ms, NULL, 0);
}

#else

static inline ssize_t fw_syscall_recv(int fd, void *buffer, size_t size, int flags)
{
    return recv(fd, buffer, size, flags);
}

static inline ssize_t fw_syscall_send(int fd, const void *bytes, size_t size, int flags)
{
    return send(fd, bytes, size, flags);
}

static inline ssize_t fw_syscall_sendmsg(int fd, const struct msghdr *message, int flags)
{
    return sendmsg(fd, message, flags);
}

static inline int fw_syscall_epoll_wait(int fd, struct epoll_event *events, int count, int time_ms)
{
    return epoll_wait(fd, events, count, time_ms);
}

#endif

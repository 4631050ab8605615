/* SPDX-License-Identifier: Apache-2.0 */
#include "io/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"

enum { ATTEMPTS = 100 };

/* Opens a file that was not there before. Returns its descriptor; the name is in map->path. */
static int map_open(struct fw_map *map, const char *folder, const char *stem)
{
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        if (asprintf(&map->path, "%s/%s.%d.%d", folder, stem, (int)map->process, attempt) < 0) {
            map->path = NULL;
            return -ENOMEM;
        }
        int fd = open(map->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd >= 0) {
            return fd;
        }
        int error = errno;
        free(map->path);
        map->path = NULL;
        if (error != EEXIST) {
            return -error;
        }
    }
    return -EEXIST;
}

static int map_file(struct fw_map *map, int fd)
{
    int rc = posix_fallocate(fd, 0, (off_t)map->size);
    if (rc != 0) {
        return -rc;
    }
    map->memory = mmap(NULL, map->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return map->memory == MAP_FAILED ? -errno : 0;
}

int fw_map_create(struct fw_map *map, const char *folder, const char *stem, size_t size,
                  struct fw_reason *reason)
{
    FW_ASSERT(size > 0);
    *map = (struct fw_map){.size = size, .process = (uint32_t)getpid()};
    if (folder == NULL || folder[0] == '\0') {
        map->memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return map->memory == MAP_FAILED
                   ? fw_reason_errno(reason, -errno, "cannot take %zu KiB of memory", size >> 10)
                   : 0;
    }
    int fd = map_open(map, folder, stem);
    int rc = fd < 0 ? fd : map_file(map, fd);
    if (fd >= 0) {
        (void)close(fd); /* The map needs it no more. */
    }
    if (rc != 0) {
        if (map->path != NULL) {
            (void)unlink(map->path);
            free(map->path);
            map->path = NULL;
        }
        return fw_reason_errno(reason, rc, "cannot make a file of %zu KiB in %.120s", size >> 10,
                               folder);
    }
    return 0;
}

void fw_map_destroy(struct fw_map *map)
{
    int rc = munmap(map->memory, map->size);
    FW_ASSERT(rc == 0);
    if (map->path != NULL) {
        (void)unlink(map->path);
        free(map->path);
    }
    *map = (struct fw_map){.memory = NULL};
}

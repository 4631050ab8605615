/* SPDX-License-Identifier: Apache-2.0 */
#include "io/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"

enum {
    ATTEMPTS = 100,
    NUMBERS_SIZE = 32, /* The slash, the dots, two numbers and the end of a path. */
};

/* Opens a file that was not there before. Returns its descriptor; the name is in map->path. */
static int map_open(struct fw_map *map, const char *folder, const char *stem)
{
    size_t size = strlen(folder) + strlen(stem) + NUMBERS_SIZE;
    map->path = malloc(size);
    if (map->path == NULL) {
        return -ENOMEM;
    }
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        (void)snprintf(map->path, size, "%s/%s.%d.%d", folder, stem, (int)map->process, attempt);
        int fd = open(map->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd >= 0) {
            return fd;
        }
        if (errno != EEXIST) {
            return -errno;
        }
    }
    return -EEXIST;
}

/* Closes the descriptor, for the map does not need it, and removes the file if there is no map. */
static int map_file(struct fw_map *map, int fd)
{
    int rc = -posix_fallocate(fd, 0, (off_t)map->size);
    if (rc == 0) {
        map->memory = mmap(NULL, map->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        rc = map->memory == MAP_FAILED ? -errno : 0;
    }
    if (rc != 0) {
        (void)unlink(map->path);
    }
    (void)close(fd);
    return rc;
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
    int rc = map_open(map, folder, stem);
    if (rc >= 0) {
        rc = map_file(map, rc);
    }
    if (rc != 0) {
        free(map->path);
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

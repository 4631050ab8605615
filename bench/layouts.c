/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three ways to lay items out in memory, with keys of 32 bytes, for docs/memory.md:
 *
 *   segments   ours (cache/table.h)
 *   classes    size classes an eighth apart without fixed assignment: chunks are cut from pages of
 *              64 KiB, a page belongs to a class until memory is short, and then the oldest page is
 *              emptied and given to the class that needs one. What is read does not move, so there
 *              is no saving an item from a page that goes.
 *   malloc     glibc's, the oldest item freed when the items' own bytes reach the limit
 *
 * The last two have memcached's index, an array of chains through the items, with as many chains as
 * items, and the header that our records have. Prints bytes per item (of what the process has), CPU
 * time of a set and a get, and, within a limit of 64 MiB, how many items of 100 bytes, 1,000 and
 * again 100 there are, and how much the process had at most.
 */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "cache/table.h"

enum {
    KEY_LENGTH = 32,
    HEADER = 14,
    PAGE = 64 * 1024,
    CLASSES = 64,
    CHAINS = 1 << 20,
    ITEMS = 1000000,
    CHUNK_MIN = 48,
};

#define MIB   (UINT64_C(1) << 20)
#define LIMIT (64 * MIB)

struct item {
    struct item *next;  /* In its chain. */
    struct item *newer; /* Of malloc's: in the order in which they came. */
    uint32_t length;
    char header[HEADER - 4];
    char bytes[];
};

struct page {
    struct page *next;
    uint32_t size_class;
};

struct layout {
    uint64_t limit;
    uint64_t used;
    uint64_t items;
    struct item **chains;
    /* Classes. */
    struct page *pages_first, *pages_last; /* Oldest first. */
    struct {
        char *next, *end;
    } open[CLASSES];
    size_t chunk[CLASSES];
    uint32_t class_count;
    /* malloc. */
    struct item *oldest, *newest;
    /* Ours. */
    struct fw_table *table;
    struct fw_table_local *local;
};

static char value[2000];

static void key_make(char *to, uint64_t number)
{
    (void)snprintf(to, KEY_LENGTH + 1, "key:%028lu", (unsigned long)number);
}

static struct item **chain_find(struct layout *layout, const char *key)
{
    struct item **link = &layout->chains[fw_hash(key, KEY_LENGTH, 11) % CHAINS];
    while (*link != NULL && memcmp((*link)->bytes, key, KEY_LENGTH) != 0) {
        link = &(*link)->next;
    }
    return link;
}

static void chain_drop(struct layout *layout, struct item *item)
{
    struct item **link = chain_find(layout, item->bytes);
    FW_ASSERT(*link == item);
    *link = item->next;
    layout->items--;
}

/* Classes. An item that is not in use has length 0. */

static uint32_t class_of(const struct layout *layout, size_t size)
{
    uint32_t number = 0;
    while (layout->chunk[number] < size) {
        number++;
    }
    return number;
}

static void page_empty(struct layout *layout, struct page *page)
{
    size_t chunk = layout->chunk[page->size_class];
    for (char *at = (char *)page + sizeof *page; at + chunk <= (char *)page + PAGE; at += chunk) {
        struct item *item = (struct item *)(void *)at;
        if (item->length != 0) {
            chain_drop(layout, item);
            item->length = 0;
        }
    }
}

static struct item *class_take(struct layout *layout, size_t size)
{
    uint32_t number = class_of(layout, size);
    size_t chunk = layout->chunk[number];
    if (layout->open[number].next == NULL ||
        layout->open[number].next + chunk > layout->open[number].end) {
        struct page *page;
        if (layout->used + PAGE <= layout->limit) {
            page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            FW_ASSERT(page != MAP_FAILED);
            layout->used += PAGE;
        } else {
            page = layout->pages_first;
            layout->pages_first = page->next;
            page_empty(layout, page);
            for (uint32_t i = 0; i < layout->class_count; i++) {
                bool is_its = layout->open[i].end == (char *)page + PAGE;
                layout->open[i].next = is_its ? NULL : layout->open[i].next;
            }
            memset(page, 0, PAGE);
        }
        page->next = NULL;
        page->size_class = number;
        *(layout->pages_first == NULL ? &layout->pages_first : &layout->pages_last->next) = page;
        layout->pages_last = page;
        layout->open[number].next = (char *)page + sizeof *page;
        layout->open[number].end = (char *)page + PAGE;
    }
    struct item *item = (struct item *)(void *)layout->open[number].next;
    layout->open[number].next += chunk;
    return item;
}

/* malloc. */

static struct item *malloc_take(struct layout *layout, size_t size)
{
    while (layout->used + size > layout->limit) {
        struct item *item = layout->oldest;
        layout->oldest = item->newer;
        layout->used -= sizeof *item + KEY_LENGTH + item->length;
        chain_drop(layout, item);
        free(item);
    }
    struct item *item = malloc(size);
    FW_ASSERT(item != NULL);
    layout->used += size;
    item->newer = NULL;
    *(layout->oldest == NULL ? &layout->oldest : &layout->newest->newer) = item;
    layout->newest = item;
    return item;
}

/* New keys only. */
static void set(struct layout *layout, int kind, uint64_t number, uint32_t length)
{
    char key[KEY_LENGTH + 1];
    key_make(key, number);
    if (kind == 0) {
        struct fw_key ours = fw_table_key(layout->local, key, KEY_LENGTH);
        struct fw_hold hold;
        bool can = fw_table_reserve(layout->local, fw_item_size(KEY_LENGTH, length, 0));
        FW_ASSERT(can);
        fw_table_hold(layout->local, &hold, &ours);
        memcpy(fw_item_value(fw_hold_write(&hold, length, 0, NULL)), value, length);
        fw_hold_release(&hold);
        return;
    }
    size_t size = sizeof(struct item) + KEY_LENGTH + length;
    struct item *item = kind == 1 ? class_take(layout, size) : malloc_take(layout, size);
    struct item **link = chain_find(layout, key);
    FW_ASSERT(*link == NULL);
    item->next = NULL;
    item->length = length;
    memcpy(item->bytes, key, KEY_LENGTH);
    memcpy(item->bytes + KEY_LENGTH, value, length);
    *link = item;
    layout->items++;
}

static void get(struct layout *layout, int kind, uint64_t number)
{
    static volatile char seen;
    char key[KEY_LENGTH + 1];
    char reply[sizeof value];
    key_make(key, number);
    if (kind == 0) {
        struct fw_key ours = fw_table_key(layout->local, key, KEY_LENGTH);
        struct fw_hold hold;
        fw_table_hold(layout->local, &hold, &ours);
        FW_ASSERT(hold.item != NULL);
        fw_hold_access(&hold);
        memcpy(reply, fw_item_value(hold.item), hold.item->tail_length);
        fw_hold_release(&hold);
    } else {
        const struct item *item = *chain_find(layout, key);
        FW_ASSERT(item != NULL);
        memcpy(reply, item->bytes + KEY_LENGTH, item->length);
    }
    seen = reply[1];
    (void)seen;
}

static void layout_init(struct layout *layout, int kind, uint64_t limit)
{
    *layout = (struct layout){.limit = limit};
    if (kind == 0) {
        struct fw_table_config config = {.memory = limit, .is_evicting = true, .seed = 11};
        int rc = fw_table_create(&layout->table, &config, NULL);
        FW_ASSERT(rc == 0);
        rc = fw_table_local_create(&layout->local, layout->table);
        FW_ASSERT(rc == 0);
        return;
    }
    layout->chains = calloc(CHAINS, sizeof(void *));
    FW_ASSERT(layout->chains != NULL);
    for (size_t chunk = CHUNK_MIN; chunk < PAGE / 2 && layout->class_count < CLASSES - 1;
         chunk = (chunk + chunk / 8 + 7) / 8 * 8) {
        layout->chunk[layout->class_count++] = chunk;
    }
    layout->chunk[layout->class_count++] = PAGE / 2;
}

static uint64_t layout_items(const struct layout *layout, int kind)
{
    if (kind != 0) {
        return layout->items;
    }
    struct fw_table_totals totals;
    fw_table_totals(layout->table, &totals);
    return totals.items;
}

static uint64_t status_bytes(const char *name)
{
    char line[256];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    FW_ASSERT(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            kib = strtoull(line + strlen(name) + 1, NULL, 10);
        }
    }
    (void)fclose(file);
    return kib * 1024;
}

static double cpu_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void measure_fill(const char *name, int kind, uint32_t length)
{
    struct layout layout;
    uint64_t before = status_bytes("VmRSS:");
    layout_init(&layout, kind, 4096 * MIB);
    double begin = cpu_ns();
    for (uint64_t i = 0; i < ITEMS; i++) {
        set(&layout, kind, i, length);
    }
    double set_ns = (cpu_ns() - begin) / ITEMS;
    uint64_t bytes = status_bytes("VmRSS:") - before;
    begin = cpu_ns();
    uint64_t draws = 1;
    for (uint64_t i = 0; i < ITEMS; i++) {
        draws = draws * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        get(&layout, kind, (draws >> 33) % ITEMS);
    }
    double get_ns = (cpu_ns() - begin) / ITEMS;
    printf("%-9s %5u bytes: %7.1f bytes per item, set %5.0f ns, get %5.0f ns\n", name, length,
           (double)bytes / ITEMS, set_ns, get_ns);
}

static void measure_shift(const char *name, int kind)
{
    const uint32_t lengths[] = {100, 1000, 100};
    struct layout layout;
    layout_init(&layout, kind, LIMIT);
    printf("%-9s shift:", name);
    uint64_t number = 0;
    for (size_t i = 0; i < FW_ARRAY_LENGTH(lengths); i++) {
        for (uint64_t done = 0; done < 3 * LIMIT; done += lengths[i] + 60) {
            set(&layout, kind, number++, lengths[i]);
        }
        printf(" %u bytes %lu items,", lengths[i], (unsigned long)layout_items(&layout, kind));
    }
    printf(" at most %lu MiB resident\n", (unsigned long)(status_bytes("VmHWM:") / MIB));
}

/* Each in a process of its own, so that nothing is left over from the one before. */
int main(void)
{
    static const char *const names[] = {"segments", "classes", "malloc"};
    static const uint32_t lengths[] = {10, 100, 1000, 0};
    for (int kind = 0; kind < 3; kind++) {
        for (size_t i = 0; i < FW_ARRAY_LENGTH(lengths); i++) {
            pid_t child = fork();
            FW_ASSERT(child >= 0);
            if (child == 0) {
                if (lengths[i] != 0) {
                    measure_fill(names[kind], kind, lengths[i]);
                } else {
                    measure_shift(names[kind], kind);
                }
                return 0;
            }
            int status;
            FW_ASSERT(waitpid(child, &status, 0) == child && status == 0);
        }
    }
    return 0;
}

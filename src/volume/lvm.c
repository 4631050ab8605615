/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/lvm.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libdevmapper.h>

#include <fairway/log.h>

#include "io/disk_part.h"
#include "io/file.h"
#include "io/spawn.h"
#include "ring/core.h"
#include "volume/lvm_label.h"
#include "volume/remote.h"

FW_LOG_MODULE_USE(volume);

enum {
    LVM_SECTOR = 512,
    PATH_SIZE = 512,
    ID_SIZE = 40,
    FILE_MODE = 0600,
    HOSTS_DEFAULT = 16,
};

static const uint64_t RING_DEFAULT = UINT64_C(1) << 20;
static const char TAG[] = "fairway";
static const char META[] = "fairway_meta";
static const char CONTROL[] = "/dev/mapper/control";

/* ---- reading ---- */

/* LVM's metadata as a tree, and what we want to know of them. */
struct text {
    struct dm_config_tree *tree;
    struct dm_config_node *group; /* The volume group's own section. */
    struct fw_volume_lvm lvm;
};

static void text_fini(struct text *text)
{
    dm_config_destroy(text->tree);
}

static bool name_take(char *name, const char *from)
{
    size_t length = from != NULL ? strlen(from) : 0;
    if (length == 0 || length > FW_VOLUME_LVM_NAME_MAX) {
        return false;
    }
    memcpy(name, from, length + 1);
    return true;
}

/* A positive number, 0 if there is none. */
static uint64_t number_of(const struct dm_config_node *node, const char *path)
{
    int64_t number = dm_config_find_int64(node, path, 0);
    return number > 0 ? (uint64_t)number : 0;
}

static int text_understand(struct text *text, struct fw_reason *reason)
{
    struct fw_volume_lvm *lvm = &text->lvm;
    struct dm_config_node *node = text->tree->root;
    while (node != NULL && !dm_config_has_node(node->child, "seqno")) {
        node = node->sib;
    }
    const struct dm_config_node *devices =
        node != NULL ? dm_config_find_node(node->child, "physical_volumes") : NULL;
    if (devices == NULL || devices->child == NULL || !name_take(lvm->group, node->key) ||
        !name_take(lvm->device, devices->child->key)) {
        return fw_reason_set(reason, -EBADMSG, "LVM's metadata are not what they should be");
    }
    if (devices->child->sib != NULL) {
        return fw_reason_set(reason, -EOPNOTSUPP,
                             "volume group %.80s has several devices; one is all we can use",
                             lvm->group);
    }
    text->group = node;
    lvm->seqno = number_of(node->child, "seqno");
    lvm->extent_size = number_of(node->child, "extent_size") * LVM_SECTOR;
    lvm->first = number_of(devices->child->child, "pe_start") * LVM_SECTOR;
    lvm->extent_count = number_of(devices->child->child, "pe_count");
    return lvm->extent_size != 0 && lvm->first != 0
               ? 0
               : fw_reason_set(reason, -EBADMSG, "LVM's metadata are not what they should be");
}

static int text_load(struct text *text, struct fw_disk *disk, struct fw_reason *reason)
{
    char *bytes = NULL;
    memset(text, 0, sizeof *text);
    int rc = fw_volume_lvm_text(disk, &bytes, reason);
    if (rc != 0) {
        return rc;
    }
    text->tree = dm_config_from_string(bytes);
    free(bytes);
    if (text->tree == NULL) {
        return fw_reason_set(reason, -EBADMSG, "LVM's metadata cannot be parsed; try vgck");
    }
    rc = text_understand(text, reason);
    if (rc != 0) {
        text_fini(text);
    }
    return rc;
}

/* A segment that lies on the device in one piece: where, and how many extents; false: another. */
static bool segment_read(const struct dm_config_node *segment, uint64_t *first, uint64_t *count)
{
    const struct dm_config_node *stripes = dm_config_find_node(segment->child, "stripes");
    bool is_plain = stripes != NULL && stripes->v != NULL && stripes->v->next != NULL &&
                    stripes->v->next->type == DM_CFG_INT &&
                    number_of(segment->child, "stripe_count") == 1 && stripes->v->next->v.i >= 0;
    *first = is_plain ? (uint64_t)stripes->v->next->v.i : 0;
    *count = number_of(segment->child, "extent_count");
    return is_plain;
}

static struct dm_config_node *volumes_of(const struct text *text)
{
    return text->group != NULL ? dm_config_find_node(text->group->child, "logical_volumes") : NULL;
}

static bool is_ours(const struct dm_config_node *volume)
{
    const struct dm_config_node *tags = dm_config_find_node(volume->child, "tags");
    for (const struct dm_config_value *tag = tags != NULL ? tags->v : NULL; tag != NULL;
         tag = tag->next) {
        if (tag->type == DM_CFG_STRING && strcmp(tag->v.str, TAG) == 0) {
            return true;
        }
    }
    return false;
}

/* Where our front is: fairway_meta, and behind it log and rings, whose sizes the head knows. */
static int front_find(struct text *text, struct fw_reason *reason)
{
    struct fw_volume_lvm *lvm = &text->lvm;
    const struct dm_config_node *volumes = volumes_of(text);
    const struct dm_config_node *meta =
        volumes != NULL ? dm_config_find_node(volumes->child, META) : NULL;
    const struct dm_config_node *segment =
        meta != NULL && is_ours(meta) ? dm_config_find_node(meta->child, "segment1") : NULL;
    uint64_t first;
    uint64_t count;
    if (segment == NULL || !segment_read(segment, &first, &count) || first >= lvm->extent_count) {
        return fw_reason_set(reason, -ENOENT,
                             "volume group %.80s has not been adopted; 'fairway volume adopt' does "
                             "that",
                             lvm->group);
    }
    lvm->meta_offset = lvm->first + first * lvm->extent_size;
    lvm->meta_size = (lvm->extent_count - first) * lvm->extent_size;
    return 0;
}

int fw_volume_lvm_find(struct fw_disk *disk, struct fw_volume_lvm *lvm, struct fw_reason *reason)
{
    struct text text;
    int rc = text_load(&text, disk, reason);
    if (rc == 0) {
        rc = front_find(&text, reason);
        *lvm = text.lvm;
        text_fini(&text);
    }
    return rc;
}

/* ---- our logical volumes, as text ---- */

struct writer {
    FILE *out;
    const struct fw_volume_geometry *geometry;
    const char *device;
    uint64_t first; /* The extent of LVM's that is our extent 0. */
    uint32_t segments;
    char *body; /* The segments of the logical volume at hand. */
    size_t body_size;
    FILE *body_out;
};

/* LVM's form of 32 characters. Ours are hexadecimal; `kind` and `index` tell those apart that have
 * no UUID of their own. */
static void id_write(const uint8_t *uuid, uint8_t kind, uint8_t index, char *id)
{
    static const char digits[] = "0123456789abcdef";
    static const uint8_t groups[] = {6, 4, 4, 4, 4, 4, 6};
    size_t at = 0;
    size_t digit = 0;
    for (size_t g = 0; g < sizeof groups; g++) {
        for (uint8_t i = 0; i < groups[g]; i++, digit++) {
            uint8_t byte = uuid[digit / 2];
            byte ^= digit / 2 == 0 ? kind : 0;
            byte ^= digit / 2 == 1 ? index : 0;
            id[at++] = digits[digit % 2 == 0 ? byte >> 4 : byte & 15];
        }
        id[at++] = '-';
    }
    id[at - 1] = '\0';
}

static void segment_begin(struct writer *writer, uint64_t start, uint64_t count)
{
    writer->segments++;
    (void)fprintf(writer->body_out,
                  "segment%" PRIu32 " {\nstart_extent = %" PRIu64 "\nextent_count = %" PRIu64 "\n",
                  writer->segments, start, count);
}

static void segment_linear(struct writer *writer, uint64_t start, uint64_t count, uint64_t at)
{
    segment_begin(writer, start, count);
    (void)fprintf(writer->body_out,
                  "type = \"striped\"\nstripe_count = 1\nstripes = [\"%s\", %" PRIu64 "]\n}\n",
                  writer->device, at);
}

static void segment_zero(struct writer *writer, uint64_t start, uint64_t count)
{
    segment_begin(writer, start, count);
    (void)fputs("type = \"zero\"\n}\n", writer->body_out);
}

static int volume_begin(struct writer *writer)
{
    writer->segments = 0;
    writer->body = NULL;
    writer->body_out = open_memstream(&writer->body, &writer->body_size);
    return writer->body_out != NULL ? 0 : -ENOMEM;
}

/* One without segments LVM does not have. */
static int volume_end(struct writer *writer, const char *prefix, const char *name, const char *id)
{
    int rc = fclose(writer->body_out) == 0 ? 0 : -ENOMEM;
    if (rc == 0 && writer->segments > 0) {
        (void)fprintf(writer->out,
                      "%s%s {\nid = \"%s\"\nstatus = [\"READ\", \"WRITE\", \"VISIBLE\"]\n"
                      "flags = []\ntags = [\"%s\"]\nsegment_count = %" PRIu32 "\n%s}\n",
                      prefix, name, id, TAG, writer->segments, writer->body);
    }
    free(writer->body);
    return rc;
}

/* All extents in a state, one behind the other, as one logical volume. */
static int state_write(struct writer *writer, const struct fw_volume_metadata *metadata,
                       enum fw_volume_state state, uint32_t index)
{
    uint64_t start = 0;
    int rc = volume_begin(writer);
    for (uint64_t i = 0; rc == 0 && i < metadata->extent_count;) {
        const struct fw_volume_extent *first = &metadata->extents[i];
        uint64_t count = 0;
        while (i + count < metadata->extent_count && first[count].state == (uint8_t)state &&
               (index == FW_VOLUME_NONE || first[count].index == index)) {
            count++;
        }
        if (count > 0) {
            segment_linear(writer, start, count, writer->first + i);
        }
        start += count;
        i += count > 0 ? count : 1;
    }
    return rc;
}

/* A volume: where its extents are, and zeros in between. */
static int places_write(struct writer *writer, const struct fw_volume_metadata *metadata,
                        uint32_t volume)
{
    uint64_t size = metadata->volumes[volume].size;
    int rc = volume_begin(writer);
    for (uint64_t i = 0; rc == 0 && i < size;) {
        uint32_t at = fw_volume_metadata_at(metadata, volume, i);
        uint64_t count = 1;
        while (i + count < size &&
               fw_volume_metadata_at(metadata, volume, i + count) ==
                   (at == FW_VOLUME_NONE ? FW_VOLUME_NONE : at + (uint32_t)count)) {
            count++;
        }
        if (at == FW_VOLUME_NONE) {
            segment_zero(writer, i, count);
        } else {
            segment_linear(writer, i, count, writer->first + at);
        }
        i += count;
    }
    return rc;
}

enum { ID_META, ID_LOG, ID_RINGS, ID_FREE, ID_ASIDE, ID_POOL };

/* The parts of the front: name, and where they begin and end, in extents of LVM's. */
static int front_write(struct writer *writer, const uint64_t bounds[4])
{
    static const char *const names[] = {"meta", "log", "rings"};
    int rc = 0;
    for (uint8_t i = 0; rc == 0 && i < 3; i++) {
        char id[ID_SIZE];
        id_write(writer->geometry->uuid.bytes, i, 0, id);
        rc = volume_begin(writer);
        if (rc == 0) {
            segment_linear(writer, 0, bounds[i + 1] - bounds[i], bounds[i]);
            rc = volume_end(writer, "fairway_", names[i], id);
        }
    }
    return rc;
}

static int all_write(struct writer *writer, const struct fw_volume_metadata *metadata)
{
    const uint8_t *uuid = writer->geometry->uuid.bytes;
    char id[ID_SIZE];
    int rc = state_write(writer, metadata, FW_VOLUME_IS_FREE, FW_VOLUME_NONE);
    if (rc == 0) {
        id_write(uuid, ID_FREE, 0, id);
        rc = volume_end(writer, "fairway_", "free", id);
    }
    if (rc == 0) {
        rc = state_write(writer, metadata, FW_VOLUME_IS_SET_ASIDE, FW_VOLUME_NONE);
    }
    if (rc == 0) {
        id_write(uuid, ID_ASIDE, 0, id);
        rc = volume_end(writer, "fairway_", "aside", id);
    }
    for (uint32_t h = 0; rc == 0 && h < FW_VOLUME_HOSTS_MAX; h++) {
        rc = state_write(writer, metadata, FW_VOLUME_IS_HOSTS, h);
        if (rc == 0) {
            id_write(uuid, ID_POOL, (uint8_t)h, id);
            rc = volume_end(writer, "fairway_pool_", metadata->hosts[h].name, id);
        }
    }
    for (uint32_t v = 0; rc == 0 && v < metadata->volumes_end; v++) {
        if (!metadata->volumes[v].is_used) {
            continue;
        }
        rc = places_write(writer, metadata, v);
        if (rc == 0) {
            id_write(metadata->volumes[v].uuid.bytes, 0, 0, id);
            rc = volume_end(writer, "", metadata->volumes[v].name, id);
        }
    }
    return rc;
}

/* ---- replacing ours in the tree ---- */

static int volumes_write(const struct text *text, const struct fw_volume_geometry *geometry,
                         const uint64_t bounds[4], const struct fw_volume_metadata *metadata,
                         char **made)
{
    size_t size;
    struct writer writer = {.geometry = geometry,
                            .device = text->lvm.device,
                            .first =
                                (geometry->data_offset - text->lvm.first) / text->lvm.extent_size};
    *made = NULL;
    writer.out = open_memstream(made, &size);
    if (writer.out == NULL) {
        return -ENOMEM;
    }
    (void)fputs("logical_volumes {\n", writer.out);
    int rc = front_write(&writer, bounds);
    if (rc == 0) {
        rc = all_write(&writer, metadata);
    }
    (void)fputs("}\n", writer.out);
    return fclose(writer.out) == 0 ? rc : -ENOMEM;
}

/* Takes ours out of the tree, and puts the others behind those of `fresh`. */
static int tree_splice(struct text *text, const struct dm_config_tree *fresh,
                       struct fw_reason *reason)
{
    struct dm_config_node *volumes = volumes_of(text);
    struct dm_config_node *last = fresh->root->child;
    if (volumes == NULL) { /* The first of the group. */
        struct dm_config_node *end = text->group->child;
        while (end->sib != NULL) {
            end = end->sib;
        }
        end->sib = fresh->root;
        return 0;
    }
    while (last->sib != NULL) {
        last = last->sib;
    }
    for (struct dm_config_node *node = volumes->child; node != NULL; node = node->sib) {
        if (is_ours(node)) {
            continue;
        }
        if (dm_config_find_node(fresh->root->child, node->key) != NULL) {
            return fw_reason_set(reason, -EEXIST,
                                 "volume group %.60s has a logical volume %.60s that is not ours",
                                 text->lvm.group, node->key);
        }
    }
    struct dm_config_node **place = &last->sib;
    for (struct dm_config_node *node = volumes->child; node != NULL; node = node->sib) {
        if (!is_ours(node)) {
            *place = node;
            place = &node->sib;
        }
    }
    *place = NULL;
    volumes->child = fresh->root->child;
    return 0;
}

static int line_put(const char *line, void *context)
{
    return fprintf((FILE *)context, "%s\n", line) >= 0;
}

static int tree_write(const struct text *text, const char *path, struct fw_reason *reason)
{
    char *bytes = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&bytes, &size);
    int rc = out != NULL && dm_config_write_node(text->tree->root, line_put, out) ? 0 : -ENOMEM;
    if (out != NULL && fclose(out) != 0) {
        rc = -ENOMEM;
    }
    rc = rc == 0 ? fw_file_replace(path, bytes, size, FILE_MODE, reason)
                 : fw_reason_errno(reason, rc, "cannot write LVM's metadata");
    free(bytes);
    return rc;
}

/* ---- committing ---- */

/* Whether the kernel has device-mapper; without, LVM's commands must be told. */
static bool has_driver(void)
{
    char *contents = NULL;
    size_t size;
    int rc = fw_file_read(CONTROL, 1, &contents, &size, NULL);
    free(rc == 0 ? contents : NULL);
    return rc != -ENODEV && rc != -ENOENT && rc != -ENXIO;
}

/* Runs one of LVM's commands, under the lock that we hold. */
static int lvm_run(const char *command, const char *file, const struct fw_volume_lvm *lvm,
                   struct fw_reason *reason)
{
    const char *const arguments[] = {
        command,  "--nolocking", "--driverloaded", has_driver() ? "y" : "n",
        "--file", file,          lvm->group,       NULL};
    return fw_spawn_run(arguments, NULL, 0, reason);
}

/* Gives the tree to LVM, if its metadata are still those that it was made from. */
static int tree_commit(const struct text *text, struct fw_disk *disk, struct fw_reason *reason)
{
    char path[PATH_SIZE];
    struct text now;
    (void)snprintf(path, sizeof path, "/run/lvm/fairway_%s.vg", text->lvm.group);
    int rc = tree_write(text, path, reason);
    if (rc == 0) {
        rc = text_load(&now, disk, reason);
    }
    if (rc != 0) {
        return rc;
    }
    uint64_t seqno = now.lvm.seqno;
    text_fini(&now);
    if (seqno != text->lvm.seqno) {
        return fw_reason_set(
            reason, -EAGAIN,
            "somebody changed volume group %.80s without LVM's lock: seqno %" PRIu64
            " became %" PRIu64,
            text->lvm.group, text->lvm.seqno, seqno);
    }
    return lvm_run("vgcfgrestore", path, &text->lvm, reason);
}

static int lock_take(struct fw_file_lock *lock, const char *group, struct fw_reason *reason)
{
    char path[PATH_SIZE];
    (void)snprintf(path, sizeof path, "/run/lock/lvm/V_%s", group);
    return fw_file_lock_wait(lock, path, reason);
}

/* Finds the group's name, takes its lock, and then reads what is true under it. */
static int text_lock(struct text *text, struct fw_disk *disk, struct fw_file_lock *lock,
                     struct fw_reason *reason)
{
    char group[FW_VOLUME_LVM_NAME_MAX + 1];
    int rc = text_load(text, disk, reason);
    if (rc != 0) {
        return rc;
    }
    memcpy(group, text->lvm.group, sizeof group);
    text_fini(text);
    rc = lock_take(lock, group, reason);
    if (rc != 0) {
        return rc;
    }
    rc = text_load(text, disk, reason);
    if (rc == 0 && strcmp(group, text->lvm.group) != 0) {
        text_fini(text);
        rc = fw_reason_set(reason, -EAGAIN, "volume group %.80s was renamed", group);
    }
    if (rc != 0) {
        fw_file_lock_release(lock);
    }
    return rc;
}

static int ours_commit(struct text *text, struct fw_disk *disk,
                       const struct fw_volume_geometry *geometry, const uint64_t bounds[4],
                       const struct fw_volume_metadata *metadata, struct fw_reason *reason)
{
    char *bytes;
    int rc = volumes_write(text, geometry, bounds, metadata, &bytes);
    struct dm_config_tree *fresh = rc == 0 ? dm_config_from_string(bytes) : NULL;
    free(bytes);
    if (fresh == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot make LVM's metadata");
    }
    rc = tree_splice(text, fresh, reason);
    if (rc == 0) {
        rc = tree_commit(text, disk, reason);
    }
    dm_config_destroy(fresh);
    return rc;
}

static void bounds_make(const struct fw_volume_lvm *lvm, const struct fw_volume_layout *layout,
                        uint64_t first, uint64_t bounds[4])
{
    uint64_t log_end = 0;
    uint64_t end = fw_volume_plain_front(layout, &log_end);
    bounds[0] = first;
    bounds[1] = first + (log_end - layout->log_size) / lvm->extent_size;
    bounds[2] = first + log_end / lvm->extent_size;
    bounds[3] = first + (end + lvm->extent_size - 1) / lvm->extent_size;
}

static struct fw_volume_layout layout_of(const struct fw_volume_lvm *lvm, uint32_t hosts_max,
                                         uint64_t ring_size, uint64_t extents)
{
    uint64_t ring = ring_size != 0 ? ring_size : RING_DEFAULT;
    uint64_t unit = lvm->extent_size;
    return (struct fw_volume_layout){.extent_size = unit,
                                     .hosts_max = hosts_max != 0 ? hosts_max : HOSTS_DEFAULT,
                                     .ring_size = ring,
                                     .log_size = (ring + unit - 1) / unit * unit,
                                     .extent_count = extents,
                                     .data_offset = 1};
}

int fw_volume_lvm_publish(const char *path, struct fw_volume_store *store,
                          const struct fw_volume_metadata *metadata, struct fw_reason *reason)
{
    const struct fw_disk_options options = {.path = path,
                                            .flags = FW_DISK_READ_ONLY | FW_DISK_DIRECT};
    const struct fw_volume_geometry *geometry = &store->geometry;
    struct fw_file_lock lock;
    struct fw_disk *disk;
    struct text text;
    int rc = fw_disk_open(&disk, &options, reason);
    if (rc != 0) {
        return rc;
    }
    rc = text_lock(&text, disk, &lock, reason);
    if (rc == 0) {
        rc = front_find(&text, reason);
        if (rc == 0) {
            uint64_t bounds[4];
            const struct fw_volume_layout layout = layout_of(
                &text.lvm, geometry->hosts_max, geometry->ring_size, geometry->extent_count);
            bounds_make(&text.lvm, &layout,
                        (text.lvm.meta_offset - text.lvm.first) / text.lvm.extent_size, bounds);
            rc = ours_commit(&text, disk, geometry, bounds, metadata, reason);
        }
        text_fini(&text);
        fw_file_lock_release(&lock);
    }
    fw_disk_close(disk);
    return rc;
}

/* ---- adopting ---- */

/* The largest run of extents that no logical volume has. */
static int run_find(const struct text *text, uint64_t *first, uint64_t *count,
                    struct fw_reason *reason)
{
    uint8_t *used = calloc(text->lvm.extent_count, 1);
    const struct dm_config_node *volumes = volumes_of(text);
    *count = 0;
    if (used == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot read LVM's metadata");
    }
    for (const struct dm_config_node *volume = volumes != NULL ? volumes->child : NULL;
         volume != NULL; volume = volume->sib) {
        for (const struct dm_config_node *node = volume->child; node != NULL; node = node->sib) {
            const struct dm_config_node *stripes =
                node->v == NULL ? dm_config_find_node(node->child, "stripes") : NULL;
            uint64_t stripe_count = number_of(node->child, "stripe_count");
            uint64_t extents = number_of(node->child, "extent_count");
            for (const struct dm_config_value *v = stripes != NULL ? stripes->v : NULL;
                 v != NULL && v->next != NULL; v = v->next->next) {
                uint64_t at = v->next->type == DM_CFG_INT ? (uint64_t)v->next->v.i : UINT64_MAX;
                uint64_t end = at + extents / (stripe_count > 0 ? stripe_count : 1);
                for (; at < end && at < text->lvm.extent_count; at++) {
                    used[at] = 1;
                }
            }
        }
    }
    for (uint64_t i = 0, run = 0; i < text->lvm.extent_count; i++) {
        run = used[i] != 0 ? 0 : run + 1;
        if (run > *count) {
            *count = run;
            *first = i + 1 - run;
        }
    }
    free(used);
    return 0;
}

/* How many of `count` extents are left for data when the front is taken off. */
static uint64_t data_fit(const struct fw_volume_lvm *lvm, const struct fw_volume_lvm_adopt *adopt,
                         uint64_t count, uint64_t bounds[4], uint64_t first)
{
    for (uint64_t data = count; data > 0; data--) {
        const struct fw_volume_layout layout =
            layout_of(lvm, adopt->hosts_max, adopt->ring_size, data);
        bounds_make(lvm, &layout, first, bounds);
        if (bounds[3] > first && bounds[3] - first + data <= count) {
            return data;
        }
    }
    return 0;
}

/* Makes the group where LVM's metadata say it is, and then lets them say so. */
static int adopt_locked(const struct fw_volume_lvm_adopt *adopt, struct text *text,
                        struct fw_disk *disk, struct fw_reason *reason)
{
    uint64_t first = 0;
    uint64_t count = 0;
    uint64_t bounds[4];
    struct fw_disk *part;
    struct fw_file_lock lock;
    struct fw_volume_store *store;
    struct fw_volume_metadata metadata;
    int rc = run_find(text, &first, &count, reason);
    if (rc != 0) {
        return rc;
    }
    count = adopt->extents != 0 && adopt->extents < count ? adopt->extents : count;
    uint64_t data = data_fit(&text->lvm, adopt, count, bounds, first);
    if (data == 0) {
        return fw_reason_set(reason, -ENOSPC,
                             "the largest run of free extents of %.80s has %" PRIu64
                             ", which are too few",
                             text->lvm.group, count);
    }
    struct fw_volume_layout layout =
        layout_of(&text->lvm, adopt->hosts_max, adopt->ring_size, data);
    layout.data_offset = text->lvm.first + bounds[3] * text->lvm.extent_size;
    layout.replace = true;
    layout.hold_ms = adopt->hold_ms;
    rc = fw_file_lock_take(&lock, adopt->path, FW_VOLUME_LOCK_MANAGER, reason);
    if (rc != 0) {
        return rc;
    }
    layout.host_number = fw_ring_host_number(&lock);
    fw_file_lock_release(&lock);
    rc = fw_disk_part_open(&part, disk, text->lvm.first + first * text->lvm.extent_size,
                           (bounds[3] - first) * text->lvm.extent_size, reason);
    if (rc != 0) {
        return rc;
    }
    rc = fw_volume_plain_format(part, &layout, reason);
    if (rc == 0) {
        rc = fw_volume_plain_open(&store, part, reason);
    }
    if (rc == 0) {
        rc = store->ops->load(store, &metadata, reason);
        if (rc == 0) {
            rc = ours_commit(text, disk, &store->geometry, bounds, &metadata, reason);
            fw_volume_metadata_fini(&metadata);
        }
        store->ops->close(store);
    }
    fw_disk_close(part);
    return rc;
}

static int backup_make(const struct fw_volume_lvm_adopt *adopt, const struct text *text,
                       struct fw_reason *reason)
{
    char path[PATH_SIZE];
    (void)snprintf(path, sizeof path, "/etc/lvm/archive/%s_before_fairway.vg", text->lvm.group);
    const char *file = adopt->backup != NULL && adopt->backup[0] != '\0' ? adopt->backup : path;
    int rc = lvm_run("vgcfgbackup", file, &text->lvm, reason);
    if (rc == 0) {
        FW_LOG(volume, NOTICE, "LVM's metadata as they were are in %s", file);
    }
    return rc;
}

int fw_volume_lvm_adopt(const struct fw_volume_lvm_adopt *adopt, struct fw_reason *reason)
{
    const struct fw_disk_options options = {.path = adopt->path, .flags = FW_DISK_DIRECT};
    struct fw_file_lock lock;
    struct fw_disk *disk;
    struct text text;
    struct fw_reason why;
    int rc = fw_disk_open(&disk, &options, reason);
    if (rc != 0) {
        return rc;
    }
    rc = text_lock(&text, disk, &lock, reason);
    if (rc == 0) {
        if (front_find(&text, &why) == 0) {
            rc = fw_reason_set(reason, -EEXIST, "volume group %.80s has been adopted already",
                               text.lvm.group);
        }
        if (rc == 0) {
            rc = backup_make(adopt, &text, reason);
        }
        if (rc == 0) {
            rc = adopt_locked(adopt, &text, disk, reason);
        }
        text_fini(&text);
        fw_file_lock_release(&lock);
    } else if (rc == -ENOENT) {
        (void)fw_reason_set(reason, rc, "there is no volume group of LVM; vgcreate makes one");
    }
    fw_disk_close(disk);
    return rc;
}

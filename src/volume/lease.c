/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/lease.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "io/clock.h"
#include "io/random.h"

/* The record: offsets of what is in it, little-endian. The CRC is over all of it, itself as 0. */
enum {
    AT_CRC = 16,
    AT_STATE = 20,
    AT_HOLD = 24,
    AT_HOST = 32,
    AT_NUMBER = 40,
    AT_BEAT = 48,
    AT_TERM = 56,
    AT_HOLDER = 64,
    RECORD_SIZE = AT_HOLDER + FW_VOLUME_LEASE_HOLDER_MAX + 1, /* One sector, so it does not tear. */
};

static const char MAGIC[AT_CRC] = "fairway lease";

/* ---- the record ---- */

static uint32_t record_crc(const uint8_t *bytes)
{
    uint8_t copy[RECORD_SIZE];
    memcpy(copy, bytes, sizeof copy);
    fw_le32_put(copy + AT_CRC, 0);
    return fw_crc32c(0, copy, sizeof copy);
}

static void record_encode(const struct fw_volume_lease_record *record, uint8_t *bytes)
{
    memset(bytes, 0, FW_VOLUME_LEASE_SIZE);
    memcpy(bytes, MAGIC, sizeof MAGIC);
    fw_le32_put(bytes + AT_STATE, (uint32_t)record->state);
    fw_le32_put(bytes + AT_HOLD, record->hold_ms);
    fw_le64_put(bytes + AT_HOST, record->host);
    fw_le64_put(bytes + AT_NUMBER, record->number);
    fw_le64_put(bytes + AT_BEAT, record->beat);
    fw_le64_put(bytes + AT_TERM, record->term);
    memcpy(bytes + AT_HOLDER, record->holder, sizeof record->holder);
    fw_le32_put(bytes + AT_CRC, record_crc(bytes));
}

static bool record_decode(struct fw_volume_lease_record *record, const uint8_t *bytes)
{
    uint32_t state = fw_le32_get(bytes + AT_STATE);
    uint32_t hold_ms = fw_le32_get(bytes + AT_HOLD);
    if (memcmp(bytes, MAGIC, sizeof MAGIC) != 0 ||
        fw_le32_get(bytes + AT_CRC) != record_crc(bytes) || state < FW_VOLUME_LEASE_RELEASED ||
        state > FW_VOLUME_LEASE_HELD || hold_ms < FW_VOLUME_LEASE_HOLD_MS_MIN ||
        hold_ms > FW_VOLUME_LEASE_HOLD_MS_MAX) {
        return false;
    }
    record->state = (enum fw_volume_lease_state)state;
    record->hold_ms = hold_ms;
    record->host = fw_le64_get(bytes + AT_HOST);
    record->number = fw_le64_get(bytes + AT_NUMBER);
    record->beat = fw_le64_get(bytes + AT_BEAT);
    record->term = fw_le64_get(bytes + AT_TERM);
    memcpy(record->holder, bytes + AT_HOLDER, sizeof record->holder);
    record->holder[FW_VOLUME_LEASE_HOLDER_MAX] = '\0';
    return true;
}

int fw_volume_lease_read(struct fw_disk *disk, struct fw_volume_lease_record *record,
                         struct fw_reason *reason)
{
    uint8_t *bytes = fw_disk_buffer(FW_VOLUME_LEASE_SIZE);
    if (bytes == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot read the lease");
    }
    struct fw_disk_op op = {.kind = FW_DISK_READ, .into = bytes, .size = FW_VOLUME_LEASE_SIZE};
    int rc = fw_disk_run(disk, &op, reason);
    if (rc == 0 && !record_decode(record, bytes)) {
        rc = fw_reason_set(reason, -EBADMSG, "the manager's lease is damaged");
    }
    free(bytes);
    return rc;
}

static int record_write(struct fw_disk *disk, const struct fw_volume_lease_record *record,
                        struct fw_reason *reason)
{
    uint8_t *bytes = fw_disk_buffer(FW_VOLUME_LEASE_SIZE);
    if (bytes == NULL) {
        return fw_reason_errno(reason, -ENOMEM, "cannot write the lease");
    }
    record_encode(record, bytes);
    struct fw_disk_op op = {
        .kind = FW_DISK_WRITE, .from = bytes, .size = FW_VOLUME_LEASE_SIZE, .sync = true};
    int rc = fw_disk_run(disk, &op, reason);
    free(bytes);
    return rc;
}

int fw_volume_lease_hold_check(uint32_t hold_ms, struct fw_reason *reason)
{
    return hold_ms >= FW_VOLUME_LEASE_HOLD_MS_MIN && hold_ms <= FW_VOLUME_LEASE_HOLD_MS_MAX
               ? 0
               : fw_reason_set(reason, -EINVAL, "a lease lasts from %d to %d ms",
                               FW_VOLUME_LEASE_HOLD_MS_MIN, FW_VOLUME_LEASE_HOLD_MS_MAX);
}

int fw_volume_lease_format(struct fw_disk *disk, uint64_t host, uint32_t hold_ms,
                           struct fw_reason *reason)
{
    const struct fw_volume_lease_record record = {
        .state = FW_VOLUME_LEASE_RELEASED, .host = host, .hold_ms = hold_ms};
    int rc = fw_volume_lease_hold_check(hold_ms, reason);
    return rc == 0 ? record_write(disk, &record, reason) : rc;
}

/* ---- times ---- */

static int64_t hold_ns(const struct fw_volume_lease_record *record)
{
    return (int64_t)record->hold_ms * FW_NS_PER_MS;
}

/* W: when a right that began before this long ago is over for certain. */
static int64_t over_ns(const struct fw_volume_lease_record *record)
{
    return hold_ns(record) + hold_ns(record) / 2;
}

int64_t fw_volume_lease_pause_ns(const struct fw_volume_lease *lease)
{
    return hold_ns(&lease->ours) / FW_VOLUME_LEASE_PAUSE;
}

/* ---- steps ---- */

int fw_volume_lease_init(struct fw_volume_lease *lease, struct fw_disk *disk,
                         const struct fw_volume_lease_options *options, struct fw_reason *reason)
{
    uint32_t hold_ms = options->hold_ms != 0 ? options->hold_ms : FW_VOLUME_LEASE_HOLD_MS;
    *lease = (struct fw_volume_lease){.disk = disk, .inherits = options->hold_ms == 0};
    int rc = fw_volume_lease_hold_check(hold_ms, reason);
    if (rc != 0) {
        return rc;
    }
    lease->ours.host = options->host;
    lease->ours.hold_ms = hold_ms;
    size_t length = strnlen(options->holder, FW_VOLUME_LEASE_HOLDER_MAX);
    memcpy(lease->ours.holder, options->holder, length);
    rc = fw_random_seed(&lease->ours.number);
    return rc == 0 ? 0 : fw_reason_errno(reason, rc, "cannot draw a random number");
}

static bool is_same(const struct fw_volume_lease_record *one,
                    const struct fw_volume_lease_record *other)
{
    return one->host == other->host && one->number == other->number && one->term == other->term;
}

static int taken_by(const struct fw_volume_lease_record *record, int rc, struct fw_reason *reason)
{
    return fw_reason_set(reason, rc, "%.120s %s the manager's lease of this group",
                         record->holder[0] != '\0' ? record->holder : "another process",
                         record->state == FW_VOLUME_LEASE_CLAIMED ? "is taking over" : "holds");
}

/*
 * Writes our record, with a state and one beat more, after a read that began at `read_ns`. Returns
 * 0, FW_VOLUME_WAIT if that was too long ago, or what the disk said. Only with 0 the record counts.
 */
static int ours_write(struct fw_volume_lease *lease, enum fw_volume_lease_state state,
                      int64_t read_ns, struct fw_reason *reason)
{
    struct fw_volume_lease_record record = lease->ours;
    record.state = state;
    record.beat++;
    if (fw_clock_now_ns() - read_ns >= hold_ns(&record)) {
        return FW_VOLUME_WAIT;
    }
    lease->is_writing = true;
    int rc = record_write(lease->disk, &record, reason);
    lease->is_writing = false;
    if (rc != 0) {
        return rc;
    }
    lease->ours = record;
    if (fw_clock_now_ns() - read_ns >= over_ns(&record)) {
        lease->is_doubtful = true;
        return FW_VOLUME_WAIT;
    }
    return 0;
}

static int begin_to_hold(struct fw_volume_lease *lease, int64_t read_ns, struct fw_reason *reason)
{
    int rc = ours_write(lease, FW_VOLUME_LEASE_HELD, read_ns, reason);
    if (rc == 0) {
        lease->phase = FW_VOLUME_LEASE_HOLDS;
        lease->read_ns = read_ns;
        lease->right_ns = read_ns + hold_ns(&lease->ours);
    } else if (rc > 0) {
        lease->phase = FW_VOLUME_LEASE_IDLE;
    }
    return rc;
}

static int claim(struct fw_volume_lease *lease, const struct fw_volume_lease_record *found,
                 int64_t read_ns, struct fw_reason *reason)
{
    int64_t theirs_ns = over_ns(found);
    int64_t ours_ns = over_ns(&lease->ours);
    lease->ours.term = found->term + 1;
    int rc = ours_write(lease, FW_VOLUME_LEASE_CLAIMED, read_ns, reason);
    if (rc == 0) {
        lease->phase = FW_VOLUME_LEASE_CLAIMS;
        lease->since_ns = fw_clock_now_ns();
        lease->wait_ns = theirs_ns > ours_ns ? theirs_ns : ours_ns;
        lease->is_doubtful = false;
    } else if (rc > 0) {
        lease->phase = FW_VOLUME_LEASE_IDLE;
    }
    return rc < 0 ? rc : FW_VOLUME_WAIT;
}

static int first_look(struct fw_volume_lease *lease, const struct fw_volume_lease_record *found,
                      int64_t read_ns, struct fw_reason *reason)
{
    if (lease->inherits) {
        lease->ours.hold_ms = found->hold_ms;
    }
    if (found->host == lease->ours.host && found->host != 0 && !lease->is_doubtful) {
        lease->ours.term = found->term + 1;
        return begin_to_hold(lease, read_ns, reason);
    }
    if (found->state == FW_VOLUME_LEASE_RELEASED) {
        return claim(lease, found, read_ns, reason);
    }
    lease->phase = FW_VOLUME_LEASE_WATCHES;
    lease->seen = *found;
    lease->since_ns = fw_clock_now_ns();
    lease->wait_ns = over_ns(found);
    return FW_VOLUME_WAIT;
}

static int watch(struct fw_volume_lease *lease, const struct fw_volume_lease_record *found,
                 int64_t read_ns, struct fw_reason *reason)
{
    bool is_silent = is_same(found, &lease->seen) && found->beat == lease->seen.beat &&
                     found->state == lease->seen.state;
    if (!is_silent && found->state != FW_VOLUME_LEASE_RELEASED) {
        lease->phase = FW_VOLUME_LEASE_IDLE;
        return taken_by(found, -EBUSY, reason);
    }
    return !is_silent || read_ns - lease->since_ns >= lease->wait_ns
               ? claim(lease, found, read_ns, reason)
               : FW_VOLUME_WAIT;
}

static int confirm(struct fw_volume_lease *lease, const struct fw_volume_lease_record *found,
                   int64_t read_ns, struct fw_reason *reason)
{
    if (!is_same(found, &lease->ours)) {
        lease->phase = FW_VOLUME_LEASE_IDLE;
        return taken_by(found, -EBUSY, reason);
    }
    if (read_ns - lease->since_ns >= lease->wait_ns) {
        return begin_to_hold(lease, read_ns, reason);
    }
    int rc = ours_write(lease, FW_VOLUME_LEASE_CLAIMED, read_ns, reason);
    if (lease->is_doubtful) {
        lease->phase = FW_VOLUME_LEASE_IDLE;
    }
    return rc < 0 ? rc : FW_VOLUME_WAIT;
}

int fw_volume_lease_try(struct fw_volume_lease *lease, struct fw_reason *reason)
{
    struct fw_volume_lease_record found = {.host = 0};
    int64_t read_ns = fw_clock_now_ns();
    int rc = fw_volume_lease_read(lease->disk, &found, reason);
    if (rc == -EBADMSG) { /* Somebody may hold it all the same: he is watched. */
        found = (struct fw_volume_lease_record){.state = FW_VOLUME_LEASE_HELD,
                                                .hold_ms = FW_VOLUME_LEASE_HOLD_MS};
    } else if (rc != 0) {
        return rc;
    }
    switch (lease->phase) {
    case FW_VOLUME_LEASE_WATCHES:
        return watch(lease, &found, read_ns, reason);
    case FW_VOLUME_LEASE_CLAIMS:
        return confirm(lease, &found, read_ns, reason);
    case FW_VOLUME_LEASE_HOLDS:
        return 0;
    case FW_VOLUME_LEASE_IDLE:
    case FW_VOLUME_LEASE_LOST:
    default:
        return first_look(lease, &found, read_ns, reason);
    }
}

int fw_volume_lease_renew(struct fw_volume_lease *lease, struct fw_reason *reason)
{
    struct fw_volume_lease_record found = {.host = 0};
    int64_t read_ns = fw_clock_now_ns();
    if (lease->phase != FW_VOLUME_LEASE_HOLDS) {
        return fw_reason_set(reason, -ESTALE, "the manager's lease of this group is lost");
    }
    if (read_ns - lease->read_ns < 4 * fw_volume_lease_pause_ns(lease)) {
        return 0;
    }
    int rc = fw_volume_lease_read(lease->disk, &found, reason);
    if (rc == 0 && !is_same(&found, &lease->ours)) {
        rc = taken_by(&found, -ESTALE, reason);
    }
    if (rc == 0) {
        rc = ours_write(lease, FW_VOLUME_LEASE_HELD, read_ns, reason);
    }
    if (rc > 0) { /* Not prolonged, which the next one may be; but a doubtful one is none. */
        rc = lease->is_doubtful
                 ? fw_reason_set(reason, -ESTALE, "the lease was lost: the disk took too long")
                 : 0;
    } else if (rc == 0) {
        lease->read_ns = read_ns;
        lease->right_ns = read_ns + hold_ns(&lease->ours);
    }
    if (rc != 0) {
        lease->phase = FW_VOLUME_LEASE_LOST;
    }
    return rc;
}

int fw_volume_lease_check(const struct fw_volume_lease *lease)
{
    bool may = lease->is_writing ||
               (lease->phase == FW_VOLUME_LEASE_HOLDS && fw_clock_now_ns() < lease->right_ns);
    return may ? 0 : -ESTALE;
}

void fw_volume_lease_release(struct fw_volume_lease *lease)
{
    struct fw_volume_lease_record found = {.host = 0};
    int64_t read_ns = fw_clock_now_ns();
    if (lease->phase == FW_VOLUME_LEASE_HOLDS &&
        fw_volume_lease_read(lease->disk, &found, NULL) == 0 && is_same(&found, &lease->ours)) {
        /* If it cannot be written, the others wait a little longer. */
        (void)!ours_write(lease, FW_VOLUME_LEASE_RELEASED, read_ns, NULL);
    }
    lease->phase = FW_VOLUME_LEASE_LOST;
}

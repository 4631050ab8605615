/* SPDX-License-Identifier: Apache-2.0 */
#include "server/unsent.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* Bytes of the reply's own buffer behind the first `sent`: what has to be copied. */
static size_t bytes_count(const struct fw_reply *reply, size_t sent)
{
    size_t count = 0;
    for (uint32_t i = 0; i < reply->piece_count; i++) {
        size_t length = reply->pieces[i].iov_len;
        size_t skipped = sent < length ? sent : length;
        sent -= skipped;
        count += reply->bodies[i] == NULL ? length - skipped : 0;
    }
    return count;
}

struct fw_unsent *fw_unsent_create(const struct fw_reply *reply, size_t sent)
{
    size_t size = bytes_count(reply, sent);
    struct fw_unsent *made = malloc(sizeof *made + size);
    if (made == NULL) {
        return NULL;
    }
    made->size = size;
    made->claim = (struct fw_holding){.bytes = 0};
    made->rest = 0;
    made->first = 0;
    made->count = 0;
    char *next = made->bytes;
    for (uint32_t i = 0; i < reply->piece_count; i++) {
        size_t length = reply->pieces[i].iov_len;
        size_t skipped = sent < length ? sent : length;
        sent -= skipped;
        length -= skipped;
        if (length == 0) {
            continue;
        }
        struct fw_body *body = reply->bodies[i];
        char *from = NULL; /* Of a value in a file. */
        if (body == NULL) {
            memcpy(next, (char *)reply->pieces[i].iov_base + skipped, length);
            from = next;
            next += length;
        } else if (reply->pieces[i].iov_base != NULL) {
            from = (char *)reply->pieces[i].iov_base + skipped;
        }
        made->pieces[made->count] = (struct iovec){.iov_base = from, .iov_len = length};
        made->bodies[made->count] = body != NULL ? fw_body_ref(body) : NULL;
        made->count++;
        made->rest += length;
    }
    FW_ASSERT(made->count > 0);
    return made;
}

size_t fw_unsent_size(const struct fw_unsent *unsent)
{
    return sizeof *unsent + unsent->size;
}

void fw_unsent_destroy(struct fw_unsent *unsent, struct fw_table_local *table)
{
    for (uint32_t i = 0; i < unsent->count; i++) {
        if (unsent->bodies[i] != NULL) {
            fw_body_unref(table, unsent->bodies[i]);
        }
    }
    if (FW_UNLIKELY(fw_table_erases(table))) {
        explicit_bzero(unsent->bytes, unsent->size);
    }
    free(unsent);
}

void fw_unsent_cut(struct fw_unsent *unsent, struct fw_table_local *table, size_t keep,
                   const char *last, size_t last_length)
{
    uint32_t count = 0;
    FW_ASSERT(unsent->first == 0 && last_length > 0 && last_length <= sizeof unsent->last);
    unsent->rest = keep + last_length;
    for (uint32_t i = 0; i < unsent->count; i++) {
        struct iovec *piece = &unsent->pieces[i];
        piece->iov_len = keep < piece->iov_len ? keep : piece->iov_len;
        keep -= piece->iov_len;
        if (piece->iov_len > 0) {
            count = i + 1;
        } else if (unsent->bodies[i] != NULL) {
            fw_body_unref(table, unsent->bodies[i]);
        }
    }
    FW_ASSERT(keep == 0);
    memcpy(unsent->last, last, last_length);
    unsent->pieces[count] = (struct iovec){.iov_base = unsent->last, .iov_len = last_length};
    unsent->bodies[count] = NULL;
    unsent->count = count + 1;
}

uint32_t fw_unsent_next(struct fw_unsent *unsent, size_t most, const struct iovec **pieces)
{
    const struct iovec *first = &unsent->pieces[unsent->first];
    FW_ASSERT(unsent->first < unsent->count && most > 0);
    *pieces = first;
    if (first->iov_base != NULL && first->iov_len > most) {
        unsent->slice = (struct iovec){.iov_base = first->iov_base, .iov_len = most};
        *pieces = &unsent->slice;
        return 1;
    }
    uint32_t count = 0;
    while (unsent->first + count < unsent->count && first[count].iov_base != NULL &&
           first[count].iov_len <= most) {
        most -= first[count].iov_len;
        count++;
    }
    return count;
}

bool fw_unsent_advance(struct fw_unsent *unsent, size_t sent)
{
    FW_ASSERT(sent <= unsent->rest);
    unsent->rest -= sent;
    while (sent > 0) {
        FW_ASSERT(unsent->first < unsent->count);
        struct iovec *piece = &unsent->pieces[unsent->first];
        size_t part = sent < piece->iov_len ? sent : piece->iov_len;
        piece->iov_base = piece->iov_base != NULL ? (char *)piece->iov_base + part : NULL;
        piece->iov_len -= part;
        sent -= part;
        unsent->first += piece->iov_len == 0;
    }
    return unsent->first == unsent->count;
}

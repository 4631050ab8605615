/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: LVM's metadata are found and read as LVM writes them, also where the text goes round the
 * end of its area; and whatever else is on a device is an error, never a crash.
 * Method: labels and texts made here, on a disk in memory; then each byte of the label and of the
 * area's header, and many of the text, wrong in turn. tests/volume/test_lvm.py has LVM itself.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/endian.h"
#include "io/disk_memory.h"
#include "volume/lvm.h"
#include "volume/lvm_label.h"

enum { DISK = 256 << 10, AREA = 4096, AREA_SIZE = 8192, LABEL = 512 };

static const char TEXT[] =
    "contents = \"Text Format Volume Group\"\nversion = 1\n"
    "vg {\nid = \"x\"\nseqno = 7\nextent_size = 32\n"
    "physical_volumes {\npv0 {\nid = \"y\"\npe_start = 128\npe_count = 10\n}\n}\n"
    "logical_volumes {\n"
    "fairway_meta {\nid = \"z\"\ntags = [\"fairway\"]\nsegment_count = 1\n"
    "segment1 {\nstart_extent = 0\nextent_count = 2\ntype = \"striped\"\nstripe_count = 1\n"
    "stripes = [\"pv0\", 3]\n}\n}\n}\n}\n";

static struct fw_disk_memory *memory;
static struct fw_reason reason;

/* Writes label, header and text, which begins at `at` of the area. */
static void device_make(const char *text, uint64_t at)
{
    uint8_t *bytes = memory->bytes;
    uint64_t length = strlen(text);
    memset(bytes, 0, DISK);
    memcpy(bytes + LABEL, "LABELONE", 8);
    fw_le64_put(bytes + LABEL + 8, 1);
    fw_le32_put(bytes + LABEL + 20, 32);
    memcpy(bytes + LABEL + 24, "LVM2 001", 8);
    fw_le64_put(bytes + LABEL + 32 + 40, 65536); /* The data area, and the end of that list. */
    fw_le64_put(bytes + LABEL + 32 + 40 + 32, AREA);
    fw_le64_put(bytes + LABEL + 32 + 40 + 40, AREA_SIZE);
    memcpy(bytes + AREA + 4, " LVM2 x[5A%r0N*>", 16);
    fw_le32_put(bytes + AREA + 20, 1);
    fw_le64_put(bytes + AREA + 24, AREA);
    fw_le64_put(bytes + AREA + 32, AREA_SIZE);
    fw_le64_put(bytes + AREA + 40, at);
    fw_le64_put(bytes + AREA + 48, length);
    for (uint64_t i = 0; i < length; i++) {
        uint64_t place = at + i < AREA_SIZE ? at + i : at + i - AREA_SIZE + 512;
        bytes[AREA + place] = (uint8_t)text[i];
    }
}

static int setup(void **state)
{
    (void)state;
    const struct fw_disk_memory_options options = {.size = DISK};
    return fw_disk_memory_create(&memory, &options);
}

static int teardown(void **state)
{
    (void)state;
    fw_disk_close(&memory->disk);
    return 0;
}

static int find(struct fw_volume_lvm *lvm)
{
    reason.text[0] = '\0';
    return fw_volume_lvm_find(&memory->disk, lvm, &reason);
}

static void test_text(void **state)
{
    (void)state;
    static const uint64_t places[] = {512, 1000, AREA_SIZE - 1, AREA_SIZE - 100,
                                      AREA_SIZE - sizeof TEXT + 1};
    for (size_t i = 0; i < FW_ARRAY_LENGTH(places); i++) {
        char *text;
        device_make(TEXT, places[i]);
        assert_int_equal(fw_volume_lvm_text(&memory->disk, &text, &reason), 0);
        assert_string_equal(text, TEXT);
        free(text);
    }
}

static void test_find(void **state)
{
    (void)state;
    struct fw_volume_lvm lvm;
    device_make(TEXT, 512);
    assert_int_equal(find(&lvm), 0);
    assert_string_equal(lvm.group, "vg");
    assert_string_equal(lvm.device, "pv0");
    assert_int_equal(lvm.seqno, 7);
    assert_int_equal(lvm.extent_size, 16384);
    assert_int_equal(lvm.meta_offset, 65536 + 3 * 16384);
    assert_int_equal(lvm.meta_size, 7 * 16384);
    /* One that is not ours by its tag. */
    char other[sizeof TEXT];
    memcpy(other, TEXT, sizeof TEXT);
    memcpy(strstr(other, "[\"fairway\"]"), "[\"faraway\"]", 11);
    device_make(other, 512);
    assert_int_equal(find(&lvm), -ENOENT);
    assert_non_null(strstr(reason.text, "vg has not been adopted"));
    device_make("vg {\nseqno = 1\nextent_size = 8\nphysical_volumes {\npv0 {\n"
                "pe_start = 8\n}\npv1 {\n}\n}\n}\n",
                512);
    assert_int_equal(find(&lvm), -EOPNOTSUPP);
    device_make("", 512);
    assert_int_equal(find(&lvm), -EBADMSG);
    device_make("nothing = 1\n", 512);
    assert_int_equal(find(&lvm), -EBADMSG);
    device_make("{{{", 512);
    assert_int_equal(find(&lvm), -EBADMSG);
    device_make("", 0); /* No text: in no volume group. */
    assert_int_equal(find(&lvm), -ENOENT);
    memset(memory->bytes, 0, DISK);
    assert_int_equal(find(&lvm), -ENOENT);
    assert_non_null(strstr(reason.text, "'fairway volume adopt'"));
}

static void damage_from(uint64_t from, uint64_t end)
{
    struct fw_volume_lvm lvm;
    for (uint64_t at = from; at < end; at++) {
        for (int bit = 0; bit < 8; bit += 1) {
            memory->bytes[at] ^= (uint8_t)(1 << bit);
            (void)!find(&lvm);
            memory->bytes[at] ^= (uint8_t)(1 << bit);
        }
    }
    assert_int_equal(find(&lvm), 0);
}

static void test_damage(void **state)
{
    (void)state;
    device_make(TEXT, 512);
    damage_from(LABEL, LABEL + 128);
    damage_from(AREA, AREA + 64);
    damage_from(AREA + 512, AREA + 512 + sizeof TEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_text, setup, teardown),
        cmocka_unit_test_setup_teardown(test_find, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

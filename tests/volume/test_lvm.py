# SPDX-License-Identifier: Apache-2.0
"""Goal: a volume group made by LVM's own tools is adopted, and from then on they and we agree: which extents
belong to whom, whatever an administrator does meanwhile; and LVM alone is enough to get the data back.
Method: a volume group on a loop device; what `fairway volume dump` says is compared with `lvs`, `pvs` and
`vgck`; an administrator's lvcreate and lvremove run beside our flushes."""

import os
import pathlib
import shutil
import signal
import subprocess
import threading

import pytest

from group import FAILED, OK, placed
from lvm import EXTENT, PATH, VolumeGroup, has_driver, loop_device

pytestmark = pytest.mark.needs("root", "loop-devices", "lvm")


class Agreeing(VolumeGroup):
    """One whose owners of extents are compared with what LVM says."""

    def segments(self):
        """{logical volume: {logical extent: physical extent}}, of what is not a hole."""
        found = {}
        for row in self.report("lvs", "lv_name,seg_start_pe,seg_pe_ranges,segtype"):
            volume = found.setdefault(row["lv_name"], {})
            if row["segtype"] == "zero":
                continue
            first, last = map(int, row["seg_pe_ranges"].split(":")[1].split("-"))
            for i in range(last - first + 1):
                volume[int(row["seg_start_pe"]) + i] = first + i
        return found

    def start(self):
        return int(self.report("vgs", "pe_start")[0]["pe_start"])

    def agree(self):
        """LVM's tools are content, no extent has two owners, and each has the owner that we say."""
        self.lvm("vgck", self.name)
        found, dump = self.segments(), self.dump()
        extents = [extent for volume in found.values() for extent in volume.values()]
        assert len(extents) == len(set(extents))
        first = (dump["data_offset"] - self.start()) // EXTENT
        for volume in dump["volumes"]:
            ours = {logical: (where - self.start()) // EXTENT
                    for logical, where in placed(dump, volume["name"]).items()}
            assert found[volume["name"]] == ours
        ids = {row["lv_name"]: row["lv_uuid"].replace("-", "") for row in self.report("lvs", "lv_name,lv_uuid")}
        assert len(set(ids.values())) == len(ids)
        assert [ids[volume["name"]] for volume in dump["volumes"]] == [volume["uuid"] for volume in dump["volumes"]]
        for host in dump["hosts"]:
            pool = [first + run["extent"] + i for run in host["extents"] for i in range(run["count"])]
            assert sorted(found.get(f"fairway_pool_{host['name']}", {}).values()) == sorted(pool)
        assert len(found.get("fairway_free", {})) == dump["free"]
        assert int(self.report("vgs", "vg_free_count")[0]["vg_free_count"]) == \
            int(self.report("vgs", "vg_extent_count")[0]["vg_extent_count"]) - len(extents)
        rows = self.lvm("pvs", "--noheadings", "--segments", "-o", "pvseg_size,lv_name", self.path)
        held = sum(int(row.split()[0]) for row in rows.splitlines() if len(row.split()) > 1)
        assert held == len(extents)
        return found


@pytest.fixture
def device(tmp_path):
    image = tmp_path / "disk"
    with open(image, "wb") as file:
        file.truncate(24 << 20)
    with loop_device(image) as device:
        yield device


@pytest.fixture
def group(fairway, device):
    group = Agreeing(fairway, device)
    group.make()
    yield group
    group.lvm("vgck", group.name)
    if group.run("check", group.path).returncode == OK:  # Else it is LVM's alone, again or still.
        group.do("flush", group.path)
        group.agree()
    group.lvm("vgremove", "-qq", "-f", group.name)


def write_some(group):
    """Ten extents of the volume `web`, each full of its number, written as a host would."""
    manager = group.manager()
    agent = group.agent("one", "--wait", "60s")
    assert agent.ask("open web") == "ok"
    for logical in (3, 4, 5, 9, 20, 21, 22, 23, 24, 29):
        assert agent.ask(f"allocate {logical} 1") == "ok"
    mapped = dict(map(int, pair.split(":")) for pair in agent.ask("map").split()[:-1])
    with open(group.path, "r+b") as disk:
        for logical, where in mapped.items():
            disk.seek(where)
            disk.write(bytes([logical]) * EXTENT)
    assert agent.end() == OK
    assert manager.end() == OK


def test_adopted(group, tmp_path):
    before = group.segments()
    group.adopt(tmp_path / "before.vg")
    assert f"{group.name} {{" in (tmp_path / "before.vg").read_text()
    found = group.segments()
    assert found["admin"] == before["admin"]
    assert sum(map(len, found.values())) == 150 + len(found["admin"])
    assert {"fairway_meta", "fairway_log", "fairway_rings", "fairway_free"} <= set(found)
    for row in group.report("lvs", "lv_name,lv_tags"):
        assert row["lv_tags"] == ("" if row["lv_name"] == "admin" else "fairway")
    group.do("create", "--extents", "30", group.path, "web")
    group.do("connect", group.path, "one")
    write_some(group)
    found = group.agree()
    assert list(found["web"]) == [3, 4, 5, 9, 20, 21, 22, 23, 24, 29]
    group.do("resize", "--extents", "40", group.path, "web")
    group.do("create", "--extents", "3", group.path, "empty")
    group.agree()
    group.do("remove", group.path, "empty")
    assert "empty" not in group.agree()


def test_back_to_lvm(group, tmp_path):
    group.adopt(tmp_path / "before.vg")
    group.do("create", "--extents", "30", group.path, "web")
    group.do("connect", group.path, "one")
    write_some(group)
    group.do("reclaim", group.path, "one")
    ours = [name for name in group.agree() if name.startswith("fairway_")]
    group.lvm("lvremove", "-qq", "-f", *(f"{group.name}/{name}" for name in ours))
    group.lvm("lvchange", "-qq", "--deltag", "fairway", f"{group.name}/web")
    found = group.segments()
    assert set(found) == {"admin", "web"}
    group.lvm("vgck", group.name)
    with open(group.path, "rb") as disk:
        for logical, extent in found["web"].items():
            disk.seek(group.start() + extent * EXTENT)
            assert disk.read(EXTENT) == bytes([logical]) * EXTENT
    done = group.run("list", group.path)
    assert done.returncode == FAILED and b"has not been adopted" in done.stderr
    group.create("more", 100)
    assert not set(group.segments()["more"].values()) & set(found["web"].values())


@pytest.mark.needs("nbdkit")
def test_attached_and_killed(group, tmp_path):
    """Two hosts that write by NBD, and the manager and one of them are killed; LVM's tools agree after that."""
    plugin = pathlib.Path(os.environ["FAIRWAY_BUILD"]) / "src/volume/nbdkit-fairway-plugin.so"
    group.adopt(tmp_path / "before.vg")
    for host, volume in (("one", "web"), ("two", "mail")):
        group.do("connect", group.path, host)
        group.do("create", "--extents", "20", group.path, volume)

    def attach(host, volume):
        return group.do("attach", "--nbd", tmp_path / host, "--host", host, "--plugin", plugin, group.path,
                        volume).decode().strip()

    def write(uri, byte, *extents):
        words = [word for n in extents for word in ("-c", f"write -P {byte} {n * EXTENT} {EXTENT}")]
        subprocess.run(["qemu-io", "-f", "raw", *words, "-c", "flush", uri], check=True, timeout=120,
                       capture_output=True)

    manager = group.manager()
    try:
        write(attach("one", "web"), 1, 0, 1, 5)
        write(attach("two", "mail"), 2, 3, 9)
        manager.kill()
        os.kill(int((tmp_path / "one.pid").read_text()), signal.SIGKILL)
        manager = group.manager()
        group.do("detach", tmp_path / "one")
        write(attach("one", "web"), 3, 7)
    finally:
        for host in ("one", "two"):
            group.do("detach", tmp_path / host)
        assert manager.end() == OK
    found = group.agree()
    assert sorted(found["web"]) == [0, 1, 5, 7] and sorted(found["mail"]) == [3, 9]
    with open(group.path, "rb") as disk:
        for volume, logical, byte in (("web", 5, 1), ("web", 7, 3), ("mail", 9, 2)):
            disk.seek(group.start() + found[volume][logical] * EXTENT)
            assert disk.read(EXTENT) == bytes([byte]) * EXTENT


def test_beside_an_administrator(group, tmp_path):
    group.adopt(tmp_path / "before.vg")
    group.do("connect", group.path, "one")
    wrong = []

    def administrate():
        try:
            for number in range(6):
                group.create(f"mine{number}", 3)
                if number % 3 == 2:
                    group.lvm("lvremove", "-qq", "-f", f"{group.name}/mine{number}")
        except BaseException as error:  # pylint: disable=broad-except
            wrong.append(repr(error))

    administrator = threading.Thread(target=administrate)
    administrator.start()
    number, is_over = 0, False
    while not is_over:
        is_over = not administrator.is_alive()
        group.do("create", "--extents", "2", group.path, f"ours{number}")
        number += 1
    administrator.join()
    assert not wrong
    found = group.agree()
    assert [name for name in sorted(found) if name.startswith("mine")] == \
        ["mine0", "mine1", "mine3", "mine4"]
    assert all(len(found[f"mine{i}"]) == 3 for i in (0, 1, 3, 4))
    assert len([name for name in found if name.startswith("ours")]) == number


def test_changed_without_the_lock(group, tmp_path, monkeypatch):
    """By an administrator on another host, whose lock is not ours, between our reading and our writing: in place of
    the program that makes the backup stands one that does that too."""
    before = group.segments()
    program = tmp_path / "bin" / "vgcfgbackup"
    program.parent.mkdir()
    program.write_text(f"""#!/bin/sh
{shutil.which("vgcfgbackup", path=PATH)} "$@" && exec lvcreate --nolocking --driverloaded {"y" if has_driver() else "n"} \\
    -qq -an -Zn -Wn -l 3 -n theirs {group.name}
""")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{PATH}")
    done = group.run("adopt", "--hosts", "2", "--ring-size", "64k", "--backup", tmp_path / "before.vg", group.path)
    assert done.returncode == FAILED and b"without LVM's lock" in done.stderr, done
    found = group.segments()
    assert len(found.pop("theirs")) == 3 and found == before
    monkeypatch.setenv("PATH", PATH)
    group.adopt(tmp_path / "again.vg")
    assert len(group.agree()["theirs"]) == 3


def test_what_cannot_be(group, tmp_path):
    def fails(says, action, *arguments):
        done = group.run(action, *arguments)
        assert done.returncode == FAILED and says in done.stderr, done
    fails(b"has not been adopted", "list", group.path)
    fails(b"too few", "adopt", "--extents", "2", "--backup", tmp_path / "b", group.path)
    group.adopt(tmp_path / "before.vg")
    fails(b"adopted already", "adopt", "--backup", tmp_path / "c", group.path)
    before = group.segments()
    fails(b"a logical volume admin that is not ours", "create", "--extents", "3", group.path, "admin")
    assert group.segments() == before
    group.do("remove", group.path, "admin")
    assert group.agree()["admin"] == before["admin"]
    nothing = tmp_path / "nothing"
    nothing.write_bytes(bytes(1 << 20))
    fails(b"'fairway volume adopt'", "list", nothing)
    assert pathlib.Path(nothing).read_bytes() == bytes(1 << 20)

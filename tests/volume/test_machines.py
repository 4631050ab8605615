# SPDX-License-Identifier: Apache-2.0
"""Goal: two hosts with device-mapper share a disk: each has a volume as a device of the kernel's, with a file
system on it, that grows while it is written; when the manager is killed they go on writing, another one takes
over on the other host, and when a host's agent is killed its file system waits and goes on.
Method: two virtual machines, and one disk for both, on which the commands of docs/volume-lvm.md are given. What
was written is compared after everything was killed, detached and attached again; e2fsck looks at it, and LVM's
tools agree."""

import json
import os
import pathlib

import pytest

from machine import Machine, image

PLUGIN = pathlib.Path(os.environ["FAIRWAY_BUILD"]) / "src/volume/nbdkit-fairway-plugin.so"
EXTENT = 256 << 10

pytestmark = pytest.mark.needs("lvm", "nbdkit", "virtual-machine")

MANAGER = """
fairway volume manager --pool-min 24 /dev/vda > /tmp/managing 2> /tmp/manager.log &
echo $! > /tmp/manager.pid
until grep -q managing /tmp/managing || ! kill -0 $(cat /tmp/manager.pid); do usleep 50000; done
cat /tmp/managing /tmp/manager.log
"""


def attach(host, volume):
    return (f"fairway volume attach --dm {volume} --nbd /run/data.nbd --plugin /plugin.so --host {host} "
            f"/dev/vda {volume}")


def placed(machine, volume):
    """How much of the device's table is on the disk itself, in extents."""
    rows = [row.split() for row in machine.run(f"dmsetup table {volume}; ls -l /dev/vda").splitlines()]
    disk = ":".join(part.strip(",") for part in rows[-1][4:6])
    return sum(int(row[1]) for row in rows[:-1] if row[3] == disk) * 512 // EXTENT


@pytest.fixture
def machines(fairway, tmp_path):
    disk = tmp_path / "disk"
    disk.write_bytes(b"\xa5" * (96 << 20))
    made = [Machine(tmp_path, host, image(fairway, PLUGIN, host), disk) for host in ("ann", "ben")]
    yield made
    for machine in made:
        machine.kill()


def test_two_hosts(machines):
    ann, ben = machines
    for machine in machines:
        machine.end()
    ann.run(f"vgcreate -s {EXTENT}b --metadatasize 1m data /dev/vda && "
            "fairway volume adopt --ring-size 64k --hosts 4 /dev/vda")
    for host, volume in (("ann", "web"), ("ben", "mail")):
        ann.run(f"fairway volume connect /dev/vda {host} && "
                f"fairway volume create --extents 120 /dev/vda {volume}")
    assert "managing" in ann.run(MANAGER)
    for machine, volume in ((ann, "web"), (ben, "mail")):
        machine.begin(f"{attach(machine.host, volume)} && /usr/sbin/mke2fs -q -t ext4 -E nodiscard /dev/mapper/{volume} && "
                      f"mount -t ext4 /dev/mapper/{volume} /mnt && "
                      "dd if=/dev/urandom of=/mnt/a bs=256k count=12 2>&1 && sync && md5sum /mnt/a > /tmp/sums")
    for machine in machines:
        status, said = machine.end()
        assert status == 0, (machine.host, said, machine.last_words())
    # The tables get to know the extents; then the kernel writes to them without us.
    for machine, volume in ((ann, "web"), (ben, "mail")):
        while placed(machine, volume) < 12:
            pass
    status = ben.run(f"{attach('ben', 'mail')} 2>&1 || echo refused; "
                     "fairway volume manager /dev/vda 2>&1 || echo refused")
    assert "has it attached already" in status and "of host ann" in status and status.count("refused") == 2

    while min(host["pool"] for host in json.loads(ann.run("fairway volume hosts --json /dev/vda"))["hosts"]) < 24:
        pass  # They go on from that; more comes only when there is a manager again.
    ann.run("kill -9 $(cat /tmp/manager.pid)")
    for machine in machines:  # From the pool.
        machine.begin("dd if=/dev/urandom of=/mnt/b bs=256k count=8 2>&1 && sync && md5sum /mnt/b >> /tmp/sums")
    for machine in machines:
        assert machine.end()[0] == 0
    assert "managing" in ben.run(MANAGER)  # When the lease of ann's is over.
    ann.run("kill -9 $(cat /run/data.nbd.pid)")
    ann.run("dd if=/dev/urandom of=/mnt/c bs=256k count=12 2>&1 && sync && md5sum /mnt/c >> /tmp/sums")

    for machine, volume in ((ann, "web"), (ben, "mail")):
        assert "rc 1" in machine.run(f"fairway volume detach /dev/mapper/{volume} 2>&1; echo rc $?")  # It is in use.
        machine.run(f"umount /mnt && fairway volume detach /dev/mapper/{volume} && "
                    f"fairway volume detach /run/data.nbd && {attach(machine.host, volume)} && "
                    f"e2fsck -fn /dev/mapper/{volume} && mount -t ext4 /dev/mapper/{volume} /mnt && "
                    f"md5sum -c /tmp/sums && umount /mnt && fairway volume detach /dev/mapper/{volume} && "
                    "fairway volume detach /run/data.nbd")
    ben.run("kill $(cat /tmp/manager.pid); while kill -0 $(cat /tmp/manager.pid); do usleep 50000; done")
    assert "sound" in ann.run("fairway volume check /dev/vda && vgck data")
    rows = ben.run("lvs --noheadings -o lv_name,segtype,seg_size_pe data && pvs").splitlines()
    for volume in ("web", "mail"):
        sizes = [int(row.split()[2]) for row in rows if row.split()[:2] == [volume, "linear"]]
        assert 32 <= sum(sizes) < 120, rows

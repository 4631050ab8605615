# SPDX-License-Identifier: Apache-2.0
"""Virtual machines: Debian's kernel under qemu's own emulation, with a file system in memory that is made of
programs of this machine. They share one disk, as hosts share a LUN, and have no network."""

import functools
import gzip
import os
import pathlib
import re
import shutil
import stat
import subprocess

PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
MODULES = ("virtio_pci", "virtio_blk", "crc32c_generic", "dm_mod", "nbd", "ext4")
# Commands come through a disk of their own, a number and then a script; what they say goes to a serial line.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/usr/sbin:/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
hostname @HOST@
for module in $(cat /modules); do insmod $module; done
exec > /dev/ttyS0 2>&1
last=0
echo @@0 0
while :; do
    dd if=/dev/vdb of=/tmp/command bs=64k count=1 iflag=direct 2> /dev/null
    read number < /tmp/command
    if [ "$number" -eq "$last" ]; then usleep 50000; continue; fi
    last=$number
    tail -n +2 /tmp/command | tr -d '\\000' > /tmp/script
    sh /tmp/script < /dev/null
    status=$?
    echo; echo @@$number $status
done
"""
COMMAND_SIZE = 1 << 16
# Without the last the kernel panics at boot if its timer does not tick in time: it does not while this machine is busy.
ARGUMENTS = "console=ttyS1 panic=-1 no_timer_check"
LVM = ("pvcreate", "vgcreate", "vgcfgbackup", "vgcfgrestore", "vgchange", "vgck", "vgs", "lvs", "pvs")
LVM_CONF = b"""devices { use_devicesfile=0 obtain_device_list_from_udev=0 }
activation { udev_sync=0 udev_rules=0 monitoring=0 }
"""


@functools.lru_cache(maxsize=None)
def kernel():
    """A kernel of Debian's, and the folder of its modules: tools/fetch-kernel says where they are."""
    done = subprocess.run([TOOLS / "fetch-kernel", os.environ["FAIRWAY_BUILD"]], capture_output=True, text=True,
                          check=True)
    return [pathlib.Path(line) for line in done.stdout.splitlines()]


def module_files(folder):
    """The files of MODULES, each after those that it needs. They say so themselves: a package that is only
    unpacked has no list."""
    files = {file.stem.replace("-", "_"): file for file in folder.rglob("*.ko")}
    found = []

    def add(name):
        if name not in files or files[name] in found:  # It may be built in.
            return
        needs = re.search(rb"\0depends=([^\0]*)\0", files[name].read_bytes())
        for other in needs[1].decode().replace("-", "_").split(","):
            add(other)
        found.append(files[name])

    for name in MODULES:
        add(name)
    return found


class Archive:
    """A file system in memory, as the kernel wants it: cpio's format `newc`."""

    def __init__(self):
        self.chunks, self.names = [], set()

    def add(self, name, mode, data=b"", device=(0, 0)):
        folder = os.path.dirname(name)
        if folder and folder not in self.names:
            self.add(folder, stat.S_IFDIR | 0o755)
        if name in self.names:
            return
        self.names.add(name)
        fields = (len(self.names), mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        self.chunks += [head, bytes(-len(head) % 4), data, bytes(-len(data) % 4)]

    def copy(self, path, name=None):
        self.add(name or str(path).lstrip("/"), stat.S_IFREG | 0o755, pathlib.Path(path).read_bytes())

    def program(self, path, name=None):
        """With the libraries that it needs."""
        self.copy(path, name)
        told = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+) \(0x", told):
            self.copy(library)

    def bytes(self):
        self.add("TRAILER!!!", 0)
        return b"".join(self.chunks)


def image(fairway, plugin, host):
    archive = Archive()
    for folder in ("proc", "sys", "dev", "run/lvm", "run/lock/lvm", "tmp", "mnt", "etc/lvm/archive", "etc/lvm/backup"):
        archive.add(folder, stat.S_IFDIR | 0o755)
    archive.copy(shutil.which("busybox"), "bin/busybox")
    for name in ("nbdkit", "dmsetup", "mke2fs", "e2fsck"):
        archive.program(shutil.which(name, path=PATH), f"usr/sbin/{name}")
    archive.program(fairway, "usr/sbin/fairway")
    archive.program(plugin, "plugin.so")
    archive.program(shutil.which("lvm", path=PATH), "usr/sbin/lvm")
    for name in LVM:
        archive.add(f"usr/sbin/{name}", stat.S_IFLNK | 0o777, b"lvm")
    archive.add("etc/lvm/lvm.conf", stat.S_IFREG | 0o644, LVM_CONF)
    modules = module_files(kernel()[1])
    for file in modules:
        archive.copy(file, f"lib/modules/{file.name}")
    archive.add("modules", stat.S_IFREG | 0o644,
                "".join(f"/lib/modules/{file.name}\n" for file in modules).encode())
    archive.add("init", stat.S_IFREG | 0o755, INIT.replace("@HOST@", host).encode())
    return gzip.compress(archive.bytes(), 1)


class Machine:
    """One that runs, and does what it is told."""

    def __init__(self, folder, host, initial, disk):
        self.host, self.count = host, 0
        self.log, self.commands = folder / f"{host}.log", folder / f"{host}.commands"
        self.tell("")
        self.count = 0
        memory = folder / f"{host}.cpio.gz"
        memory.write_bytes(initial)
        drives = []
        for number, file in enumerate((disk, self.commands)):
            drives += ["-drive", f"file={file},if=none,id=d{number},format=raw,cache=none,file.locking=off",
                       "-device", f"virtio-blk-pci,drive=d{number},share-rw=on"]
        # pylint: disable=consider-using-with
        self.process = subprocess.Popen([
            "qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max", "-m", "384", "-smp", "1",
            "-display", "none", "-no-reboot", "-net", "none", "-monitor", "none", "-serial", "stdio", "-serial",
            f"file:{self.log}", "-kernel", kernel()[0], "-initrd", memory, "-append",
            ARGUMENTS, *drives], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def tell(self, script):
        """One write, so that the machine reads the old or the new."""
        file = os.open(self.commands, os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(file, f"{self.count}\n{script}\n".encode().ljust(COMMAND_SIZE, b"\0"), 0)
        os.close(file)

    def begin(self, command):
        self.count += 1
        self.tell(command)

    def end(self):
        """Of what was begun, or of the start: the status, and what it said."""
        said = []
        for line in self.process.stdout:
            line = line.decode(errors="replace").replace("\r", "")
            if line.startswith(f"@@{self.count} "):
                return int(line.split()[1]), "".join(said).strip()
            said.append(line)
        raise AssertionError(f"{self.host} has ended: {said} {self.last_words()}")

    def last_words(self):
        return self.log.read_text(errors="replace")[-2000:]

    def run(self, command):
        self.begin(command)
        status, said = self.end()
        assert status == 0, f"{self.host}: {command}: {status}: {said} {self.last_words()}"
        return said

    def kill(self):
        self.process.kill()
        self.process.communicate()

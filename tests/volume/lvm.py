# SPDX-License-Identifier: Apache-2.0
"""A volume group of LVM on a loop device, and a group of volumes in it."""

import contextlib
import json
import os
import subprocess

from group import Group

EXTENT = 64 << 10
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
QUIET = {"PATH": PATH, "LC_ALL": "C", "LVM_SUPPRESS_FD_WARNINGS": "1"}


def has_driver():
    try:
        with open("/dev/mapper/control", "rb"):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def loop_device(image):
    done = subprocess.run(["losetup", "--find", "--show", image], check=True, capture_output=True,
                          text=True, env=QUIET)
    try:
        yield done.stdout.strip()
    finally:
        subprocess.run(["losetup", "--detach", done.stdout.strip()], check=True, env=QUIET)


class VolumeGroup(Group):
    """A volume group on a loop device, and our group in it."""

    def __init__(self, fairway, device):
        super().__init__(fairway, device)
        self.name = f"fairwaytest{os.getpid()}"

    def lvm(self, command, *arguments, check=True):
        done = subprocess.run([command, "--driverloaded", "y" if has_driver() else "n",
                               *map(str, arguments)],
                              capture_output=True, timeout=120, check=False, env=QUIET)
        assert done.returncode == 0 or not check, (command, arguments, done.stderr)
        return done.stdout.decode()

    def report(self, command, fields, *arguments):
        told = json.loads(self.lvm(command, "--reportformat", "json", "--units", "b", "--nosuffix",
                                   "-o", fields, *arguments, self.name))
        return next(iter(told["report"][0].values()))

    def make(self):
        self.lvm("pvcreate", "-qq", self.path)
        self.lvm("vgcreate", "-qq", "-s", f"{EXTENT}b", self.name, self.path)
        self.create("admin", 5)

    def create(self, name, extents):
        return self.lvm("lvcreate", "-qq", "-an", "-Zn", "-Wn", "-l", extents, "-n", name, self.name)

    def adopt(self, backup):
        self.do("adopt", "--hosts", "2", "--ring-size", "64k", "--extents", "150", "--backup", backup,
                self.path)

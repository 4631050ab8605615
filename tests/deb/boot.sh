#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Becomes the first process of the Debian in the folder $1: its systemd. Called in namespaces of its own, so that
# all it mounts is gone with it.
set -e
root=$1
mount --make-rprivate /
mount --bind "$root" "$root"
mount --bind "$2" "$root/var/cache/apt/archives"
cd "$root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for folder in run tmp dev; do
    mount -t tmpfs tmpfs $folder
done
for device in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 "dev/${device%:*}" c 1 "${device#*:}"
done
mknod -m 666 dev/tty c 5 0
mkdir dev/shm dev/pts dev/mqueue
mount -t tmpfs tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ip link set lo up
pivot_root . mnt
umount -l /mnt
exec env -i container=fairway-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system systemd.unit=multi-user.target

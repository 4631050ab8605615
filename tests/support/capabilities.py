# SPDX-License-Identifier: Apache-2.0
"""What a machine may lack, and how tests find out.

A test that needs one of these says so and is skipped where it is missing:

    @pytest.mark.needs("loop-devices")
    def test_ring_on_a_loop_device(): ...

This is the only way to skip: a reason that names none of these capabilities fails the run, and so
does, in CI, a skip for something that tools/capabilities finds on the machine. That program probes
by other means on purpose, so that a mistake here does not switch tests off unnoticed.

A probe returns None if the capability is there, else why not, in words for a person. It tries the
thing itself where that is cheap, and leaves nothing behind.
"""

import ctypes
import fcntl
import functools
import json
import os
import pathlib
import resource
import shutil
import socket
import subprocess
import tempfile
import urllib.request

FALLOC_FL_KEEP_SIZE = 1
FALLOC_FL_PUNCH_HOLE = 2
CLONE_NEWNS = 0x20000
CLONE_NEWCGROUP = 0x2000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
MS_REC_PRIVATE = 0x44000
LOOP_CTL_GET_FREE = 0x4C82
SYS_IO_URING_SETUP = 425  # The same on every architecture.
SYS_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}


def _in_child(action):
    """Runs action() in a child of its own; its return value must be an errno, 0 for success."""
    child = os.fork()
    if child == 0:
        os._exit(action() & 0xFF)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _libc():
    return ctypes.CDLL(None, use_errno=True)


def _program(name):
    return lambda: None if shutil.which(name) else f"{name} is not installed"


def root():
    return None if os.geteuid() == 0 else "not run by root"


def unprivileged():
    return None if os.geteuid() != 0 else "run by root, whom no permission stops"


def user_namespaces():
    libc = _libc()

    def enter():
        return 0 if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 else ctypes.get_errno()

    error = _in_child(enter)
    return None if error == 0 else f"unshare: {os.strerror(error)}"


def corosync():
    administrators = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    if not shutil.which("corosync", path=administrators):
        return "corosync is not installed"
    if not shutil.which("ip", path=administrators):
        return "iproute2 is not installed"
    program = pathlib.Path(os.environ.get("FAIRWAY_BUILD", "build"), "tests", "epoch_node")
    return None if program.exists() else "Fairway was built without Corosync's libraries"


def _service(name):
    """A program of administrators."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return lambda: None if shutil.which(name, path=path) else f"{name} is not installed"


def loop_devices():
    try:
        control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return f"/dev/loop-control: {error.strerror}"
    try:
        number = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
        os.close(os.open(f"/dev/loop{number}", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"no free loop device: {error.strerror}"
    finally:
        os.close(control)
    return None


def fibres():
    info = pathlib.Path(os.environ.get("FAIRWAY_BUILD", "build"), "meson-info")
    options = json.loads((info / "intro-buildoptions.json").read_text())
    sanitizers = [option["value"] for option in options if option["name"] == "b_sanitize"]
    return "TSan does not know their stacks" if "thread" in sanitizers else None


def nbdkit():
    """The plugin is not built for a sanitizer, whose runtime nbdkit does not have."""
    plugin = pathlib.Path(os.environ.get("FAIRWAY_BUILD", "build"), "src/volume/nbdkit-fairway-plugin.so")
    if not plugin.exists():
        return "this build has no plugin for it"
    missing = [name for name in ("nbdkit", "nbdinfo", "nbdcopy", "qemu-io") if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def debian_root():
    """Whether a Debian can be made, booted in namespaces, and filled with packages of ours."""
    if os.geteuid() != 0:
        return "not run by root"
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [name for name in ("debootstrap", "dh", "lintian", "unshare", "ip") if shutil.which(name, path=path) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    libc = _libc()

    def mount():
        done = (libc.unshare(CLONE_NEWNS | CLONE_NEWCGROUP) == 0 and
                libc.mount(None, b"/", None, MS_REC_PRIVATE, None) == 0 and
                libc.mount(b"cgroup2", tempfile.gettempdir().encode(), b"cgroup2", 0, None) == 0)
        return 0 if done else ctypes.get_errno()

    error = _in_child(mount)
    if error != 0:
        return f"mount cgroup2: {os.strerror(error)}"
    if pathlib.Path(os.environ.get("FAIRWAY_BUILD", "build"), "debian", "root.tar").exists():
        return None
    mirror = os.environ.get("FAIRWAY_MIRROR", "http://deb.debian.org/debian")
    try:
        urllib.request.urlopen(f"{mirror}/dists/bookworm/Release", timeout=60).close()
    except OSError as why:
        return f"{mirror}: {why}"
    return None


def descriptors():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    enough = hard == resource.RLIM_INFINITY or hard >= 4096
    return None if enough else f"the hard limit of open files is {hard}, below 4096"


def lvm():
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    return None if shutil.which("vgcreate", path=path) else "lvm2 is not installed"


def file_holes():
    mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
    with tempfile.TemporaryFile() as file:
        file.write(bytes(65536))
        file.flush()
        libc = _libc()
        libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong]
        if libc.fallocate(file.fileno(), mode, 0, 65536) != 0:
            return f"fallocate: {os.strerror(ctypes.get_errno())}"
    return None


def mounts():
    libc = _libc()

    def mount():
        done = (libc.unshare(CLONE_NEWNS) == 0 and
                libc.mount(None, b"/", None, MS_REC_PRIVATE, None) == 0 and
                libc.mount(b"tmpfs", tempfile.gettempdir().encode(), b"tmpfs", 0, None) == 0)
        return 0 if done else ctypes.get_errno()

    error = _in_child(mount)
    return None if error == 0 else f"mount: {os.strerror(error)}"


def ipv6():
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        return f"cannot bind [::1]: {error.strerror}"
    return None


def fuse():
    if shutil.which("nbdfuse") is None:
        return "nbdfuse is not installed"
    return None if os.access("/dev/fuse", os.R_OK | os.W_OK) else "/dev/fuse cannot be opened"


def io_uring():
    libc = _libc()
    params = ctypes.create_string_buffer(256)  # struct io_uring_params is 120 bytes.
    ring = libc.syscall(SYS_IO_URING_SETUP, 1, params)
    if ring < 0:
        return f"io_uring_setup: {os.strerror(ctypes.get_errno())}"
    os.close(ring)
    return None


def memory_policy():
    number = SYS_SET_MEMPOLICY.get(os.uname().machine)
    if number is None or not os.path.exists("/proc/self/numa_maps"):
        return "the kernel knows no NUMA nodes"
    if _libc().syscall(number, 0, None, 0) != 0:  # The default policy, which we have anyway.
        return f"set_mempolicy: {os.strerror(ctypes.get_errno())}"
    return None


def npm_registry():
    """Asks once for something small: npm by itself would try for minutes."""
    if shutil.which("npm") is None:
        return "npm is not installed"
    command = ["npm", "view", "memjs", "version", "--fetch-retries=0", "--fetch-timeout=20000"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if "error" in line.lower() or "ERR!" in line]
    return None if done.returncode == 0 else f"npm cannot use its registry: {(lines or ['no reason given'])[0]}"


def sanlock():
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    if shutil.which("sanlock", path=path) is None:
        return "sanlock is not installed"
    info = pathlib.Path(os.environ.get("FAIRWAY_BUILD", "build"), "meson-info")
    found = json.loads((info / "intro-dependencies.json").read_text())
    return None if any(one["name"] == "libsanlock" for one in found) else "this build knows no sanlock"


def virtual_machine():
    """What tests/volume/machine.py starts: Debian's kernel under qemu, which need not have KVM for it. The
    kernel is fetched here, into the build, if the machine has none."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    programs = ("qemu-system-x86_64", "busybox", "dmsetup", "mke2fs", "e2fsck")
    missing = [name for name in programs if shutil.which(name, path=path) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if os.uname().machine != "x86_64":
        return f"{os.uname().machine} is not emulated"
    tool = pathlib.Path(__file__).resolve().parents[2] / "tools" / "fetch-kernel"
    done = subprocess.run([tool, os.environ.get("FAIRWAY_BUILD", "build")], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"a kernel: {done.stderr.strip()}"


def writable_root_folder():
    return None if os.access("/", os.W_OK) else "the root folder is not writable"


def two_cpus():
    return None if len(os.sched_getaffinity(0)) >= 2 else "only one processor to run on"


def afl():
    compilers = ("afl-clang-fast", "afl-gcc-fast")
    if not shutil.which("afl-fuzz") or not any(map(shutil.which, compilers)):
        return "AFL++ is not installed"
    return None


def libfuzzer():
    """clang knows the option without having the library, so a program is linked."""
    program = b"int LLVMFuzzerTestOneInput(const char *d, unsigned long s)\n{ return !d && s; }\n"
    command = ["clang", "-fsanitize=fuzzer", "-x", "c", "-", "-o", os.devnull]
    try:
        done = subprocess.run(command, input=program, capture_output=True, check=False)
    except FileNotFoundError:
        return "clang is not installed"
    return None if done.returncode == 0 else "clang cannot link libFuzzer"


PROBES = {
    "afl": afl,
    "chromium": _program("chromium"),
    "clang-format": _program("clang-format"),
    "corosync": corosync,
    "debian-root": debian_root,
    "descriptors": descriptors,
    "fibres": fibres,
    "file-holes": file_holes,
    "fuse": fuse,
    "io-uring": io_uring,
    "ipv6": ipv6,
    "keepalived": _service("keepalived"),
    "libfuzzer": libfuzzer,
    "loop-devices": loop_devices,
    "lvm": lvm,
    "memcached": _program("memcached"),
    "memory-policy": memory_policy,
    "mounts": mounts,
    "nbdkit": nbdkit,
    "npm-registry": npm_registry,
    "promtool": _program("promtool"),
    "root": root,
    "sanlock": sanlock,
    "spin": _program("spin"),
    "systemd-analyze": _program("systemd-analyze"),
    "two-cpus": two_cpus,
    "unprivileged": unprivileged,
    "user-namespaces": user_namespaces,
    "virtual-machine": virtual_machine,
    "writable-root-folder": writable_root_folder,
    "yrmcds": _service("yrmcdsd"),
}


@functools.lru_cache(maxsize=None)
def why_missing(capability):
    """None, or why this machine lacks the capability."""
    return PROBES[capability]()

# SPDX-License-Identifier: Apache-2.0
"""A Debian of its own: `with Machine(folder) as machine:` boots its systemd in namespaces, without a network.

Files are in a root that tools/bare-root made once; each machine starts from a fresh copy. What apt needs is fetched
beforehand, by `fetch`, into a folder that all machines share.
"""

import pathlib
import shutil
import subprocess
import time

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
START_S = 120
PATH = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
APT = ["apt-get", "-y", "-q", "--no-install-recommends", "-o", "APT::Sandbox::User=root",
       "-o", "DPkg::Options::=--force-confdef", "-o", "DPkg::Options::=--force-confold"]


def call(*command, **more):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, **more)
    assert done.returncode == 0, f"{command}: {done.stdout}"
    return done.stdout


class Machine:
    def __init__(self, folder):
        self.folder = folder
        self.root = folder / "root"
        self.archives = folder / "archives"

    def __enter__(self):
        self.archives.mkdir(exist_ok=True)
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        call(TOOLS / "bare-root", self.folder / "root.tar", "systemd", "procps")
        call("tar", "-C", self.root, "-xf", self.folder / "root.tar")
        self.process = None
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self.process.kill()  # And with it, all that runs there.
            self.process.wait()
        shutil.rmtree(self.root)

    def put(self, *packages):
        """Copies packages into the root. Returns their names there."""
        for package in packages:
            shutil.copy(package, self.root / "srv")
        return [f"/srv/{package.name}" for package in packages]

    def fetch(self, *packages):
        """Fetches what is needed to install them, with the network of this machine, unless it is there."""
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        script = 'mount --bind "$1" "$2/var/cache/apt/archives"; shift; exec chroot "$@"'
        call("unshare", "--mount", "sh", "-ec", script, "fetch", self.archives, self.root, *APT, "--download-only",
             "install", *packages, env=PATH)

    def boot(self):
        """Its first process is its systemd."""
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--fork", "--kill-child",
             "sh", "-c", 'ip link set lo up && exec "$@"', "boot", TOOLS / "enter-root", self.root, self.archives,
             "env", "-i", "container=fairway-test", f"PATH={PATH['PATH']}",
             "/lib/systemd/systemd", "--system", "systemd.unit=multi-user.target"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.first = None
        self.wait(self.is_up)

    def is_up(self):
        assert self.process.poll() is None, "its systemd has ended"
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        if not children or pathlib.Path(f"/proc/{children[0]}/comm").read_text() != "systemd\n":
            return False
        self.first = children[0]
        return self.ask("systemctl", "is-system-running").stdout.strip() in ("running", "degraded")

    @staticmethod
    def wait(condition):
        deadline = time.monotonic() + START_S
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def ask(self, *command, **more):
        """Runs a command in it, however that ends."""
        return subprocess.run(["nsenter", "-t", self.first, "-a", "--", *command], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, env=PATH, **more)

    def run(self, *command, **more):
        done = self.ask(*command, **more)
        assert done.returncode == 0, f"{command}: {done.stdout}"
        return done.stdout

    def talk(self, port, text):
        """What is answered at a port of it, until the end; with plain ends of lines."""
        return self.run("bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}; cat >&3; cat <&3", input=text)

    def files(self):
        """All paths, but for what packages' tools keep for themselves."""
        found = self.run("find", "/", "-xdev", "-not", "-path", "/var/lib/dpkg/*", "-not", "-path", "/var/lib/apt/*",
                         "-not", "-path", "/var/cache/*", "-not", "-path", "/var/log/*", "-not", "-path", "/srv/*")
        return set(found.splitlines())

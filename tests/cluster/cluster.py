# SPDX-License-Identifier: Apache-2.0
"""A cluster on one machine: nodes as network namespaces on a switch, each with a Corosync of its own.

    with Cluster(tmp_path, 3) as cluster:
        for node in cluster.nodes:
            node.corosync_start()
        server = cluster.nodes[0].start(["fairway", "serve", ...])   # A subprocess.Popen.
        cluster.nodes[0].cut()       # From now on nobody hears it, and it hears nobody.
        cluster.nodes[0].heal()
        cluster.nodes[0].corosync_kill()

It needs no privileges, but it must run inside namespaces of its own, where this process is root and all
that it starts ends with it. inside() says whether it does; command() is how to get there:

    subprocess.run(cluster.command([sys.executable, "script.py"]))

entering.py does that for the tests of a folder. In there, and in there only, prepare() is called once.

Each node has its own network, /run and /dev/shm, and shares the rest, processes too: a pid names the same
process everywhere. A node is in the net 10.99.0.0/24; node I has 10.99.0.I and Corosync's node number I.
Nothing is left behind: namespaces, mounts and processes are gone when the first process in there ends.
"""

import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

INSIDE = "FAIRWAY_CLUSTER_INSIDE"
NET = "10.99.0"
DEADLINE_S = 120  # Far longer than anything takes here, on any machine.

# One key per line, as Corosync reads it.
COROSYNC_CONF = """\
totem {{
    version: 2
    cluster_name: test
    transport: udpu
    token: {token_ms}
    token_coefficient: 0
    consensus: {consensus_ms}
}}
nodelist {{
{nodes}}}
quorum {{
    provider: corosync_votequorum
}}
system {{
    sched_rr: no
    move_to_root_cgroup: no
    state_dir: {folder}/state
}}
logging {{
    to_stderr: no
    to_syslog: no
    to_logfile: yes
    logfile: {folder}/corosync.log
    timestamp: hires
}}
"""
COROSYNC_NODE = """\
    node {{
        nodeid: {number}
        name: n{number}
        ring0_addr: {address}
    }}
"""


def path():
    """Where programs are looked for: those of administrators too."""
    return os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"


def command(arguments):
    """The command line that runs another one inside namespaces of its own. The first process in there is a shell,
    which buries orphans: who waits for the end of one would wait for ever."""
    return ["unshare", "--user", "--map-root-user", "--net", "--mount", "--propagation", "private", "--pid",
            "--fork", "--mount-proc", "--kill-child", "--", "env", f"{INSIDE}=yes", f"PATH={path()}",
            "bash", "-c", '"$@"; exit $?', "bash", *map(str, arguments)]


def inside():
    return os.environ.get(INSIDE) == "yes"


def prepare():
    """What every cluster needs, once, inside."""
    assert inside()
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    run("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
    os.mkdir("/run/netns")
    run("ip", "link", "set", "lo", "up")


def run(*arguments):
    """Runs a program to its end; what it had to say is shown if it fails."""
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, arguments))}: {done.stdout}"
    return done.stdout


def wait_for(condition, what, deadline_s=DEADLINE_S):
    """Until it is true, and returns what it was; one that never is fails, saying what was waited for."""
    deadline = time.monotonic() + deadline_s
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.01)


def state_of(pid):
    """The letter of /proc for what a process does: T for stopped."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


def freeze(process):
    """Stops a process and waits until that has taken effect."""
    process.send_signal(signal.SIGSTOP)
    wait_for(lambda: state_of(process.pid) == "T", f"process {process.pid} to stop")


def thaw(process):
    process.send_signal(signal.SIGCONT)


class Node:
    def __init__(self, cluster, number):
        self.cluster = cluster
        self.number = number
        self.name = f"n{number}"
        self.address = f"{NET}.{number}"
        self.space = f"{cluster.name}-{self.name}"  # Its network namespace, and its port of the switch.
        self.folder = cluster.folder / self.name
        self.shm = pathlib.Path("/dev/shm", self.space)
        self.corosync = None
        self.is_cut = False
        for folder in (self.folder, self.folder / "run", self.folder / "state", self.shm):
            folder.mkdir()
        run("ip", "netns", "add", self.space)
        run("ip", "link", "add", "eth0", "netns", self.space, "type", "veth",
            "peer", "name", self.space, "netns", cluster.switch)
        run("ip", "-n", cluster.switch, "link", "set", self.space, "master", "br0", "up")
        run("ip", "-n", self.space, "address", "add", f"{self.address}/24", "dev", "eth0")
        run("ip", "-n", self.space, "link", "set", "lo", "up")
        run("ip", "-n", self.space, "link", "set", "eth0", "up")

    def start(self, arguments, stdin=subprocess.DEVNULL, **options):
        """Starts a program on the node; the process is the program itself, not a shell around it."""
        script = f'mount --bind {self.folder}/run /run && mount --bind {self.shm} /dev/shm && exec "$@"'
        return subprocess.Popen(["ip", "netns", "exec", self.space, "sh", "-c", script, "sh",
                                 *map(str, arguments)], stdin=stdin, **options)

    def run(self, *arguments):
        """Runs a program on the node to its end and returns what it printed."""
        process = self.start(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        output, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, f"{' '.join(map(str, arguments))}: {output}"
        return output

    # ---- its cable ---------------------------------------------------------------------------

    def cut(self):
        """Nobody hears it any more, and it hears nobody, but its interface stays up."""
        run("ip", "-n", self.cluster.switch, "link", "set", self.space, "nomaster")
        self.is_cut = True

    def heal(self):
        run("ip", "-n", self.cluster.switch, "link", "set", self.space, "master", "br0")
        self.is_cut = False

    def unplug(self):
        """The same, but it notices: the interface has no carrier."""
        run("ip", "-n", self.cluster.switch, "link", "set", self.space, "down")

    def plug(self):
        run("ip", "-n", self.cluster.switch, "link", "set", self.space, "up")

    def drop_address(self, address):
        """Takes an address away that a killed program has left."""
        subprocess.run(["ip", "-n", self.space, "address", "delete", f"{address}/32", "dev", "eth0"],
                       stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

    # ---- its Corosync ------------------------------------------------------------------------

    def corosync_start(self):
        """Starts it, and does not wait for anything."""
        assert self.corosync is None
        (self.folder / "corosync.conf").write_text(COROSYNC_CONF.format(
            token_ms=self.cluster.token_ms, consensus_ms=self.cluster.consensus_ms, folder=self.folder,
            nodes="".join(COROSYNC_NODE.format(number=number, address=f"{NET}.{number}")
                          for number in range(1, self.cluster.count + 1))), encoding="ascii")
        with open(self.folder / "corosync.out", "ab") as output:
            self.corosync = self.start(["corosync", "-f", "-c", self.folder / "corosync.conf"],
                                       stdout=output, stderr=output)

    def corosync_kill(self, signal_number=signal.SIGKILL):
        """Ends it, and removes what a killed one leaves behind."""
        self.corosync.send_signal(signal_number)
        self.corosync.wait(timeout=DEADLINE_S)
        for file in self.shm.glob(f"qb-{self.corosync.pid}-*"):
            shutil.rmtree(file, ignore_errors=True)
        self.corosync = None

    def ring(self):
        """The numbers of the nodes that its Corosync hears, itself included; empty while it is not there."""
        process = self.start(["corosync-cmapctl", "-b", "runtime.members"], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True)
        output, _ = process.communicate(timeout=DEADLINE_S)
        return {int(number) for number in
                re.findall(r"^runtime\.members\.(\d+)\.status .*= joined$", output, re.MULTILINE)}


class Cluster:
    serial = itertools.count(1)

    def __init__(self, folder, count, token_ms=300, consensus_ms=360):
        assert inside(), "only inside namespaces: see the top of cluster.py"
        self.folder = pathlib.Path(folder)
        self.count = count
        self.token_ms = token_ms
        self.consensus_ms = consensus_ms
        self.name = f"c{next(self.serial)}"  # There may be several.
        self.switch = f"{self.name}-switch"
        self.nodes = []

    def __enter__(self):
        run("ip", "netns", "add", self.switch)
        run("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge", "forward_delay", "0",
            "stp_state", "0", "mcast_snooping", "0")
        run("ip", "-n", self.switch, "link", "set", "br0", "up")
        self.nodes = [Node(self, number) for number in range(1, self.count + 1)]
        return self

    def __exit__(self, kind, value, traceback):
        """Ends the Corosyncs; what else was started is its starter's to end."""
        for node in self.nodes:
            if node.corosync is not None:
                thaw(node.corosync)
                node.corosync_kill()
            if kind is not None:
                self.show(node)
            run("ip", "netns", "delete", node.space)
            shutil.rmtree(node.shm, ignore_errors=True)
        run("ip", "netns", "delete", self.switch)

    @staticmethod
    def show(node):
        """For who looks for a fault: what its Corosync had to say last."""
        for name in ("corosync.out", "corosync.log"):
            file = node.folder / name
            if file.exists():
                text = file.read_text(encoding="utf-8", errors="replace")
                print(f"--- {node.name}: {name}\n" + "\n".join(text.splitlines()[-40:]))

    def settle(self, *numbers):
        """Waits until the Corosyncs of these nodes, of all if none are named, hear exactly each other."""
        wanted = set(numbers or range(1, self.count + 1))
        for number in sorted(wanted):
            node = self.nodes[number - 1]
            wait_for(lambda node=node: node.ring() == wanted, f"{node.name} to hear {wanted}")

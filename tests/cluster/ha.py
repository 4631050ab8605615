# SPDX-License-Identifier: Apache-2.0
"""Three hosts with the shipped samples of packaging/ha: Corosync, keepalived, a server and its agent on each; and
clients that write keys of their own to the virtual address and log what was acknowledged.

    with Ha(program, source, cluster, ack=0) as ha:
        ha.start()                       # Returns when one serves and the others could succeed it.
        ha.client(ha.outside)            # A process on that node; writes until it is ended.
        ha.hosts[0].kill()               # Everything on it, at once.
        ha.wait_until_served()
        lost, told, stale = ha.audit()   # Acknowledged keys that nobody can read any more, of how many.

The hosts are nodes 1 to 3 of the cluster; the fourth, `outside`, is one that has only clients."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

from cluster import DEADLINE_S, NET, Node, freeze, thaw, wait_for

ADDRESS = f"{NET}.100"
PORT = 11211
CLIENT = pathlib.Path(__file__).resolve().parent / "ha_client.py"


def sample(source, name, **changes):
    """A shipped file with other words in it; each of them has to be there."""
    text = (source / "packaging/ha" / name).read_text(encoding="ascii")
    for old, new in changes.values():
        assert re.search(old, text), f"{name}: {old}"
        text = re.sub(old, str(new), text)
    return text


# A client in a few lines: ADDRESS PORT LAST PATIENCE, and the question at its input.
ASK = """\
import socket, sys
client = socket.create_connection((sys.argv[1], sys.argv[2]), float(sys.argv[4]))
client.sendall(sys.stdin.buffer.read())
answer, last = b"", sys.argv[3].encode()
while not answer.endswith(last):
    piece = client.recv(65536)
    if not piece:
        sys.exit(1)
    answer += piece
sys.stdout.buffer.write(answer)
"""


def ask(node, question, last, address=ADDRESS, patience_s=DEADLINE_S):
    """What is answered to the question, asked from a node, until the last words. None: nobody answers, which a host
    that is cut off does not say: who asks such a one, to try again, has little patience."""
    process = node.start([sys.executable, "-c", ASK, address, PORT, last.decode(), patience_s],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    output, _ = process.communicate(question)
    return output if process.returncode == 0 else None


class Host:
    def __init__(self, ha, node):
        self.ha = ha
        self.node = node
        self.folder = node.folder / "run" / "fairway"  # It is /run/fairway, on the node.
        self.folder.mkdir()
        (node.folder / "run" / "fairway-ha").mkdir()
        self.processes = {}

    # ---- its processes ------------------------------------------------------------------------

    def _start(self, name, arguments):
        assert name not in self.processes
        with open(self.node.folder / f"{name}.log", "ab") as output:
            self.processes[name] = self.node.start(arguments, stdout=output, stderr=output)

    def start_corosync(self):
        self.node.corosync_start()

    def start_server(self, *arguments):
        config = self.node.folder / "fairway.conf"
        config.write_text(sample(self.ha.source, "fairway.conf", net=(r"10\.0\.0\.", f"{NET}."),
                                 memory=("= 1g", "= 64m"), ack=("#ack = 1", f"ack = {self.ha.ack}")), encoding="ascii")
        self._start("server", [self.ha.program, "serve", "--config", config, "-t", "1", *arguments])

    def start_agent(self, *arguments):
        self._start("agent", [self.ha.program, "ha-agent", "--acknowledged", self.ha.ack, *arguments])

    def start_keepalived(self):
        config = self.node.folder / "keepalived.conf"
        config.write_text(sample(self.ha.source, "keepalived.conf", net=(r"10\.0\.0\.", f"{NET}."),
                                 priority=("priority 200", f"priority {250 - 50 * self.node.number}")), encoding="ascii")
        self._start("keepalived", ["keepalived", "-n", "-l", "-D", "-P", "-R", "-f", config, "-p",
                                   "/run/keepalived.pid", "-r", "/run/keepalived_vrrp.pid"])

    def start(self):
        self.start_corosync()
        self.start_server()
        self.start_agent()
        self.start_keepalived()

    def all(self):
        """Every process of the host."""
        corosync = [self.node.corosync] if self.node.corosync is not None else []
        return [*self.processes.values(), *self._children(), *corosync]

    def _children(self):
        """keepalived's child is the one who speaks."""
        parent = self.processes.get("keepalived")
        if parent is None:
            return []
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent.pid)], stdout=subprocess.PIPE, text=True,
                               check=False).stdout.split()
        return [Child(int(pid)) for pid in found]

    def stop(self, name, signal_number=signal.SIGKILL):
        """Ends one of them and waits for that."""
        for child in self._children() if name == "keepalived" else []:
            child.send_signal(signal_number)
        process = self.processes.pop(name)
        process.send_signal(signal_number)
        process.wait(timeout=DEADLINE_S)

    def kill(self):
        """As if its power failed: nothing of it runs, and its kernel answers nobody."""
        self.node.cut()
        for process in self.all():
            process.send_signal(signal.SIGKILL)
        self.node.corosync_kill()
        for name in list(self.processes):
            self.stop(name)
        for file in (self.node.folder / "run").glob("keepalived*.pid"):
            file.unlink()

    def revive(self):
        """Comes back as a machine that was started."""
        self.node.drop_address(ADDRESS)
        self.node.heal()
        self.start()

    def freeze(self):
        for process in self.all():
            freeze(process)

    def thaw(self):
        for process in self.all():
            thaw(process)

    # ---- what it says -------------------------------------------------------------------------

    def stats(self):
        """The figures of replication, by the administration's socket; nothing while nobody answers."""
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(5)
                client.connect(str(self.folder / "admin.sock"))
                client.sendall(b"stats replication\n")
                file = client.makefile("rb")
                words = file.readline().split()
                if words[:1] != [b"OK"]:
                    return {}
                rows = file.read(int(words[1])).decode().splitlines()
                return dict(row.split(None, 1) for row in rows if len(row.split(None, 1)) == 2)
        except OSError:
            return {}

    def is_ready(self):
        """It has all that the master has, or is the one who serves."""
        rows = self.stats()
        return rows.get("link") == "streaming" and rows.get("complete") == "yes" or self.serves()

    def gate(self):
        return (self.node.folder / "run/fairway-ha/gate").read_text(encoding="ascii").strip()

    def serves(self):
        rows = self.stats()
        return rows.get("role") == "master" and int(rows.get("lease_left_ms", 0)) > 0


class Child:
    """A process that somebody else has started."""

    def __init__(self, pid):
        self.pid = pid

    def send_signal(self, number):
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass  # It has ended with its parent.


class Ha:
    def __init__(self, program, source, cluster, ack=0):
        self.program = program
        self.source = pathlib.Path(source)
        self.cluster = cluster
        self.ack = ack
        self.outside = Node(cluster, 9)
        cluster.nodes.append(self.outside)
        self.hosts = [Host(self, node) for node in cluster.nodes[:3]]
        self.clients = []

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        for client in self.clients:
            client.process.kill()
            client.process.wait()
        for host in self.hosts:
            host.thaw()
            for name in list(host.processes):
                host.stop(name)
            if kind is not None:
                for name in ("server", "agent", "keepalived"):
                    log = host.node.folder / f"{name}.log"
                    if log.exists():
                        print(f"--- {host.node.name}: {name}\n" + log.read_text(encoding="utf-8")[-3000:])

    def start(self):
        for host in self.hosts:
            host.start()
        self.wait_until_whole()

    def master(self):
        return next((host for host in self.hosts if host.serves()), None)

    def wait_until_whole(self):
        """One serves, and all have everything."""
        def found():
            master = self.master()
            is_whole = master is not None and all(host.is_ready() for host in self.hosts)
            return master if is_whole else None
        return wait_for(found, "a master and two whole copies")

    def ask(self, question, last):
        """Asks whoever has the address, from outside. None: nobody answers."""
        return ask(self.outside, question, last, patience_s=2)

    def wait_until_served(self):
        wait_for(lambda: self.ask(b"get none\r\n", b"END\r\n") is not None, "the address to answer")

    # ---- clients ------------------------------------------------------------------------------

    def client(self, node):
        self.clients.append(Client(self, node, len(self.clients)))
        return self.clients[-1]

    def audit(self):
        """Ends the clients; which of the keys that they were told are stored are not there, and how many there were;
        and how often one read an older value than it had been told is stored."""
        told, stale = {}, 0
        for client in self.clients:
            report = client.end()
            told.update(report["told"])
            stale += report["stale"]
        self.clients = []
        found = {}
        keys = list(told)
        for begin in range(0, len(keys), 100):
            some = keys[begin:begin + 100]
            answer = wait_for(lambda some=some: self.ask(f"get {' '.join(some)}\r\n".encode(), b"END\r\n"),
                              "the address to answer")
            lines = answer.decode().splitlines()
            found.update((lines[i].split()[1], lines[i + 1]) for i in range(0, len(lines) - 1, 2))
        lost = [key for key, value in told.items() if found.get(key) != value]
        return lost, len(told), stale


class Client:
    def __init__(self, ha, node, number):
        self.file = ha.cluster.folder / f"client-{number}-{time.monotonic_ns()}.log"
        self.process = node.start([sys.executable, CLIENT, ADDRESS, PORT, f"c{number}x{time.monotonic_ns()}", self.file])

    def lines(self):
        if not self.file.exists():
            return []
        text = self.file.read_text(encoding="ascii")
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]

    def wait_for_answers(self, count=20):
        """So many more."""
        before = len(self.lines())
        wait_for(lambda: len(self.lines()) >= before + count, "a client to be answered")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=DEADLINE_S)
        lines = self.lines()
        return {"told": {line["key"]: line["value"] for line in lines if "key" in line},
                "stale": sum("stale" in line for line in lines)}

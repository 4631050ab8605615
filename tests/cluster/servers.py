# SPDX-License-Identifier: Apache-2.0
"""Servers on the nodes of a cluster that divide a tenant's rate, clients that want all of it, and what was
served by when.

    with Servers(program, cluster) as servers:
        servers.start()                  # On every node, and Corosync too.
        servers.flood(1, 2)              # From now on clients of these nodes want all they can get.
        servers.wait_for_rate()          # A second in which 95 % of the rate was served, by all together.
        assert servers.most() <= 1.05    # In any second so far.

What was served is the server's own count of cost, asked for over and over by a thread per node. When exactly
a count was taken nobody knows, only that it was between the question and the answer: what all nodes served
in a second is at most what they served between the last answers before it and the first questions after it,
and the rate is held against the longer of the two times. So a machine that is slow makes this lenient, never
wrong.
"""

import bisect
import pathlib
import selectors
import signal
import socket
import threading
import time

from cluster import DEADLINE_S, wait_for

RATE = 4000
LINE = b"get " + b" ".join(b"k%02d" % i for i in range(9)) + b"\r\n"  # Costs 10, and is answered "END".
ANSWER = b"END\r\n"
CLIENTS = 20
LOOK_S = 0.05

CONFIG = """\
[server]
policy = {policy}
[cluster]
name = servers
nodes = 3
fallback = {fallback}
timeout = 700ms
[tenant limited]
match = prefix k
cluster-rate = {rate}
"""


def ask(path, question):
    """The answer's lines; None: nobody is there."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(DEADLINE_S)
            client.connect(str(path))
            client.sendall(question)
            answer = b""
            while not answer.endswith(b"END\r\n"):
                piece = client.recv(65536)
                if not piece:
                    return None
                answer += piece
            return answer.decode().splitlines()[:-1]
    except OSError:
        return None


class Server:
    """One, with its clients and who counts."""

    def __init__(self, program, node, fallback):
        self.node = node
        self.path = pathlib.Path(node.folder, "server.sock")
        self.config = pathlib.Path(node.folder, "fairway.conf")
        self.fallback = fallback
        self.configure("share")
        self.log = pathlib.Path(node.folder, "server.log")
        with open(self.log, "ab") as log:
            self.process = node.start([program, "serve", "--config", self.config, "-t", "1",
                                       "--unix-socket", self.path], stdout=log, stderr=log)
        self.is_over = threading.Event()
        self.wants = threading.Event()
        self.asked, self.answered, self.costs = [time.monotonic()], [time.monotonic()], [0]
        self.threads = [threading.Thread(target=self._count), threading.Thread(target=self._flood)]
        for thread in self.threads:
            thread.start()

    def configure(self, policy):
        self.config.write_text(CONFIG.format(policy=policy, fallback=self.fallback, rate=RATE), encoding="ascii")

    def stats(self, group):
        lines = ask(self.path, f"stats {group}\r\n".encode())
        return None if lines is None else dict(line.split(" ", 2)[1:] for line in lines)

    def _count(self):
        while not self.is_over.wait(LOOK_S):
            asked = time.monotonic()
            found = self.stats("tenants")
            if found is not None:
                self.answered.append(time.monotonic())
                self.asked.append(asked)
                self.costs.append(int(found["limited:cost"]))

    def _flood(self):
        """Clients that ask again when they are answered, as long as it is wanted."""
        with selectors.DefaultSelector() as selector:
            while not self.is_over.is_set():
                if self.wants.is_set() and not selector.get_map():
                    self._connect(selector)
                for key, _ in selector.select(LOOK_S):
                    try:
                        is_alive = key.fileobj.recv(4096) == ANSWER
                        if is_alive and self.wants.is_set():
                            key.fileobj.sendall(LINE)
                            continue
                    except OSError:
                        pass
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
            for key in list(selector.get_map().values()):
                key.fileobj.close()

    def _connect(self, selector):
        for _ in range(CLIENTS):
            client = socket.socket(socket.AF_UNIX)
            try:
                client.connect(str(self.path))
                client.sendall(LINE)
                selector.register(client, selectors.EVENT_READ)
            except OSError:
                client.close()

    def end(self, signal_number=signal.SIGTERM):
        self.is_over.set()
        self.process.send_signal(signal_number)
        self.process.wait(timeout=DEADLINE_S)
        for thread in self.threads:
            thread.join()

    def before(self, when):
        """Which count was certainly taken by then; the first, if none was."""
        return max(bisect.bisect_right(self.answered, when) - 1, 0)

    def after(self, when):
        """Which count was certainly taken not before then; None: there is none yet. One that has ended serves
        nothing more, so its last one is as good."""
        found = bisect.bisect_left(self.asked, when)
        if found < len(self.costs):
            return found
        return len(self.costs) - 1 if self.is_over.is_set() else None


class Servers:
    def __init__(self, program, cluster, fallback="none"):
        self.program = program
        self.cluster = cluster
        self.fallback = fallback
        self.running = {}
        self.all = []  # Those that have ended, too: what they served counts.

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        for number, server in self.running.items():
            server.end()
            if kind is not None:
                print(f"--- node {number}\n" + server.log.read_text(encoding="utf-8")[-3000:])
        if kind is None:
            assert all(server.process.returncode == 0 for server in self.running.values())

    def start(self, *numbers):
        for number in numbers or range(1, self.cluster.count + 1):
            node = self.cluster.nodes[number - 1]
            if node.corosync is None:
                node.corosync_start()
            self.running[number] = Server(self.program, node, self.fallback)
            self.all.append(self.running[number])
        for server in self.running.values():
            wait_for(lambda server=server: server.stats("epochs"), f"{server.node.name} to listen")

    def switch(self, policy):
        """While requests wait."""
        for server in self.running.values():
            server.configure(policy)
            server.process.send_signal(signal.SIGHUP)
            wait_for(lambda server=server: server.stats("tenants")["policy"] == policy,
                     f"{server.node.name} to have the policy {policy}")

    def kill(self, number):
        self.running.pop(number).end(signal.SIGKILL)

    def flood(self, *numbers):
        """Clients of these nodes want all they can get, those of others nothing."""
        for number, server in self.running.items():
            (server.wants.set if number in numbers else server.wants.clear)()

    def wait_in_step(self, *numbers):
        for number in numbers or self.running:
            server = self.running[number]
            wait_for(lambda server=server: (server.stats("epochs") or {}).get("in_step") == "yes",
                     f"{server.node.name} to be in step")

    def served(self, begin, end):
        """What all served between two moments that are at least so far apart, as a part of what the rate allows
        in that time; None: the end is not known yet."""
        cost, first, last = 0, begin, end
        for server in self.all:
            older, newer = server.before(begin), server.after(end)
            if newer is None:
                return None
            if older < newer:
                cost += server.costs[newer] - server.costs[older]
                first, last = min(first, server.asked[older]), max(last, server.answered[newer])
        return cost / RATE / (last - first)

    def seconds(self, since=0.0, step=0.1):
        """The served part of each second since then that is known."""
        begin = max(since, min(server.asked[0] for server in self.all))
        found = []
        while (part := self.served(begin, begin + 1)) is not None:
            found.append((begin, part))
            begin += step
            if begin > time.monotonic():
                break
        return found

    def most(self):
        return max(part for _, part in self.seconds())

    def wait_for_rate(self, least=0.95):
        """Until a second that begins from now on has that part of the rate; returns how long it took."""
        since = begin = time.monotonic()
        best = 0.0

        def is_there():
            nonlocal begin, best
            while begin < time.monotonic() and (part := self.served(begin, begin + 1)) is not None:
                best = max(best, part)
                begin += LOOK_S
            return best >= least
        wait_for(is_there, f"{least * 100:.0f} % of the rate")
        return begin - since

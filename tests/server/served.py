# SPDX-License-Identifier: Apache-2.0
"""A server for one test: `with Served(program, ...) as server:` starts it, waits until it listens, and
at the end stops it by SIGTERM and demands that it went well."""

import http.client
import re
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time

from support.patience import PATIENCE_S
from support.stopped import stop

START_S = PATIENCE_S
# One tenant that is held back, and one that is not.
HELD_BACK = """
[server]
policy = tbf
[tenant web]
match = prefix web:
[tenant batch]
match = prefix batch:
rate = 500
"""


def wait_for(condition):
    """Until it is true; one that never is fails, far later than any machine is slow."""
    deadline = time.monotonic() + START_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Busy:
    """Calls `once` again and again beside the test, until the end, and then closes the clients that it uses."""

    def __init__(self, once, *clients):
        self.once, self.clients = once, clients
        self.is_over = False
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.is_over:
            self.once()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.thread.join()
        for client in self.clients:
            client.close()


def flood(server, prefix):
    """A client that writes and reads keys of one tenant as fast as it is let; every other key that it reads is there."""
    client = server.connect()
    batch = b"".join(b"set %s:%d 0 0 5\r\nhello\r\nget %s:%d\r\n" % (prefix, i, prefix, i + i % 2 * 100) for i in range(20))

    def once():
        client.send(batch + b"mn\r\n")
        while client.line() != b"MN\r\n":
            pass
    return Busy(once, client)


class Served:
    def __init__(self, program, *arguments, listen="127.0.0.1:0", descriptors=None, listeners=None):
        self.listeners = listeners  # How many, where the command line does not say it.
        self.command = [str(program), "serve", *arguments]
        if listen is not None:
            self.command += ["--listen", listen]
        self.descriptors = descriptors  # The soft and the hard limit.
        self.may_log_errors = False
        self.addresses = []

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        text=True, preexec_fn=self._limit)
        expected = self.listeners or max(1, sum(self.command.count(flag) for flag in ("--listen", "--unix-socket")))
        if "--counter-enable" in self.command:
            expected += max(1, self.command.count("--counter-listen"))
        while len(self.addresses) < expected:
            line = self.process.stderr.readline()
            if line == "":
                raise AssertionError(f"the server ended: {self.process.wait()}, {self.read_log()}")
            self.log.write(line)
            found = re.search(r"listening on (\S+)", line)
            if found:
                self.addresses.append(found[1])
        return self

    def __exit__(self, kind, value, traceback):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            _, rest = self.process.communicate(timeout=START_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        self.log.write(rest)
        self.read_log_at_end = self.read_log()
        if kind is None:
            assert self.process.returncode == 0, f"status {self.process.returncode}\n{self.read_log()}"
            assert self.may_log_errors or " error " not in self.read_log()
        self.log.close()

    def _limit(self):
        if self.descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, self.descriptors)

    def stop(self):
        """Stops every thread, until SIGCONT."""
        stop(self.process.pid)

    def read_log(self):
        self.log.seek(0)
        return self.log.read()

    def connect(self, address=None):
        return Client(address or self.addresses[0])


class Watched(Served):
    """A server with HTTP; `ask` is one request to it."""

    def __init__(self, program, *arguments, http="127.0.0.1:0", **more):
        super().__init__(program, "--http-listen", http, *arguments, **more)

    def __enter__(self):
        super().__enter__()
        found = None
        while found is None:
            line = self.process.stderr.readline()
            assert line != "", self.read_log()
            self.log.write(line)
            found = re.search(r"the page for browsers is at http://(\S+):(\d+)/", line)
        self.http = (found[1].strip("[]"), int(found[2]))
        return self

    def ask(self, path, method="GET", headers=None):
        connection = http.client.HTTPConnection(*self.http, timeout=START_S)
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        answer.text = answer.read().decode()
        connection.close()
        return answer

    def send(self, data):
        """Sends these bytes, and is gone before an answer can come."""
        with socket.create_connection(self.http, START_S) as connection:
            try:
                connection.sendall(data)
            except OSError:
                pass  # It has had enough.


class Client:
    """A connection with a file on top, so that replies are read by line or by length."""

    def __init__(self, address):
        if address.startswith("unix:"):
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.connect(address.removeprefix("unix:"))  # With a limit it fails if many wait.
            self.socket.settimeout(START_S)
        else:
            host, port = address.rsplit(":", 1)
            self.socket = socket.create_connection((host.strip("[]"), int(port)), START_S)
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.file.close()
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def line(self):
        return self.file.readline()

    def ask(self, data, lines=1):
        """Sends, and returns that many lines of the reply."""
        self.send(data)
        return b"".join(self.line() for _ in range(lines))

    def set(self, key, value):
        assert self.ask(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value)) == b"STORED\r\n"

    def get(self, key):
        """The value, or None."""
        first = self.ask(b"get %s\r\n" % key)
        if first == b"END\r\n":
            return None
        size = int(first.split()[3])
        value = self.file.read(size + 2)
        assert value.endswith(b"\r\n") and self.line() == b"END\r\n"
        return value[:-2]

    def at_end(self):
        """Whether the server has closed the connection, and nothing more came."""
        return self.file.read() == b""

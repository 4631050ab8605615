# SPDX-License-Identifier: Apache-2.0
"""A memcached-compatible server for one test, and a client that sends and compares bytes.

`with Peer(command, *flags) as peer:` starts the server on a free port of an address of the test's own,
waits until it accepts, and at the end stops it by SIGTERM and demands status 0. The flags are memcached's;
the command is `memcached` or `fairway serve`, and nothing here depends on which: that is the point.
"""

import contextlib
import ctypes
import os
import pathlib
import resource
import signal
import socket
import subprocess
import tempfile
import time

from support.patience import PATIENCE_S
from support.ports import ADDRESS, free_port

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)
LOG_MAX = 1 << 24  # Far more than a server logs in a test.


def user_flags():
    """memcached will not run as root unless told to."""
    return ["-u", "root"] if os.geteuid() == 0 else []


def wait_until(condition, what):
    """Polls, because nothing tells us: at last True, or a failure that says what did not happen."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"in {PATIENCE_S} s: not {what}"
        time.sleep(0.01)


class Peer:
    """`listen=False`: the flags say where to listen, and `address` is then None or given."""

    def __init__(self, command, *flags, listen=True, address=None, descriptors=None, user=True,
                 environment=None):
        self.base = [*command, *map(str, flags), *(user_flags() if user else [])]
        self.listen = listen
        self.address = address
        self.descriptors = descriptors
        self.environment = {**os.environ, **(environment or {})}

    def __enter__(self):
        command = list(self.base)
        if self.listen:
            self.address = (ADDRESS, free_port())
            command += ["-l", ADDRESS, "-p", str(self.address[1])]
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log,
                                        preexec_fn=self._prepare, env=self.environment)
        self._wait_until_it_accepts()
        assert self.process.poll() is None, f"{command} ended: {self.read_log()}"
        return self

    def __exit__(self, kind, value, traceback):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        if kind is None:
            assert status == 0, f"status {status}: {self.read_log()}"
        self.log.close()

    def _prepare(self):
        """In the child: it does not outlive us, however we end."""
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if self.descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.descriptors, self.descriptors))

    def _wait_until_it_accepts(self):
        """Or until it has ended."""
        def accepts():
            if self.address is None or self.process.poll() is not None:
                return True
            with contextlib.suppress(OSError), open_socket(self.address):
                return True
            return False

        wait_until(accepts, f"accepting: {self.base}")

    def read_log(self):
        """Without moving its place in the file, which the server writes at."""
        return os.pread(self.log.fileno(), LOG_MAX, 0).decode(errors="replace")

    def connect(self, address=None):
        return Client(address or self.address)

    def stat(self, name, group=""):
        with self.connect() as client:
            return client.stats(group)[name]

    def anonymous_kib(self):
        """The memory that the process wrote to and that no file backs."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0])


def open_socket(address):
    if isinstance(address, tuple):
        return socket.create_connection(address, PATIENCE_S)
    local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    local.settimeout(PATIENCE_S)
    try:
        local.connect(str(address))
    except OSError:
        local.close()
        raise
    return local


class Client:
    def __init__(self, address):
        self.address = address
        self.reopen()

    def reopen(self):
        """A new connection to the same server."""
        self.socket = open_socket(self.address)
        if isinstance(self.address, tuple):
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unread = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def _receive(self):
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionResetError:  # It closed with something of ours unread.
            return b""
        except socket.timeout:
            raise AssertionError(f"no more came after {self.unread[-200:]!r}") from None
        return data

    def read(self, size):
        """That many bytes, or fewer if the connection ends before."""
        while len(self.unread) < size and (data := self._receive()):
            self.unread += data
        data, self.unread = self.unread[:size], self.unread[size:]
        return data

    def line(self):
        """One line with its end, or what came before the connection ended."""
        while b"\n" not in self.unread and (data := self._receive()):
            self.unread += data
        line, end, self.unread = self.unread.partition(b"\n")
        return line + end

    def rest(self):
        """All until the connection ends."""
        chunks = [self.unread]
        while data := self._receive():
            chunks.append(data)
        self.unread = b""
        return b"".join(chunks)

    def ask(self, request, reply):
        """Sends, and demands exactly this reply: a wrong byte is seen before a missing one is
        waited for."""
        self.send(request)
        self.expect(reply)

    def expect(self, reply):
        got = b""
        while len(got) < len(reply):
            piece = self.read(1) if not self.unread else self.read(min(len(self.unread),
                                                                       len(reply) - len(got)))
            got += piece
            if not piece or not reply.startswith(got):
                break
        assert got == reply

    def ended(self):
        """Whether the server closed the connection, and nothing more came."""
        return self.rest() == b""

    def settled(self):
        """Whether every reply was read: the answer to a no-operation comes next."""
        self.ask(b"mn\r\n", b"MN\r\n")

    def set(self, key, value, flags=0, expiry=0):
        self.ask(b"set %s %d %d %d\r\n%s\r\n" % (key, flags, expiry, len(value), value),
                 b"STORED\r\n")

    def get(self, key):
        """The value, or None."""
        self.send(b"get %s\r\n" % key)
        first = self.line()
        if first == b"END\r\n":
            return None
        assert first.startswith(b"VALUE "), first
        size = int(first.split()[3])
        value = self.read(size + 2)
        assert value.endswith(b"\r\n")
        self.expect(b"END\r\n")
        return value[:-2]

    def stats(self, group=""):
        """A group of statistics as a dictionary of strings."""
        self.send(f"stats {group}".strip().encode() + b"\r\n")
        found = {}
        while (line := self.line()) != b"END\r\n":
            word, name, *value = line.decode().rstrip("\r\n").split(" ", 2)
            assert word == "STAT", line
            found[name] = value[0] if value else ""
        return found

# SPDX-License-Identifier: Apache-2.0
"""Servers that are measured: started on a free port of the loopback, pinned, and always ended."""

import contextlib
import ctypes
import getpass
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from .context import Unavailable

PR_SET_PDEATHSIG = 1
START_SECONDS = 60  # Far longer than a start takes on a busy machine.
START_ATTEMPTS = 3  # Someone may take the free port before the server does.
CONNECTIONS_MAX = 12000
SPARE_DESCRIPTORS = 100  # What a process needs besides its connections.
MEMORY_MIB = 1024  # More than any load needs, so that nothing is evicted.


def bare_loop(context, port):
    return [context.program("bench", "bare_loop"), "--port", str(port)]


def reactor_server(context, port):
    return [context.program("bench", "reactor_server"), "--port", str(port)]


def reactor_server_uring(context, port):
    return [*reactor_server(context, port), "--backend", "io_uring"]


def cache_options(port):
    """What fairway and memcached call by the same names."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    connections = CONNECTIONS_MAX
    if hard != resource.RLIM_INFINITY:
        connections = min(connections, hard - SPARE_DESCRIPTORS)
    return ["-l", "127.0.0.1", "-p", str(port), "-m", str(MEMORY_MIB), "-c", str(connections)]


def fairway(context, port):
    return [context.program("fairway"), "serve", "-t", "1", *cache_options(port)]


def memcached(_context, port):
    program = shutil.which("memcached")
    if program is None:
        raise Unavailable("memcached is missing: run `apt-get install memcached`")
    user = ["-u", getpass.getuser()] if os.geteuid() == 0 else []
    return [program, *user, "-t", "1", "-U", "0", *cache_options(port)]


class Server:
    """A running server."""

    def __init__(self, process, port):
        self.process = process
        self.port = port
        self.pid = process.pid


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port):
    """Whether a server on the port speaks the protocol."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=START_SECONDS) as connection:
            connection.sendall(b"get nothing\r\n")
            return connection.recv(64) == b"END\r\n"
    except OSError:
        return False


def prepare_child(cpu):
    """Runs in the child before the server: it is pinned, and ends when bench/run does, however
    that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})


def wait_until_answers(process, port):
    """False if the server ended or stays silent."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if answers(port):
            return True
        time.sleep(0.01)
    return False


@contextlib.contextmanager
def running(make_command, context):
    """A server that answers, for the time of a `with` block."""
    with tempfile.TemporaryFile("w+") as complaints:
        for attempt in range(START_ATTEMPTS):
            port = free_port()
            command = make_command(context, port)
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=complaints, stderr=complaints,
                preexec_fn=lambda: prepare_child(context.server_cpu))
            try:
                if wait_until_answers(process, port):
                    yield Server(process, port)
                    return
            finally:
                process.kill()
                process.wait()
        complaints.seek(0)
        said = complaints.read().strip().splitlines()
        raise Unavailable(f"`{' '.join(command)}` does not serve, after {attempt + 1} attempts: "
                          f"{said[-1] if said else 'it said nothing'}")

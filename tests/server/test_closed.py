# SPDX-License-Identifier: Apache-2.0
"""Goal: nobody reaches a server who was not meant to. With every feature on and no address given it listens on the loopback alone, and
the administration socket is its user's.
Method: the sockets that the kernel lists for a server in a network of its own, where it may take the ports it has by default; and
processes of other users that try to connect."""

import errno
import ipaddress
import os
import pathlib
import pwd
import socket
import struct
import subprocess

import pytest
from served import START_S, Served

# All that opens a socket, each as it is by default. HTTP has no address by default: without one it is off.
FEATURES = ["--repl-enable", "--counter-enable", "--http-listen", "127.0.0.1", "--enable-shutdown", "--enable-locking"]
LISTEN = "0A"
PORTS = {11211, 11213, 11215, 11280}


def address(text):
    """An address as /proc/net shows it: words of 32 bits in the order of the machine."""
    host, port = text.split(":")
    words = [struct.pack("=I", int(host[i:i + 8], 16)) for i in range(0, len(host), 8)]
    return ipaddress.ip_address(b"".join(words)), int(port, 16)


def sockets(process, protocol, state=None):
    """The local addresses of all sockets of a protocol in the network of a process."""
    lines = pathlib.Path(f"/proc/{process}/net/{protocol}").read_text().splitlines()[1:]
    return [address(line.split()[1]) for line in lines if state in (None, line.split()[3])]


def names(process):
    """The names of all UNIX sockets in the network of a process that have one."""
    lines = pathlib.Path(f"/proc/{process}/net/unix").read_text().splitlines()[1:]
    return {line.split()[7] for line in lines if len(line.split()) > 7}


class Alone:
    """A server in a network of its own, whose loopback is up."""

    def __init__(self, program, *arguments):
        up = "ip link set lo up; exec \"$@\""
        self.command = ["unshare", "--user", "--map-root-user", "--net", "sh", "-ec", up, "server", program, "serve", *arguments]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})
        self.said = ""
        return self

    def wait(self, words):
        while words not in self.said:
            line = self.process.stderr.readline()
            assert line != "", self.said
            self.said += line
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=START_S)


@pytest.mark.needs("user-namespaces")
def test_with_every_feature_it_listens_on_the_loopback_alone(fairway, tmp_path):
    admin = tmp_path / "admin"
    with Alone(fairway, *FEATURES, "--admin-socket", str(admin)) as server:
        server.wait("the page for browsers is at")
        pid = server.process.pid
        listening = sockets(pid, "tcp", LISTEN) + sockets(pid, "tcp6", LISTEN)
        assert {port for _, port in listening} == PORTS
        assert all(host.is_loopback for host, _ in listening), listening
        assert [sockets(pid, protocol) for protocol in ("udp", "udp6", "raw", "raw6")] == [[], [], [], []]
        assert names(pid) == {str(admin)}  # In particular no abstract name, which everybody can connect to.


@pytest.mark.needs("user-namespaces")
def test_it_listens_beyond_when_told_to(fairway):
    """So the test above would see it."""
    with Alone(fairway, "--listen", "0.0.0.0", "--http-listen", "0.0.0.0:11280", "-s", "unix:@fairway-test") as server:
        server.wait("the page for browsers is at")
        beyond = [host for host, _ in sockets(server.process.pid, "tcp", LISTEN)]
        assert beyond == [ipaddress.ip_address("0.0.0.0")] * 2
        assert names(server.process.pid) == {"@fairway-test"}


@pytest.mark.needs("root")
def test_the_administration_socket_is_the_servers_user_s(fairway):
    user, other = pwd.getpwnam("daemon"), pwd.getpwnam("nobody")
    folder = pathlib.Path(f"/tmp/fairway-closed-{os.getpid()}")  # Where all may look; not so the test's own folder.
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    path = folder / "admin"
    old = os.umask(0)
    try:
        with Served(fairway, "--admin-socket", str(path), "-u", user.pw_name):
            found = path.stat()
            assert (found.st_mode & 0o7777, found.st_uid, found.st_gid) == (0o600, user.pw_uid, user.pw_gid)
            assert connect_as(user, path) == 0
            assert connect_as(other, path) == errno.EACCES
    finally:
        os.umask(old)
        folder.rmdir()


def connect_as(user, path):
    """What the kernel says to a process of the user that connects: an errno."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                status = client.connect_ex(str(path))
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

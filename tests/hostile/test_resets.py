# SPDX-License-Identifier: Apache-2.0
"""Goal: a peer that has reset its connection before the server looks at it harms nobody, on any port.
Method: the server is stopped meanwhile, so that it accepts only connections that are gone already."""

import os
import re
import signal
import socket
import struct

import pytest

from served import Watched

PEERS = 5  # No more than the kernel lets wait for a stopped server.
AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset.


def reset_all(server, address):
    server.stop()
    peers = [socket.create_connection(address) for _ in range(PEERS)]
    for peer in peers:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        peer.close()
    os.kill(server.process.pid, signal.SIGCONT)


@pytest.mark.parametrize("port", ["clients", "replication", "http"])
def test_peers_that_are_gone_when_they_are_accepted(fairway, port):
    with Watched(fairway, "--repl-enable", "--repl-port", "0", "--policy", "crr") as server:
        replication = int(re.search(r"replication on \S+:(\d+)", server.read_log())[1])
        host, clients = server.addresses[0].rsplit(":", 1)
        address = {"clients": (host, int(clients)), "replication": ("127.0.0.1", replication), "http": server.http}[port]
        with server.connect() as client:
            client.set(b"kept", b"1")
            for _ in range(3):
                reset_all(server, address)
                assert client.get(b"kept") == b"1"
            with socket.create_connection(address):
                assert client.get(b"kept") == b"1"

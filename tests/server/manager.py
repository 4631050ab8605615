# SPDX-License-Identifier: Apache-2.0
"""A service manager, as systemd is one: it has the socket that NOTIFY_SOCKET names, and hears what it is told."""

import socket

import pytest
from served import START_S


class Manager:
    def __init__(self, name):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(name.replace("@", "\0", 1))
        self.socket.settimeout(START_S)

    def hear(self):
        """The next words: {name: value}."""
        return dict(line.split("=") for line in self.socket.recv(4096).decode().splitlines())

    def has_nothing(self):
        self.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            self.socket.recv(1)
        self.socket.settimeout(START_S)

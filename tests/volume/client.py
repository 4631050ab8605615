# SPDX-License-Identifier: Apache-2.0
"""A client of NBD that stays connected, which other people's tools do not do on request."""

import contextlib
import socket
import struct

READ, WRITE, TRIM = 0, 1, 4
REQUEST = 0x25609513


class Client:
    def __init__(self, path, export):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(120)
        self.socket.connect(str(path))
        assert self.take(18)[:16] == b"NBDMAGICIHAVEOPT"
        name = export.encode()
        self.socket.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, len(name)) + name)
        self.size = struct.unpack(">QH", self.take(10))[0]

    def take(self, size):
        """So many bytes; fewer if the server has ended."""
        got = b""
        while len(got) < size:
            part = b""
            with contextlib.suppress(ConnectionResetError):
                part = self.socket.recv(size - len(got))
            if not part:
                break
            got += part
        return got

    def ask(self, command, offset, size, data=b""):
        self.socket.sendall(struct.pack(">IHHQQI", REQUEST, 0, command, 7, offset, size) + data)

    def write(self, offset, data):
        """What the server answers: 0, an error, or None if it has ended."""
        self.ask(WRITE, offset, len(data), data)
        return self.answer()

    def answer(self):
        reply = self.take(16)
        return struct.unpack(">IIQ", reply)[1] if len(reply) == 16 else None

    def close(self):
        self.socket.close()

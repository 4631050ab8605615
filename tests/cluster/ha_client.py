# SPDX-License-Identifier: Apache-2.0
"""A client of test_ha.py: ha_client.py ADDRESS PORT NAME FILE

Writes one key after the other, each once, and a counter; reads the counter back. What was acknowledged is a line of
JSON in the file: {"key", "value", "at"}, or {"stale"} if the counter was older than what it had been told is stored.
Whatever fails is tried again with a new connection; keys whose fate is unknown are not written again."""

import json
import signal
import socket
import sys
import time

PAUSE_S = 0.004
PATIENCE_S = 1.0


class Client:
    def __init__(self, address, port):
        self.socket = socket.create_connection((address, int(port)), PATIENCE_S)
        self.socket.settimeout(PATIENCE_S)
        self.file = self.socket.makefile("rb")

    def ask(self, line):
        self.socket.sendall(line)
        answer = self.file.readline()
        if not answer.endswith(b"\r\n"):
            raise ConnectionError("closed")
        return answer

    def store(self, key, value):
        return self.ask(f"set {key} 0 0 {len(value)}\r\n{value}\r\n".encode()) == b"STORED\r\n"

    def read(self, key):
        first = self.ask(f"get {key}\r\n".encode())
        if first == b"END\r\n":
            return None
        if not first.startswith(b"VALUE"):
            raise ConnectionError(first)
        value = self.file.readline().strip().decode()
        self.file.readline()
        return value

    def close(self):
        self.file.close()
        self.socket.close()


def main(address, port, name, path):
    is_over = []
    signal.signal(signal.SIGTERM, lambda *_: is_over.append(True))
    with open(path, "w", encoding="ascii") as log:
        client, number, counted = None, 0, 0
        while not is_over:
            number += 1
            try:
                client = client or Client(address, port)
                value = f"{name}-{number}"
                if client.store(value, value):
                    log.write(json.dumps({"key": value, "value": value, "at": time.time()}) + "\n")
                if client.store(f"{name}-counter", str(number)):
                    counted = number
                seen = client.read(f"{name}-counter")
                if int(seen or 0) < counted:
                    log.write(json.dumps({"stale": counted - int(seen or 0)}) + "\n")
                    counted = int(seen or 0)
                log.flush()
                time.sleep(PAUSE_S)
            except (OSError, ValueError):
                if client is not None:
                    client.close()
                client = None
                time.sleep(PAUSE_S)


main(*sys.argv[1:])

# SPDX-License-Identifier: Apache-2.0
"""Goal: health checks are answered whoever else is connected to the page's port, and nobody keeps a place by sending
a byte now and then. Method: many clients that send requests byte by byte, and requests beside them."""

import socket
import threading

import pytest

from served import Watched

SLOW = 200
BEGIN = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: "


class Drip:
    """Connections that never get to the end of their requests; some of those that are shut out come again."""

    def __init__(self, address):
        self.address, self.is_over, self.shut = address, threading.Event(), 0
        self.thread = threading.Thread(target=self.run)
        self.clients = []

    def connect(self):
        made = socket.create_connection(self.address)
        made.sendall(BEGIN)
        return made

    def run(self):
        while not self.is_over.wait(0.2):
            shut = [client for client in self.clients if not self.is_served(client)]
            self.shut += len(shut)
            for client in shut:
                client.close()
                self.clients.remove(client)
            if shut:
                self.clients.append(self.connect())
        for client in self.clients:
            client.close()

    @staticmethod
    def is_served(client):
        try:
            client.sendall(b"x")
            return True
        except OSError:
            return False

    def __enter__(self):
        self.clients = [self.connect() for _ in range(SLOW)]
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()


@pytest.mark.parametrize("path, text", [("/healthz", "ok\n"), ("/readyz", "ready\n")])
def test_health_checks_get_in(fairway, path, text):
    with Watched(fairway) as server, Drip(server.http) as drip:
        for _ in range(30):
            assert server.ask(path).text == text
        while drip.shut == 0:  # They have been there, and were shut out.
            assert server.ask(path).text == text


def test_requests_have_a_deadline(fairway):
    """Though a byte comes each second, and nobody else wants the place."""
    with Watched(fairway) as server, socket.create_connection(server.http) as slow:
        slow.sendall(BEGIN)
        slow.settimeout(1)
        while True:
            try:
                if slow.recv(1) == b"":
                    break
            except TimeoutError:
                slow.sendall(b"x")
            except ConnectionError:
                break

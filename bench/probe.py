#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""When is somebody served? probe.py QUESTION ANSWER ADDRESS:PORT...

Begins a connection to each address every 10 ms, waits for none, asks on each that comes to be, and prints the time
(of CLOCK_MONOTONIC) of every right answer. One that has not come for two seconds is given up."""

import selectors
import socket
import sys
import time

PERIOD_S, PATIENCE_S = 0.01, 2


def begin(selector, address):
    client = socket.socket()
    client.setblocking(False)
    host, port = address.rsplit(":", 1)
    client.connect_ex((host, int(port)))
    selector.register(client, selectors.EVENT_WRITE, time.monotonic())


def go_on(selector, key, question, answer):
    """True while it is of use."""
    client = key.fileobj
    try:
        if key.events == selectors.EVENT_WRITE:
            client.sendall(question)
            selector.modify(client, selectors.EVENT_READ, key.data)
            return True
        if client.recv(4096) == answer:
            print(time.monotonic(), flush=True)
    except OSError:
        pass
    return False


def main(question, answer, *addresses):
    question, answer = question.encode(), answer.encode()
    with selectors.DefaultSelector() as selector:
        due = time.monotonic()
        while True:
            now = time.monotonic()
            if now >= due:
                due = now + PERIOD_S
                for address in addresses:
                    begin(selector, address)
                for key in [key for key in selector.get_map().values() if now - key.data > PATIENCE_S]:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
            for key, _ in selector.select(max(due - now, 0)):
                if not go_on(selector, key, question, answer):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


main(*sys.argv[1:])

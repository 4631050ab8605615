#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pymemcache does an application's work: use_pymemcache.py HOST PORT, or one PATH of a UNIX socket."""

import os
import sys
import time

from pymemcache.client.base import Client, PooledClient
from pymemcache.exceptions import MemcacheServerError
from pymemcache.serde import pickle_serde

PATIENCE_S = 120  # The limits only end a client that hangs.


def work(client, waits):
    client.flush_all()
    assert client.get(b"k") is None
    assert client.set(b"k", b"v", noreply=False)
    assert client.get(b"k") == b"v"
    assert not client.add(b"k", b"w", noreply=False)
    assert client.replace(b"k", b"w", noreply=False)
    assert client.append(b"k", b"!", noreply=False) and client.prepend(b"k", b"<", noreply=False)
    assert client.get(b"k") == b"<w!"

    many = {f"key-{number}": b"value %d" % number for number in range(1000)}
    assert client.set_many(many, noreply=False) == []
    assert client.get_many(list(many)) == many
    assert client.delete_many(["key-1", "key-2"], noreply=False)
    assert client.get_many(["key-1", "key-2", "key-3"]) == {"key-3": b"value 3"}

    value, token = client.gets(b"k")
    assert client.cas(b"k", b"swapped", token, noreply=False) is True
    assert client.cas(b"k", b"again", token, noreply=False) is False
    assert client.cas(b"nope", b"x", token, noreply=False) is None

    assert client.incr(b"n", 1, noreply=False) is None
    client.set(b"n", b"10", noreply=False)
    assert client.incr(b"n", 5, noreply=False) == 15
    assert client.decr(b"n", 20, noreply=False) == 0
    assert client.touch(b"n", 100, noreply=False)

    large = os.urandom(1000 * 1000)
    assert client.set(b"large", large, noreply=False)
    assert client.get(b"large") == large
    try:
        client.set(b"large", bytes(2 * 1024 * 1024), noreply=False)
        raise AssertionError("stored two megabytes")
    except MemcacheServerError as error:
        assert b"too large" in error.args[0]

    client.set(b"brief", b"v", expire=1, noreply=False)
    deadline = time.monotonic() + PATIENCE_S
    while waits and client.get(b"brief") is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert client.delete(b"k", noreply=False) and not client.delete(b"k", noreply=False)
    assert client.version() and int(client.stats()[b"curr_items"]) > 900
    client.set(b"silent", b"v", noreply=True)
    assert client.get(b"silent") == b"v"


def main():
    server = sys.argv[1] if len(sys.argv) == 2 else (sys.argv[1], int(sys.argv[2]))
    work(Client(server, timeout=PATIENCE_S), waits=True)
    work(PooledClient(server, max_pool_size=4, timeout=PATIENCE_S), waits=False)
    objects = Client(server, serde=pickle_serde, timeout=PATIENCE_S)
    objects.set("object", {"a": [1, 2.5, None]})
    assert objects.get("object") == {"a": [1, 2.5, None]}


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libmemcached, through pylibmc, does an application's work: use_pylibmc.py HOST PORT text|binary
[NAME PASSWORD]."""

import os
import sys
import time

import pylibmc

PATIENCE_S = 120  # The limits only end a client that hangs.


def work(client, is_binary, waits):
    client.flush_all()
    assert client.get("k") is None
    assert client.set("k", "v") and client.get("k") == "v"
    assert not client.add("k", "w") and client.replace("k", "w")
    assert client.set("s", b"mid")
    assert client.append("s", b"-end") and client.prepend("s", b"begin-")
    assert client.get("s") == b"begin-mid-end"

    many = {f"key-{number}": {"number": number} for number in range(1000)}
    assert client.set_multi(many) == []
    assert client.get_multi(list(many)) == many
    assert client.delete_multi(["key-1", "key-2"])
    assert client.get_multi(["key-1", "key-3"]) == {"key-3": {"number": 3}}

    if not is_binary:  # libmemcached fetches CAS values by `gets` only.
        client.behaviors["cas"] = True
        _, token = client.gets("k")
        assert client.cas("k", "swapped", token)
        assert not client.cas("k", "again", token)
        assert client.get("k") == "swapped"

    client.set("n", 10)
    assert client.incr("n", 5) == 15 and client.decr("n", 20) == 0
    client.set("n", 18446744073709551000)
    assert client.incr("n", 615) == 18446744073709551615
    large = os.urandom(900 * 1000)
    assert client.set("large", large) and client.get("large") == large
    assert client.touch("large", 100)

    client.set("brief", "v", time=1)
    deadline = time.monotonic() + PATIENCE_S
    while waits and client.get("brief") is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert client.delete("k") and not client.delete("k")
    assert int(client.get_stats()[0][1]["curr_items"]) > 900


def main():
    host, port, kind, *login = sys.argv[1:]
    extra = {"username": login[0], "password": login[1]} if login else {}
    limits = {"connect_timeout": 1000 * PATIENCE_S, "_poll_timeout": 1000 * PATIENCE_S}
    for behaviours in ({}, {"tcp_nodelay": True, "no_block": True}):
        client = pylibmc.Client([f"{host}:{port}"], binary=kind == "binary",
                                behaviors={**limits, **behaviours}, **extra)
        work(client, kind == "binary", waits=not behaviours)
        client.disconnect_all()
    if login:
        stranger = pylibmc.Client([f"{host}:{port}"], binary=True, username=login[0],
                                  password=login[1] + "x")
        try:
            stranger.set("k", "v")
            raise AssertionError("let in with a wrong password")
        except pylibmc.Error:
            pass


main()

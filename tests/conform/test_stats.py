# SPDX-License-Identifier: Apache-2.0
"""Goal: the statistics that monitoring reads have memcached's names and count what they say (C5).
Method: a server of its own; known commands, and the difference they make to each counter. Names that
only describe memcached's slabs and threads are not asked for."""

import re
import time

import pytest

from peer import wait_until

GENERAL = """
    pid uptime time version pointer_size rusage_user rusage_system max_connections curr_connections
    total_connections rejected_connections connection_structures cmd_get cmd_set cmd_flush cmd_touch
    cmd_meta get_hits get_misses get_expired get_flushed delete_misses delete_hits incr_misses
    incr_hits decr_misses decr_hits cas_misses cas_hits cas_badval touch_hits touch_misses
    store_too_large store_no_memory auth_cmds auth_errors bytes_read bytes_written limit_maxbytes
    accepting_conns listen_disabled_num threads conn_yields hash_power_level hash_bytes
    hash_is_expanding bytes curr_items total_items expired_unfetched evicted_unfetched
    evictions reclaimed
""".split()

SETTINGS = """
    maxbytes maxconns tcpport udpport inter verbosity evictions domain_socket umask shutdown_command
    num_threads detail_enabled reqs_per_event cas_enabled tcp_backlog binding_protocol
    auth_enabled_sasl auth_enabled_ascii item_size_max maxconns_fast flush_enabled idle_timeout
""".split()

# What is sent, what must come back, and by how much each counter grows for it.
COUNTED = [
    (b"set k 0 0 1\r\n5\r\n", b"STORED\r\n", {"cmd_set": 1, "total_items": 1}),
    (b"get k\r\n", b"VALUE k 0 1\r\n5\r\nEND\r\n", {"cmd_get": 1, "get_hits": 1}),
    (b"get no nope\r\n", b"END\r\n", {"cmd_get": 2, "get_misses": 2}),
    (b"mg k\r\n", b"HD\r\n", {"cmd_get": 1, "get_hits": 1}),
    (b"mg nope\r\n", b"EN\r\n", {"cmd_get": 1, "get_misses": 1}),
    (b"add k 0 0 1\r\n6\r\n", b"NOT_STORED\r\n", {"cmd_set": 1, "total_items": 0}),
    (b"incr k 1\r\n", b"6\r\n", {"incr_hits": 1}),
    (b"incr nope 1\r\n", b"NOT_FOUND\r\n", {"incr_misses": 1}),
    (b"decr k 1\r\n", b"5\r\n", {"decr_hits": 1}),
    (b"decr nope 1\r\n", b"NOT_FOUND\r\n", {"decr_misses": 1}),
    (b"cas nope 0 0 1 1\r\nx\r\n", b"NOT_FOUND\r\n", {"cas_misses": 1}),
    (b"cas k 0 0 1 18446744073709551615\r\nx\r\n", b"EXISTS\r\n", {"cas_badval": 1}),
    (b"touch k 0\r\n", b"TOUCHED\r\n", {"cmd_touch": 1, "touch_hits": 1}),
    (b"touch nope 0\r\n", b"NOT_FOUND\r\n", {"cmd_touch": 1, "touch_misses": 1}),
    (b"gat 0 k\r\n", b"VALUE k 0 1\r\n5\r\nEND\r\n", {"cmd_touch": 1, "touch_hits": 1}),
    (b"delete nope\r\n", b"NOT_FOUND\r\n", {"delete_misses": 1}),
    (b"delete k\r\n", b"DELETED\r\n", {"delete_hits": 1, "curr_items": -1}),
    (b"set x 0 0 1048577\r\n" + bytes(1048577) + b"\r\n",
     b"SERVER_ERROR object too large for cache\r\n", {"store_too_large": 1}),
    (b"flush_all\r\n", b"OK\r\n", {"cmd_flush": 1}),
    (b"set y 0 -1 1\r\nx\r\nget y\r\n", b"STORED\r\nEND\r\n", {"get_expired": 1, "get_misses": 1}),
]


def test_names(shared):
    with shared.connect() as client:
        assert set(GENERAL) - client.stats().keys() == set()
        assert set(SETTINGS) - client.stats("settings").keys() == set()


def test_counters(shared):
    with shared.connect() as client:
        client.ask(b"flush_all\r\n", b"OK\r\n")
        for request, reply, growth in COUNTED:
            before = client.stats()
            client.ask(request, reply)
            after = client.stats()
            grown = {name: int(after[name]) - int(before[name]) for name in growth}
            assert grown == growth, request[:40]


def test_of_the_process(shared):
    with shared.connect() as client:
        stats = client.stats()
        assert int(stats["pid"]) == shared.process.pid
        assert abs(int(stats["time"]) - time.time()) < 60
        assert re.fullmatch(r"\d+\.\d{6}", stats["rusage_user"])
        assert stats["pointer_size"] == "64"
        assert int(stats["bytes_read"]) > 0 and int(stats["bytes_written"]) > 0
        assert int(stats["limit_maxbytes"]) == 64 * 1024 * 1024


def is_alone(client):
    """Whether the server has noticed that all other connections were closed."""
    states = [value for name, value in client.stats("conns").items() if name.endswith(":state")]
    return sum(state != "conn_listening" for state in states) == 1


def test_connections_are_counted(shared):
    with shared.connect() as client:
        wait_until(lambda: is_alone(client), "rid of the connections of other tests")
        before = client.stats()
        others = [shared.connect() for _ in range(10)]
        for other in others:
            other.settled()
        after = client.stats()
        assert int(after["total_connections"]) - int(before["total_connections"]) == 10
        assert int(after["curr_connections"]) - int(before["curr_connections"]) == 10
        for other in others:
            other.close()
        wait_until(lambda: client.stats()["curr_connections"] == before["curr_connections"],
                   "fewer connections")


def test_bytes_and_items(shared):
    with shared.connect() as client:
        before = client.stats()
        for index in range(100):
            client.set(b"item-%d" % index, b"v" * 1000)
        after = client.stats()
        assert int(after["curr_items"]) - int(before["curr_items"]) == 100
        assert 100 * 1000 <= int(after["bytes"]) - int(before["bytes"]) < 100 * 1200


def test_reset(shared):
    with shared.connect() as client:
        client.get(b"nope")
        client.set(b"k", b"v")
        client.ask(b"stats reset\r\n", b"RESET\r\n")
        stats = client.stats()
        for name in ("get_misses", "cmd_get", "cmd_set", "total_items", "evictions"):
            assert stats[name] == "0", name
        assert int(stats["curr_items"]) > 0
        assert stats["curr_connections"] != "0"


def test_detail(shared):
    """Per prefix of the key, up to the colon, once switched on."""
    with shared.connect() as client:
        client.ask(b"stats detail on\r\n", b"OK\r\n")
        client.set(b"one:a", b"v")
        client.set(b"one:b", b"v")
        client.get(b"one:a")
        client.get(b"one:c")
        client.ask(b"delete one:b\r\n", b"DELETED\r\n")
        client.ask(b"stats detail dump\r\n",
                   b"PREFIX one get 2 hit 1 set 2 del 1\r\nEND\r\n")
        client.ask(b"stats detail off\r\n", b"OK\r\n")
        client.set(b"one:d", b"v")
        client.ask(b"stats detail dump\r\n",
                   b"PREFIX one get 2 hit 1 set 2 del 1\r\nEND\r\n")


def test_conns(shared):
    """Every connection with its address and state."""
    with shared.connect() as client, shared.connect() as other:
        other.settled()
        stats = client.stats("conns")
        own = "tcp:{}:{}".format(*other.socket.getsockname())
        mine = [name for name, value in stats.items() if value == own]
        assert len(mine) == 1
        number = mine[0].removesuffix(":addr")
        assert stats[f"{number}:state"].startswith("conn_")
        assert stats[f"{number}:secs_since_last_cmd"].isdigit()
        assert stats[f"{number}:listen_addr"] == f"tcp:{shared.address[0]}:{shared.address[1]}"


@pytest.mark.parametrize("group, name", [("items", r"items:\d+:number"),
                                         ("items", r"items:\d+:evicted"),
                                         ("slabs", r"total_malloced"), ("slabs", r"active_slabs")])
def test_items_and_slabs(shared, group, name):
    with shared.connect() as client:
        client.set(b"k", b"v")
        assert any(re.fullmatch(name, found) for found in client.stats(group))


def test_sizes(start):
    with start("-o", "track_sizes") as peer, peer.connect() as client:
        client.set(b"small", b"v")
        client.set(b"big", b"v" * 10000)
        sizes = {int(size): int(number) for size, number in client.stats("sizes").items()}
        assert sum(sizes.values()) == 2
        assert min(sizes) < 200 and 10000 < max(sizes) < 10300


def test_sizes_are_off(shared):
    with shared.connect() as client:
        client.ask(b"stats sizes\r\n", b"STAT sizes_status disabled\r\nEND\r\n")

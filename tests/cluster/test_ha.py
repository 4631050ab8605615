# SPDX-License-Identifier: Apache-2.0
"""Goal: three hosts with the shipped samples survive what happens to hosts: at all times at most one answers, another
one takes over, and what clients on either side of a cut were told is stored is there, all of it in acknowledged mode.
Method: real Corosync and keepalived in network namespaces. Clients on every host and outside of them write keys of
their own and log what was acknowledged (ha_client.py). Fault after fault is made, in rounds; after each all keys are
read back. FAIRWAY_HA_ROUNDS says how many rounds, FAIRWAY_HA_FAULTS which faults, by their names below with commas
between; 20 rounds of all are a thorough test, and take half an hour. With `-s` it says what came of each."""

import os
import random
import signal
import time

import pytest

from cluster import freeze, thaw, wait_for
from ha import Ha

pytestmark = pytest.mark.needs("user-namespaces", "corosync", "keepalived")

ROUNDS = int(os.environ.get("FAIRWAY_HA_ROUNDS", "2"))


@pytest.fixture(scope="session")
def fairway(build):
    return build / "fairway"


def host_dies(ha, master):
    master.kill()
    yield
    master.revive()


def process_dies(ha, master):
    master.stop("server")
    yield
    master.start_server()


def host_stands_still(ha, master):
    master.freeze()
    yield
    master.thaw()


def process_stands_still(ha, master):
    server = master.processes["server"]
    freeze(server)
    yield
    thaw(server)


def host_is_cut_off(ha, master):
    master.node.cut()
    yield
    master.node.heal()


def link_flaps(ha, master):
    for _ in range(6):
        master.node.cut()
        time.sleep(random.uniform(0, 0.5))
        master.node.heal()
        time.sleep(random.uniform(0, 0.5))
    yield


def all_are_started_again(ha, master):
    """A slave, then the master, as one would for an update."""
    slave = next(host for host in ha.hosts if host is not master)
    for host in (slave, master):
        host.stop("server", signal.SIGTERM)
        host.start_server()
        ha.wait_until_whole()
    yield


FAULTS = [host_dies, process_dies, host_stands_still, process_stands_still, host_is_cut_off, link_flaps,
          all_are_started_again]


def chosen(*usual):
    """Those that the environment names, or the usual ones."""
    names = os.environ.get("FAIRWAY_HA_FAULTS")
    return [globals()[name] for name in names.split(",")] if names else usual


def make(ha, fault):
    """The fault, with clients on every host and outside; returns what they were told, and what became of it."""
    master = ha.wait_until_whole()
    clients = [ha.client(node) for node in (ha.outside, *(host.node for host in ha.hosts))]
    for client in clients:
        client.wait_for_answers()
    steps = fault(ha, master)
    next(steps)
    clients[0].wait_for_answers()  # Whatever has happened, it is served again.
    for _ in steps:
        pass
    ha.wait_until_whole()
    clients[0].wait_for_answers()
    return ha.audit()


def rounds(ha, count, faults):
    """Makes each of the faults so many times; yields what was lost, told and stale."""
    ha.start()
    for number in range(1, count + 1):
        for fault in faults:
            lost, told, stale = make(ha, fault)
            print(f"{fault.__name__} {number}: {told} acknowledged, {len(lost)} lost, {stale} stale", flush=True)
            yield lost, told, stale


def test_nothing_acknowledged_is_lost(cluster, fairway, source):
    with Ha(fairway, source, cluster, ack=1) as ha:
        for lost, _, stale in rounds(ha, ROUNDS, chosen(*FAULTS)):
            assert lost == [] and stale == 0


def test_asynchronous(cluster, fairway, source):
    """What is lost is reported, not judged: it was answered before anybody else had heard of it."""
    with Ha(fairway, source, cluster) as ha:
        for _, told, _ in rounds(ha, max(1, ROUNDS // 2), chosen(host_dies, host_is_cut_off)):
            assert told > 0


def test_a_server_that_copies_is_not_chosen(cluster, fairway, source):
    """Of two slaves one cannot have a whole copy, since it cannot reach the master: it is not the one that takes over."""
    with Ha(fairway, source, cluster) as ha:
        ha.start()
        master = ha.master()
        first, second = [host for host in ha.hosts if host is not master]
        first.stop("server")
        first.start_server("--repl-master", "10.99.0.77:1")  # Nobody is there.
        wait_for(lambda: first.stats().get("complete") == "no", "a slave without a copy")
        wait_for(lambda: first.gate() == "1", "its gate to be closed")
        master.kill()
        wait_for(second.serves, "the other one to serve")
        assert wait_for(lambda: first.stats().get("role"), "an answer of the first") == "slave"

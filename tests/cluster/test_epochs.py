# SPDX-License-Identifier: Apache-2.0
"""Goal: schedulers of three nodes go in step over Corosync whatever happens to processes, nodes and the
network: none gets stuck, no epoch has two results among those who stay connected, each question has
exactly one answer, and who is cut off is told so.
Method: an epoch_node on each of three nodes; one fault at a time, then random ones, and each time all are
in step again in the end. FAIRWAY_FLAPS says how many random faults there are, FAIRWAY_SEED which:

    FAIRWAY_FLAPS=150 pytest-3 tests/cluster/test_epochs.py -k flaps
"""

import errno
import os
import random
import time

import pytest

from cluster import Cluster, freeze, inside, thaw
from schedulers import Schedulers

FLAPS = int(os.environ.get("FAIRWAY_FLAPS", "5"))
SEED = int(os.environ.get("FAIRWAY_SEED", "1"))

# On a busy machine a ring may break by itself; then this is what a scheduler hears of.
RING_BROKE = (errno.ENOTCONN,)

pytestmark = pytest.mark.needs("user-namespaces", "corosync")


@pytest.fixture(scope="session")
def program(build):
    return build / "tests" / "epoch_node"


@pytest.fixture(scope="module")
def shared(tmp_path_factory, program):
    """A cluster in step, which the tests hand to each other."""
    assert inside(), "give pytest this folder alone"
    with Cluster(tmp_path_factory.mktemp("cluster"), 3) as cluster:
        for node in cluster.nodes:
            node.corosync_start()
        with Schedulers(program, cluster) as schedulers:
            schedulers.start()
            schedulers.wait_in_step()
            yield schedulers


@pytest.fixture
def schedulers(shared):
    """All in step, and again when the test is over."""
    recover(shared)
    yield shared
    recover(shared)


def recover(schedulers):
    for node in schedulers.cluster.nodes:
        if node.corosync is None:
            node.corosync_start()
        thaw(node.corosync)
        if node.is_cut:
            node.heal()
        if schedulers.running[node.number - 1] is None:
            schedulers.start(node.number)
        thaw(schedulers.running[node.number - 1].process)
    schedulers.wait_in_step()


@pytest.mark.parametrize("order", [[1, 2, 3], [3, 1, 2]])
def test_cold_start(cluster, program, order):
    """Schedulers that are there before their Corosync, nodes that come one after the other."""
    first, second, third = order
    with Schedulers(program, cluster) as schedulers:
        alone = schedulers.start(first)
        alone.wait_for_error(errno.ENOTCONN)  # No Corosync.
        cluster.nodes[first - 1].corosync_start()
        cluster.settle(first)
        alone.wait_for_error(errno.ENOTCONN, since=len(alone.errors) + 1)  # No quorum.
        assert alone.told == []
        schedulers.start(second)
        cluster.nodes[second - 1].corosync_start()
        schedulers.wait_in_step()
        schedulers.start(third)
        cluster.nodes[third - 1].corosync_start()
        schedulers.wait_in_step()


def test_all_at_once(cluster, program):
    for node in cluster.nodes:
        node.corosync_start()
    with Schedulers(program, cluster) as schedulers:
        schedulers.start()
        schedulers.wait_in_step()


def test_killed_is_evicted(schedulers):
    schedulers.kill(1)
    schedulers.wait_in_step(2, 3)
    schedulers.start(1)
    schedulers.wait_in_step()


def test_leaving(schedulers):
    leaving = schedulers.running[1]
    schedulers.running[1] = None
    leaving.leave()
    schedulers.wait_in_step(1, 3)
    schedulers.start(2)
    schedulers.wait_in_step()


def test_frozen_is_evicted_and_told(schedulers):
    frozen = schedulers.running[2]
    freeze(frozen.process)
    schedulers.wait_in_step(1, 2)
    errors = len(frozen.errors)
    thaw(frozen.process)
    frozen.wait_for_error(errno.ESTALE, *RING_BROKE, since=errors)
    schedulers.wait_in_step()


def test_cut_and_heal(schedulers):
    scheduler, node = schedulers.running[0], schedulers.cluster.nodes[0]
    errors = len(scheduler.errors)
    node.cut()
    scheduler.wait_for_error(errno.ENOTCONN, since=errors)
    schedulers.wait_in_step(2, 3)
    node.heal()
    schedulers.wait_in_step()


def test_frozen_corosync(schedulers):
    """Its scheduler hears nothing, not even that it is cut off: it is told so by its own clock. When Corosync
    is back it finds the ring whole, and must not take what it knows for what the others know."""
    scheduler, node = schedulers.running[1], schedulers.cluster.nodes[1]
    errors, views = len(scheduler.errors), len(scheduler.views)
    freeze(node.corosync)
    scheduler.wait_for_error(errno.ETIMEDOUT, *RING_BROKE, since=errors)
    schedulers.wait_in_step(1, 3)
    thaw(node.corosync)
    schedulers.wait_in_step()
    assert not all(is_quorate for is_quorate, _, _ in scheduler.views[views:])


def test_corosync_killed_and_restarted(schedulers):
    scheduler, node = schedulers.running[2], schedulers.cluster.nodes[2]
    errors = len(scheduler.errors)
    node.corosync_kill()
    scheduler.wait_for_error(errno.ENOTCONN, since=errors)
    schedulers.wait_in_step(1, 2)
    node.corosync_start()
    schedulers.wait_in_step()


class Flaps:
    """Random faults, several at a time. What forgets, a process that is killed, is followed by a recovery:
    where all who know have been killed, numbers begin anew, and nothing could be compared."""

    def __init__(self, schedulers, seed):
        self.schedulers = schedulers
        self.chance = random.Random(seed)
        self.has_killed = False

    def kill(self, scheduler, node):
        self.has_killed = True
        self.schedulers.kill(node.number)
        self.pause()
        self.schedulers.start(node.number)

    def freeze(self, scheduler, node):
        freeze(scheduler.process)
        self.pause()
        thaw(scheduler.process)

    def freeze_corosync(self, scheduler, node):
        freeze(node.corosync)
        self.pause()
        thaw(node.corosync)

    def restart_corosync(self, scheduler, node):
        node.corosync_kill()
        self.pause()
        node.corosync_start()

    def cut(self, scheduler, node):
        node.cut()
        if self.chance.random() < 0.5:
            self.cut_another(node)
        self.pause()
        node.heal()

    def cut_another(self, node):
        other = self.chance.choice([another for another in self.schedulers.cluster.nodes if another != node])
        other.cut()
        self.pause()
        other.heal()

    def pause(self):
        """Often shorter than a token, sometimes long enough for everybody to give up."""
        time.sleep(self.chance.choice([0.01, 0.1, 0.3, 0.7, 1.2]) * self.chance.random() * 2)

    def step(self):
        number = self.chance.randrange(self.schedulers.cluster.count)
        faults = [self.freeze, self.freeze_corosync, self.restart_corosync, self.cut, self.cut, self.cut]
        fault = self.chance.choice(faults if self.has_killed else [*faults, self.kill, self.kill])
        print(f"{fault.__name__} {number + 1}", flush=True)
        fault(self.schedulers.running[number], self.schedulers.cluster.nodes[number])
        if self.has_killed or self.chance.random() < 0.3:
            recover(self.schedulers)
            self.has_killed = False


def test_random_flaps(schedulers):
    flaps = Flaps(schedulers, SEED)
    for _ in range(FLAPS):
        flaps.step()
    recover(schedulers)
    assert schedulers.ledger.checked > 0

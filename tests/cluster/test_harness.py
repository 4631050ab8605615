# SPDX-License-Identifier: Apache-2.0
"""Goal: the cluster that the other tests here stand on is one: nodes hear each other, a cut node hears
nobody, a Corosync that died comes back.
Method: three nodes; Corosync itself says whom it hears."""

import pytest

pytestmark = pytest.mark.needs("user-namespaces", "corosync")


def test_cut_and_heal_and_restart(cluster):
    for node in cluster.nodes:
        node.corosync_start()
    cluster.settle()
    first, second, _ = cluster.nodes
    first.cut()
    cluster.settle(2, 3)
    cluster.settle(1)
    first.heal()
    cluster.settle()
    second.corosync_kill()
    cluster.settle(1, 3)
    second.corosync_start()
    cluster.settle()


def test_nodes_share_no_files(cluster):
    first, second, _ = cluster.nodes
    first.run("touch", "/run/mine", "/dev/shm/mine")
    assert first.run("sh", "-c", "echo /run/mi?e /dev/shm/mi?e") == "/run/mine /dev/shm/mine\n"
    assert second.run("sh", "-c", "echo /run/mi?e /dev/shm/mi?e") == "/run/mi?e /dev/shm/mi?e\n"

# SPDX-License-Identifier: Apache-2.0
"""Lets the tests use what bench/run is made of, and start the servers that it compares."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from suite import Context, servers  # noqa: E402

OUR_SERVERS = ["bare_loop", "reactor_server",
               pytest.param("reactor_server_uring", marks=pytest.mark.needs("io-uring"))]
ALL_SERVERS = [*OUR_SERVERS, "fairway",
               pytest.param("memcached", marks=pytest.mark.needs("memcached"))]


@pytest.fixture(scope="session")
def context(build):
    """Where the programs are; nothing here is pinned, because nothing here is timed."""
    found = Context(build, runs=None, quick=True)
    found.server_cpu = found.client_cpu = None
    return found


def server_fixture(names):
    @pytest.fixture(params=names)
    def fixture(request, context):
        with servers.running(getattr(servers, request.param), context) as server:
            yield server
    return fixture


server = server_fixture(ALL_SERVERS)  # A fresh one for each test.
our_server = server_fixture(OUR_SERVERS)

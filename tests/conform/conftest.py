# SPDX-License-Identifier: Apache-2.0
"""Which server the tests speak to: `--server fairway` (the default), or `--server memcached` for the
reference, against which every test must pass too. The environment variable CONFORM_SERVER does the
same."""

import os
import shlex

import pytest

pytest.register_assert_rewrite("binary", "peer", "transcript")

from peer import Peer  # noqa: E402: after the line above, so that its assertions tell more


def pytest_addoption(parser):
    parser.addoption("--server", default=os.environ.get("CONFORM_SERVER", "fairway"),
                     help="fairway, memcached, or a command that takes memcached's flags")


@pytest.fixture(scope="session")
def command(request, fairway):
    """The words that start the server under test; memcached's flags follow them."""
    name = request.config.getoption("server")
    return [str(fairway), "serve"] if name == "fairway" else shlex.split(name)


@pytest.fixture(scope="module")
def shared(command):
    """One server with the default settings for all tests of a file that do not disturb each other."""
    with Peer(command) as peer:
        yield peer


@pytest.fixture(scope="session")
def start(command):
    """Starts a server with flags of the test's own: `with start("-m", "64") as peer:`."""
    return lambda *flags, **options: Peer(command, *flags, **options)


@pytest.fixture
def client(shared):
    """A connection to the shared server, in which nothing was stored. At the end no reply may be
    left over."""
    with shared.connect() as client:
        client.ask(b"flush_all\r\n", b"OK\r\n")
        yield client
        client.settled()

# SPDX-License-Identifier: Apache-2.0
"""Goal: clients and tools that were written for memcached and know nothing of us notice no difference
(C5). Method: each does an application's work against a server of its own; clients/ has the programs."""

import os
import subprocess
import sys

import pytest

from peer import Peer
from support import npm
from support.patience import PATIENCE_S
from test_auth import sasl_server  # noqa: F401: a fixture


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=PATIENCE_S, check=False, **options)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def clients(source):
    return source / "tests" / "conform" / "clients"


@pytest.fixture(scope="module")
def modules(clients, build):
    """Where memjs is."""
    return npm.install(clients, build / "conform-clients")


@pytest.mark.parametrize("protocol", ["-a", "-b"], ids=["text", "binary"])
def test_memccapable(shared, protocol):
    """libmemcached's own test of servers."""
    output = run("memccapable", "-h", shared.address[0], "-p", shared.address[1], "-t", PATIENCE_S, protocol)
    verdicts = [line for line in output.splitlines() if line.startswith(("ascii", "binary"))]
    assert len(verdicts) > 20
    assert all("[pass]" in line for line in verdicts), output


def test_pymemcache(shared, clients):
    run(sys.executable, clients / "use_pymemcache.py", *shared.address)


def test_pymemcache_unix_socket(command, clients, tmp_path):
    path = tmp_path / "socket"
    with Peer(command, "-s", path, listen=False, address=path):
        run(sys.executable, clients / "use_pymemcache.py", path)


@pytest.mark.parametrize("protocol", ["text", "binary"])
def test_pylibmc(shared, clients, protocol):
    run(sys.executable, clients / "use_pylibmc.py", *shared.address, protocol)


def test_pylibmc_with_a_password(sasl_server, clients):  # noqa: F811
    run(sys.executable, clients / "use_pylibmc.py", *sasl_server.address, "binary", "joe", "secret")


@pytest.mark.parametrize("protocol", ["text", "binary"])
def test_php(shared, clients, protocol):
    run("php", clients / "use_php.php", *shared.address, protocol)


def test_memjs(shared, clients, modules):
    run("node", clients / "use_memjs.js", *shared.address,
        env={**os.environ, "NODE_PATH": str(modules)})


def test_memjs_with_a_password(sasl_server, clients, modules):  # noqa: F811
    run("node", clients / "use_memjs.js", *sasl_server.address, "joe", "secret",
        env={**os.environ, "NODE_PATH": str(modules)})


def test_libmemcached_tools(shared, tmp_path):
    """memccp stores a file under its name, memccat prints it, and so on."""
    servers = f"--servers={shared.address[0]}:{shared.address[1]}"
    path = tmp_path / "a-file"
    path.write_text("content\n")
    run("memcping", servers)
    run("memccp", servers, path)
    assert "content" in run("memccat", servers, "a-file")
    run("memcexist", servers, "a-file")
    run("memctouch", servers, "--expire=100", "a-file")
    run("memcrm", servers, "a-file")
    assert "curr_items" in run("memcstat", servers)
    run("memcflush", servers)

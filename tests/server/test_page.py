# SPDX-License-Identifier: Apache-2.0
"""Goal: a person who opens the page sees what the server does: figures that move, a tenant that is held back, a slave or a master that
goes away and comes back, and that the server has gone. Method: a real browser, driven through playwright. FAIRWAY_SHOT names a file for a picture of the page."""

import json
import os
import shutil
import subprocess

import pytest
from served import HELD_BACK, flood
from support import npm
from test_http import Watched
from test_repl import replication_address

REPLICATED = ["-t", "1", "--repl-enable", "--repl-port", "0", "--repl-retry", "10ms"]


class Browser:
    def __init__(self, source, build, address):
        program = source / "tests" / "server" / "page" / "look.js"
        modules = npm.install(program.parent, build / "page-browser")
        self.process = subprocess.Popen(["node", program, address, shutil.which("chromium")], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env={**os.environ, "NODE_PATH": str(modules)})
        assert self.read() is True

    def read(self):
        line = self.process.stdout.readline()
        assert line, "the browser ended"
        return json.loads(line)

    def __call__(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        return self.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def text(id_):
    return f"document.getElementById('{id_}').textContent"


@pytest.mark.needs("chromium")
def test_a_flood_is_seen_to_be_held_back(fairway, source, build, tmp_path):
    configuration = tmp_path / "fairway.ini"
    configuration.write_text(HELD_BACK)
    with Watched(fairway, "--config", str(configuration), *REPLICATED) as server, \
            Watched(fairway, *REPLICATED, "--repl-master", replication_address(server)):
        with opened(source, build, server) as browser:
            browser("wait", f"{text('state')} === 'live'")
            browser("wait", f"{text('replication')}.includes('streaming')")
            browser("wait", f"{text('tenants')}.includes('batch')")
            assert "held back" not in browser("value", text("tenants"))
            with flood(server, b"web"), flood(server, b"batch"):
                browser("wait", f"{text('tenants')}.includes('batchheld back')")
                assert "webheld back" not in browser("value", text("tenants"))
                browser("wait", "document.querySelectorAll('#requests path').length === 2")
                browser("wait", "parseInt(document.querySelector('#tiles b').textContent) > 0")
                if "FAIRWAY_SHOT" in os.environ:
                    browser("wait", "history.requests.get('set').length > 30")
                    browser("shot", os.environ["FAIRWAY_SHOT"])
            browser("wait", f"!{text('tenants')}.includes('held back')")
            server.process.terminate()
            browser("wait", f"{text('state')}.startsWith('not reachable')")
            assert browser("errors") == []


def kill(server):
    """Ends it as a machine does that loses its power."""
    server.process.kill()
    server.process.wait()
    server.process.returncode = 0  # It is not asked whether it ended well.


def opened(source, build, server):
    return Browser(source, build, "http://{}:{}/".format(*server.http))


@pytest.mark.needs("chromium")
def test_a_slave_is_seen_to_go_and_to_come_back(fairway, source, build):
    with Watched(fairway, *REPLICATED) as master, opened(source, build, master) as browser:
        browser("wait", f"{text('role')} === 'master, followed by 0 of at most 5 slaves'")
        follow = [*REPLICATED, "--repl-master", replication_address(master)]
        with Watched(fairway, *follow) as slave:
            browser("wait", f"{text('replication')}.includes('streaming')")
            assert "gone" not in browser("value", text("replication"))
            assert "followed by 1 of" in browser("value", text("role"))
            kill(slave)
        browser("wait", f"{text('replication')}.includes('gone')")
        assert "followed by 0 of" in browser("value", text("role"))
        with Watched(fairway, *follow):
            browser("wait", f"{text('replication')}.includes('streaming')")
            assert "gone" not in browser("value", text("replication"))
        assert browser("errors") == []


@pytest.mark.needs("chromium")
def test_a_slave_shows_that_it_has_lost_its_master(fairway, source, build):
    with Watched(fairway, *REPLICATED) as master:
        with Watched(fairway, *REPLICATED, "--repl-master", replication_address(master)) as slave:
            with opened(source, build, slave) as browser:
                browser("wait", f"{text('role')}.startsWith('slave')")
                browser("wait", f"{text('replication')}.includes('streaming')")
                assert "not connected" not in browser("value", text("replication"))
                kill(master)
                browser("wait", f"{text('replication')}.includes('not connected')")
                assert browser("errors") == []

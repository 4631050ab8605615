# SPDX-License-Identifier: Apache-2.0
"""Goal: a person who opens the page sees what the server does: figures that move, a tenant that is held back, a slave or a master that
goes away and comes back, and that the server has gone. Method: a real browser, driven through playwright. FAIRWAY_SHOT names a file for a picture of the page."""

import json
import os
import shutil
import subprocess
import threading

import pytest
from served import HELD_BACK
from support import npm
from test_http import Watched
from test_repl import replication_address

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


class Load:
    """A client that writes keys of one tenant as fast as it is let, until the end."""

    def __init__(self, server, prefix):
        self.client = server.connect()
        self.prefix = prefix
        self.is_over = False
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.is_over:
            batch = b"".join(b"set %s:%d 0 0 5\r\nhello\r\n" % (self.prefix, i) for i in range(20))
            self.client.ask(batch, 20)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.thread.join()
        self.client.close()


def text(id_):
    return f"document.getElementById('{id_}').textContent"


@pytest.mark.needs("chromium")
def test_a_flood_is_seen_to_be_held_back(fairway, source, build, tmp_path):
    configuration = tmp_path / "fairway.ini"
    configuration.write_text(HELD_BACK)
    with Watched(fairway, "--config", str(configuration), "-t", "1") as server:
        with Browser(source, build, "http://{}:{}/".format(*server.http)) as browser:
            browser("wait", f"{text('state')} === 'live'")
            browser("wait", f"{text('tenants')}.includes('batch')")
            assert "held back" not in browser("value", text("tenants"))
            with Load(server, b"web"), Load(server, b"batch"):
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


REPLICATED = ["-t", "1", "--repl-enable", "--repl-port", "0", "--repl-retry", "10ms"]


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

# SPDX-License-Identifier: Apache-2.0
"""Goal: what clients chose, or a server that is not ours says, does not steer the terminal of who uses the tools.
Method: a server that answers everything with control characters, and the tools that print what it says."""

import socket
import subprocess
import threading

import pytest

EVIL = "\x1b]0;owned\x07\x1b[31m\x7f\u009b2J"


class Evil:
    """Answers each line that comes."""

    def __init__(self, answer):
        self.answer = answer.encode()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return  # The test is over.
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client, client.makefile("rwb") as file:
            for _ in file:
                file.write(self.answer)
                file.flush()

    def __enter__(self):
        self.thread.start()
        return "{}:{}".format(*self.listener.getsockname())

    def __exit__(self, *_):
        self.listener.close()


@pytest.mark.parametrize("answer", [
    f"STAT pid 1\r\nSTAT {EVIL}:cost 5\r\nSTAT version {EVIL}\r\nEND\r\n",
    f"ERROR {EVIL}\r\n",
    f"SERVER_ERROR {EVIL}\r\n",
], ids=["rows", "error", "server error"])
@pytest.mark.parametrize("tool", [("stats",), ("stats", "tenants"), ("top", "--once"), ("dump", "DUMP")], ids=" ".join)
def test_what_is_printed_is_tame(fairway, tmp_path, tool, answer):
    with Evil(answer) as address:
        words = [str(tmp_path / "dump") if word == "DUMP" else word for word in tool]
        done = subprocess.run([fairway, words[0], "--server", address, *words[1:]], capture_output=True, timeout=60, check=False)
    shown = (done.stdout + done.stderr).decode()
    assert shown.strip() != ""
    assert not [c for c in shown if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160], shown

# SPDX-License-Identifier: Apache-2.0
"""Who reads a page and does as it says, in a folder, with as many terminals as the page has."""

import os
import re
import subprocess

import cluster as clusters
import page as pages
from terminal import Terminal, Wrong

# What is typed in place of commands that a test cannot give.
INSTEAD = {
    # This test is a part of it.
    "make check": "make --dry-run check",
    # It takes the better part of an hour.
    "make bench": "make --dry-run bench",
    # Nodes have a Corosync of their own each, but only one service manager.
    "systemctl enable --now corosync": "start-corosync",
}


class Reader:
    """`cluster` is where the terminals of nodes are; None: the page has none."""

    def __init__(self, folder, cluster):
        self.folder = folder
        self.cluster = cluster
        self.terminals = {}
        self.environment = {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "dumb",
                            "PATH": f"{folder}/bin:{folder}/build:{clusters.path()}"}
        for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
            self.environment.pop(name, None)  # As in a terminal, also if make runs this test.

    def node(self, name):
        """Where a terminal of that name is; None: on no node of a cluster."""
        found = re.match(r"node(\d)", name)
        return self.cluster.nodes[int(found[1]) - 1] if found else None

    def terminal(self, name):
        if name not in self.terminals:
            node = self.node(name)
            start = node.start if node else subprocess.Popen
            self.terminals[name] = Terminal(
                lambda *arguments, **options: start(*arguments, cwd=self.folder, env=self.environment, **options))
        return self.terminals[name]

    def follow(self, page):
        for step in page.steps:
            if isinstance(step, pages.File):
                (self.folder / step.name).write_text(step.text)
                continue
            step.text = INSTEAD.get(step.text, step.text)
            try:
                if step.text == "start-corosync":
                    self.node(step.terminal).corosync_start()
                else:
                    self.terminal(step.terminal).run(step)
            except Wrong as wrong:
                raise Wrong(f"line {step.line}, $ {step.text}\n{wrong}") from None

    def close(self):
        for terminal in self.terminals.values():
            terminal.close()

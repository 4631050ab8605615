# SPDX-License-Identifier: Apache-2.0
"""Terminals in which the commands of a page are typed: a bash each, which keeps what `cd`, `exec` and `export`
did. There is no terminal device behind it: nothing waits at a prompt, and nothing is coloured."""

import itertools
import os
import shlex
import signal
import subprocess
import threading

import page as pages

DEADLINE_S = 3600  # Far longer than any command of a page takes, on any machine: one of them is `make run`.
SHELL = ["bash", "--noprofile", "--norc"]


class Wrong(AssertionError):
    """A command did not do what the page says."""


def hear_interrupts():
    """For the shell: who was started in the background has inherited that ^C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    serial = itertools.count()

    def __init__(self, start):
        """`start` starts a program as subprocess.Popen does."""
        self.process = start(SHELL, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             start_new_session=True, preexec_fn=hear_interrupts)
        self.mark = None  # What the shell says when the last command has ended; None: it has.
        self.output = ""  # Since then.
        self.changed = threading.Condition()  # Guards the output.
        self.is_over = False  # The shell has ended.
        self.reader = threading.Thread(target=self._read)  # So that nothing waits for us to look.
        self.reader.start()
        self._type("trap : INT")  # ^C ends what the shell runs, not the shell.

    def _type(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def _read(self):
        while data := os.read(self.process.stdout.fileno(), 65536):
            with self.changed:
                self.output += data.decode(errors="replace").replace("\r", "")
                self.changed.notify()
        with self.changed:
            self.is_over = True
            self.changed.notify()

    def _wait(self, condition):
        """Until that is true of the output, or nothing more comes."""
        self.changed.wait_for(lambda: condition() or self.is_over, DEADLINE_S)

    def _status(self):
        """The exit status of the last command, None while it runs; takes the mark out of the output."""
        before, found, rest = self.output.partition(self.mark)
        if not found or "\n" not in rest:
            return None
        status, _, late = rest.partition("\n")
        self.output = before + late
        self.mark = None
        return int(status)

    def run(self, command):
        """Types a command and holds what happens against what the page says."""
        with self.changed:
            self._run(command)

    def _run(self, command):
        if command.text == pages.INTERRUPT:
            self._interrupt(command)
            return
        if self.mark is not None:
            raise Wrong(f"typed while the command before still runs; that has shown:\n{self.output}")
        self.output = ""
        self.mark = f"<{next(self.serial)} has ended with "
        # Through eval, so that what it does to the shell stays, and what reads its input finds none.
        self._type(f"eval {shlex.quote(command.text)} </dev/null\nprintf '%s%d\\n' {shlex.quote(self.mark)} $?")
        wanted = pages.pattern(command.shown, command.figures)
        if command.stays:
            self._wait(lambda: wanted.search(self.output) or self.mark in self.output)
            if not wanted.search(self.output):
                raise Wrong(f"does not show what it should, but\n{self.output}")
            return
        status = self._end()
        if status is None:
            raise Wrong(f"does not end; so far it has shown\n{self.output}")
        if (status != 0) != command.fails:
            raise Wrong(f"ended with status {status}, and has shown\n{self.output}")
        if command.shown:
            self._wait(lambda: self._matches(wanted) or not is_background(command.text))
            if not self._matches(wanted):
                raise Wrong(f"shows\n{self.output}")

    def _matches(self, wanted):
        return wanted.fullmatch(self.output.rstrip("\n") + "\n") is not None

    def _end(self):
        """Waits for the end of what runs; returns its status, None if it does not end."""
        status = None

        def has_ended():
            nonlocal status
            status = self._status()
            return status is not None

        self._wait(has_ended)
        return status

    def _interrupt(self, command):
        if self.mark is None:
            raise Wrong("nothing runs here that could be interrupted")
        os.killpg(self.process.pid, signal.SIGINT)
        if self._end() is None:
            raise Wrong(f"^C does not end it; it has shown\n{self.output}")
        if not pages.pattern(command.shown, command.figures).search(self.output):
            raise Wrong(f"after ^C it has shown\n{self.output}")

    def close(self):
        """Ends the shell and all it has started."""
        self.process.stdin.close()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(timeout=DEADLINE_S)
        self.reader.join(DEADLINE_S)
        self.process.stdout.close()


def is_background(text):
    """True if the shell does not wait for it: what it shows may come later than its end."""
    return text.rstrip().endswith("&")

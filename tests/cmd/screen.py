# SPDX-License-Identifier: Apache-2.0
"""A terminal for tests: a program on a pseudo-terminal, and a reading of what it shows.

Only the sequences are known that `fairway top` has a reason to send; any other fails the test."""

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time

from support.patience import PATIENCE_S

SEQUENCE = re.compile(rb"\033\[(\??)([0-9;]*)([A-Za-z])")


class Screen:
    """What a person would see."""

    def __init__(self, columns, lines):
        self.columns, self.lines = columns, lines
        self.is_other = False  # The alternate screen.
        self.is_whole = False  # A picture begins at the top left and ends with what is below it cleared.
        self.has_cursor = True
        self.wraps = True
        self.style = b""
        self.styles = set()
        self.rest = b""
        self.clear()

    def clear(self):
        self.rows = [[" "] * self.columns for _ in range(self.lines)]
        self.row = self.column = 0

    def resize(self, columns, lines):
        self.columns, self.lines = columns, lines
        self.clear()

    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.rows).rstrip()

    def feed(self, data):
        data, self.rest = self.rest + data, b""
        while data:
            if data[0:1] == b"\033":
                found = SEQUENCE.match(data)
                if found is None:
                    assert len(data) < 16, f"an unknown sequence: {data[:16]}"
                    self.rest = data
                    return
                self.obey(*found.groups())
                data = data[found.end():]
            else:
                self.put(data[0])
                data = data[1:]

    def put(self, byte):
        if byte == 13:
            self.column = 0
        elif byte == 10:
            assert self.row + 1 < self.lines or not self.is_other, "the picture scrolls"
            self.row = min(self.row + 1, self.lines - 1)
        else:
            assert 32 <= byte < 127, byte
            assert self.column < self.columns, "a line is too long"
            self.rows[self.row][self.column] = chr(byte)
            self.column += 1

    def obey(self, private, numbers, letter):
        what = (private + numbers, letter)
        if letter == b"m":
            self.style = numbers
            self.styles.add(numbers)
        elif what == (b"", b"H"):
            self.row = self.column = 0
            self.is_whole = False
        elif what == (b"", b"K"):
            self.rows[self.row][self.column:] = [" "] * (self.columns - self.column)
        elif what == (b"", b"J"):
            self.rows[self.row][self.column:] = [" "] * (self.columns - self.column)
            for row in self.rows[self.row + 1:]:
                row[:] = [" "] * self.columns
            self.is_whole = True
        elif what == (b"2", b"J"):
            self.clear()
        elif what[0] == b"?1049":
            self.is_other = letter == b"h"
            self.clear()
        elif what[0] == b"?25":
            self.has_cursor = letter == b"h"
        elif what[0] == b"?7":
            self.wraps = letter == b"h"
        else:
            raise AssertionError(f"an unknown sequence: {what}")


class Terminal:
    """A program that has a terminal. Ended when the test ends."""

    def __init__(self, *command, columns=104, lines=30, environment=None):
        self.screen = Screen(columns, lines)
        self.status = None
        parent, child = pty.openpty()
        fcntl.ioctl(parent, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before = termios.tcgetattr(child)
        self.descriptor, self.child = parent, child  # Kept open, to see how it was left.
        self.process = os.fork()
        if self.process == 0:
            try:
                os.setsid()
                fcntl.ioctl(child, termios.TIOCSCTTY, 0)
                for number in range(3):
                    os.dup2(child, number)
                os.closerange(3, 256)
                os.execve(command[0], [str(word) for word in command],
                          {**os.environ, "TERM": "xterm", **(environment or {})})
            finally:
                os._exit(127)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            os.kill(self.process, 9)
            os.waitpid(self.process, 0)
        os.close(self.child)
        os.close(self.descriptor)

    def read(self, wait_s):
        while select.select([self.descriptor], [], [], wait_s)[0]:
            self.screen.feed(os.read(self.descriptor, 65536))
            wait_s = 0

    def wait(self, condition):
        """Until the screen shows a whole picture that is as it should be."""
        self.wait_for(lambda: self.screen.is_whole and condition(self.screen))

    def wait_for(self, condition):
        deadline = time.monotonic() + PATIENCE_S
        self.read(0)
        while not condition():
            assert time.monotonic() < deadline, f"still:\n{self.screen.text()}"
            self.read(0.1)

    def press(self, keys):
        os.write(self.descriptor, keys)

    def resize(self, columns, lines):
        """To a smaller size: what a program sends for the old one would not fit the new one."""
        self.screen.resize(max(columns, self.screen.columns), max(lines, self.screen.lines))
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def signal(self, number):
        os.kill(self.process, number)

    def wait_stopped(self):
        deadline = time.monotonic() + PATIENCE_S
        while os.waitpid(self.process, os.WNOHANG | os.WUNTRACED)[0] == 0:
            assert time.monotonic() < deadline
            self.read(0.1)

    def end(self):
        """Waits for its end, and returns the status as the shell has it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.read(0.02)
            process, status = os.waitpid(self.process, os.WNOHANG)
            if process != 0:
                break
            assert time.monotonic() < deadline
        self.status = status
        return status

    def is_as_before(self):
        """Whether the terminal is left as it was found. What the program wrote last may still be on its way to us."""
        screen = self.screen
        self.wait_for(lambda: not screen.is_other and screen.has_cursor and screen.wraps and screen.style == b"")
        return termios.tcgetattr(self.child) == self.before

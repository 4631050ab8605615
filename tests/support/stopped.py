# SPDX-License-Identifier: Apache-2.0
"""Stops a process so that it does nothing more until it gets SIGCONT."""

import os
import pathlib
import signal
import time

from support.patience import PATIENCE_S


def is_running(task):
    """Whether the thread, a folder of /proc/PID/task, still runs; one that has ended does not."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] != "T"
    except (FileNotFoundError, ProcessLookupError):
        return False


def stop(pid):
    """SIGSTOP takes effect some time after it was sent: this waits until every thread has stopped."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE_S
    while any(is_running(task) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline, f"process {pid} goes on"
        time.sleep(0.001)

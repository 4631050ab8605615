# SPDX-License-Identifier: Apache-2.0
"""Runs commands that may hang, crash, fork or write without end."""

import os
import resource
import signal
import subprocess
import threading
import time
from typing import NamedTuple


class Ended(NamedTuple):
    status: int  # As subprocess has it: negative for a signal.
    timed_out: bool
    seconds: float


OUTPUT_MAX = 1 << 30
MEMORY_MAX_MB = 2048  # Enforced by the sanitizers, whose address space no rlimit can bound.

_lock = threading.Lock()
_running = set()
_stopping = False


def limit_resources():
    """For this process and all it starts: no core files, no output without end."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    soft = OUTPUT_MAX if hard == resource.RLIM_INFINITY else min(OUTPUT_MAX, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def run(command, cwd, environment=None, limit=None, output=os.devnull):
    """Runs `command` in a process group of its own, all of which is gone when this returns."""
    begin = time.monotonic()
    timed_out = False
    with open(output, "wb") as sink:
        with _lock:
            if _stopping:
                raise KeyboardInterrupt
            process = subprocess.Popen(
                command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=sink,
                stderr=subprocess.STDOUT, start_new_session=True)
            _running.add(process.pid)
        try:
            process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            _kill_group(process.pid)  # What a test left running would disturb the next one.
            process.wait()
            with _lock:
                _running.discard(process.pid)
    if _stopping:
        raise KeyboardInterrupt
    return Ended(process.returncode, timed_out, time.monotonic() - begin)


def stop_all():
    """Ends what is running and starts nothing more; the threads that wait for it come back."""
    global _stopping
    with _lock:
        _stopping = True
        for group in _running:
            _kill_group(group)


def _kill_group(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass

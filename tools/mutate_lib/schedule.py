# SPDX-License-Identifier: Apache-2.0
"""Shares work out to several workshops.

Each gets a run of neighbours, so that it mostly stays in one file and one module and rebuilds
little; who has finished takes from the end of the longest run that is left.
"""

import collections
import threading


class Shares:
    def __init__(self, items, count):
        step = -(-len(items) // count) if items else 1
        self._queues = [collections.deque(items[i * step:(i + 1) * step]) for i in range(count)]
        self._lock = threading.Lock()

    def take(self, worker):
        """The next item for `worker`, or None."""
        with self._lock:
            if self._queues[worker]:
                return self._queues[worker].popleft()
            longest = max(self._queues, key=len)
            return longest.pop() if longest else None


def run(items, workshops, action, stop):
    """Calls action(workshop, item) for all items; an exception of one call ends them all.

    `stop` is called then, to bring the other threads back from what they wait for.
    """
    shares = Shares(items, len(workshops))
    errors = []

    def work(number):
        try:
            while not errors:
                item = shares.take(number)
                if item is None:
                    return
                action(workshops[number], item)
        except BaseException as error:  # Told to the caller, below.
            errors.append(error)
            stop()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(workshops))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:
        stop()
        for thread in threads:
            thread.join()
        raise
    if errors:
        raise errors[0]

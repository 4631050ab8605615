#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends the same random conversations to two servers and compares every reply.

    differential.py --seed 7 --commands 20000 --left 'memcached -m 1024' --right 'fairway serve -m 1024'

generate.py makes the conversations and normalise.py says what counts as equal. A conversation is a
connection: all of it is sent, cut at random places, then our side is closed, and what comes back
until the other side closes is the answer. So a server that stops listening early, or forgets a
reply, or waits for more than it was promised, is found without a clock.

After a difference both servers start afresh, and the conversations that led to it are repeated and
cut down as far as the difference stays. explained.ini lists differences that are meant to be, each
with its reason. Exit status: 0 none, 1 a difference, 2 a mistake in the call.
"""

import argparse
import configparser
import contextlib
import os
import pathlib
import random
import re
import select
import shlex
import socket
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # For `support`.

import generate  # noqa: E402
import normalise  # noqa: E402
from peer import Peer, open_socket  # noqa: E402
from support.patience import PATIENCE_S  # noqa: E402

EXPLAINED = pathlib.Path(__file__).with_name("explained.ini")
WRONG_CAS = 999999999999999999
EAGER_MAX = 64 * 1024  # So much fits into the sockets' buffers, whoever reads when.
EXPIRY_S, EXPIRED_S = 2, 5
GOOD_BYE_S = 2
SHRINK_S = 90  # How long a failing case is made smaller, unless told otherwise.
SHOWN_MAX = 2000
# memcached differs from itself about once in some million commands, whatever is avoided. A difference
# that does not come again on fresh servers is shown, and counts if there is more than one in so many.
UNREPEATED_PER = 500000


class Explained:
    """Pairs of patterns that count as equal."""

    def __init__(self, path):
        parser = configparser.ConfigParser(interpolation=None)
        parser.read(path)
        self.rules = []
        self.used = {}
        for name in parser.sections():
            entry = parser[name]
            if not entry.get("reason"):
                raise SystemExit(f"{path}: {name} has no reason")
            self.rules.append((name, re.compile(entry["left"].encode(), re.DOTALL),
                               re.compile(entry["right"].encode(), re.DOTALL)))

    def covers(self, left, right):
        for name, one, two in self.rules:
            if one.fullmatch(left) and two.fullmatch(right):
                self.used[name] = self.used.get(name, 0) + 1
                return True
        return False


class Pair:
    """Two servers, and what is known of their CAS values."""

    def __init__(self, commands, explained):
        self.commands = commands
        self.explained = explained
        self.stack = contextlib.ExitStack()
        self.cas = normalise.CasPairs()
        self.peers = []

    def __enter__(self):
        with self.stack as stack:  # So that no server is left if the other does not start.
            self.peers = [stack.enter_context(Started(command)) for command in self.commands]
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def hold(self, conversation):
        """None, or the difference: a text and both replies."""
        sent = [render(conversation, self.cas, side) for side in (0, 1)]
        got = converse([peer.address for peer in self.peers], sent, conversation.pace,
                       conversation.says_good_bye)
        for peer in self.peers:
            if peer.process.poll() is not None:
                return f"{peer.base[0]} ended: {peer.read_log()[-SHOWN_MAX:]}", got
        if conversation.is_binary:
            left, right = (normalise.of_packets(data, key_of) for data in got)
        else:
            left, right = map(normalise.of_text, got)
        complaint = self.compare(left, right)
        return complaint and (complaint, got)

    def compare(self, left, right):
        if left.units != right.units:
            for number, (one, two) in enumerate(zip(left.units, right.units)):
                if one != two and not self.explained.covers(one, two):
                    return f"reply {number}: left {show(one)}\n          right {show(two)}"
            if len(left.units) != len(right.units):
                longer = max(left.units, right.units, key=len)
                number = min(len(left.units), len(right.units))
                side = "left" if longer is left.units else "right"
                return f"reply {number}: only {side} answers, {show(longer[number])}"
        if len(left.cas) == len(right.cas) and (complaint := self.cas.match(left.cas, right.cas)):
            return complaint
        for one, two in zip(left.times, right.times):
            if abs(one - two) > normalise.CLOCK_TOLERANCE_S:
                return f"a time: left {one}, right {two}"
        return None


class Started(Peer):
    """A server of which nothing is kept: at the end it is killed, which is quick."""

    def __init__(self, command):
        super().__init__(shlex.split(command))

    def __exit__(self, kind, value, traceback):
        self.process.kill()
        self.process.wait()
        self.log.close()


def key_of(opaque):
    return generate.ALL_KEYS[opaque] if opaque < len(generate.ALL_KEYS) else None


def render(conversation, cas, side):
    """The bytes for the left (0) or the right (1) server."""
    pieces = []
    for command in conversation.commands:
        pieces.append(command.before)
        if command.cas is not None:
            key, age, is_binary = command.cas
            if age == generate.WRONG:
                value = WRONG_CAS
            else:
                table = cas.current if age == generate.CURRENT else cas.older
                value = table.get(key, (1, 1))[side]
            pieces.append(value.to_bytes(8, "big") if is_binary else b"%d" % value)
            pieces.append(command.after)
    return b"".join(pieces)


def cut(data, pace):
    """The pieces in which the bytes are sent: one, a few, or many small ones."""
    chance = random.Random(pace)
    kind = chance.randrange(4)
    if kind < 2 or len(data) > EAGER_MAX:
        return [data]
    if kind == 2:
        places = sorted(chance.randrange(len(data)) for _ in range(chance.randrange(1, 9)))
    else:
        places = list(range(0, min(len(data), 400), chance.randrange(1, 8)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)])]


def converse(addresses, sent, pace, says_good_bye=False):
    """Says it to both, and returns what each answered until it closed."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(open_socket(address)) for address in addresses]
        for connection, data in zip(sockets, sent):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if len(data) > EAGER_MAX:
                continue
            with contextlib.suppress(OSError):  # It closed on us, as it may.
                for piece in cut(data, pace):
                    connection.sendall(piece)
                if not says_good_bye:
                    connection.shutdown(socket.SHUT_WR)
        return [read_all(connection) if len(data) <= EAGER_MAX else
                send_and_read(connection, data, says_good_bye)
                for connection, data in zip(sockets, sent)]


def read_all(connection):
    """Until the end. Who goes on waiting after a good-bye has not understood it; then we close."""
    chunks = []
    connection.settimeout(GOOD_BYE_S)
    while True:
        try:
            while data := connection.recv(1 << 18):
                chunks.append(data)
        except ConnectionError:
            pass
        except TimeoutError:
            if connection.gettimeout() == GOOD_BYE_S:
                connection.settimeout(PATIENCE_S)
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
                continue
            chunks.append(b"(nothing more came)")
        return b"".join(chunks)


def send_and_read(connection, data, says_good_bye):
    """For what is too long to be sent before reading: both at the same time."""
    connection.setblocking(False)
    view, chunks = memoryview(data), []
    while True:
        readable, writable, _ = select.select([connection], [connection] if view else [], [],
                                              PATIENCE_S)
        if not readable and not writable:
            return b"".join(chunks) + b"(nothing more came)"
        try:
            if writable:
                view = view[connection.send(view):]
                if not view and not says_good_bye:
                    connection.shutdown(socket.SHUT_WR)
            if readable:
                chunks.append(connection.recv(1 << 18))
                if not chunks[-1]:
                    return b"".join(chunks)
        except BlockingIOError:
            pass
        except ConnectionError:  # Closed on us; what it said before is still there.
            return b"".join([*chunks, read_all(connection)])


def show(data):
    text = repr(data)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}... ({len(data)} bytes)"


class Shrinker:
    """Looks for the shortest sequence that still shows a difference."""

    def __init__(self, commands, explained, seconds):
        self.commands = commands
        self.explained = explained
        self.deadline = time.monotonic() + seconds

    def fails(self, conversations):
        with Pair(self.commands, self.explained) as pair:
            return any(pair.hold(conversation) for conversation in conversations)

    def shrink(self, history):
        """The end of the history that is enough, then less and less of it."""
        size = 1
        while size < len(history) and not self.fails(history[-size:]):
            size *= 2
        kept = history[-size:]
        if size >= len(history) and not self.fails(kept):
            return None
        kept = self.without(kept, lambda chunk: chunk)
        for place in reversed(range(len(kept))):
            def rebuilt(commands, place=place):
                return kept[:place] + [kept[place]._replace(commands=commands)] + kept[place + 1:]

            kept = rebuilt(self.without(kept[place].commands, rebuilt))
        return kept

    def without(self, items, rebuilt):
        """Leaves out ever smaller parts of the items as long as what is rebuilt of the rest fails."""
        size = max(1, len(items) // 2)
        while time.monotonic() < self.deadline:
            place = 0
            while place < len(items) and len(items) > 1 and time.monotonic() < self.deadline:
                rest = items[:place] + items[place + size:]
                if rest and self.fails(rebuilt(rest)):
                    items = rest
                else:
                    place += size
            if size == 1:
                break
            size //= 2
        return items


def report(options, number, history, difference, explained):
    """Prints all that is needed to understand and to repeat it. Returns whether it came again; without
    shrinking that is taken for granted."""
    complaint, got = difference
    print(f"\nDIFFERENCE in conversation {number} of seed {options.seed}:\n  {complaint}")
    shrinker = Shrinker((options.left, options.right), explained, options.shrink_seconds)
    kept = shrinker.shrink(history) if options.shrink else None
    repeated = kept is not None or not options.shrink
    if kept is None:
        print("  not repeated with fresh servers; all of that conversation:")
        kept = history[-1:]
    else:
        print("  the shortest that still differs, on fresh servers:")
        with Pair((options.left, options.right), explained) as pair:
            for conversation in kept:
                complaint, got = pair.hold(conversation) or (complaint, got)
    for conversation in kept:
        print("  connection:")
        for command in conversation.commands:
            cas = f" CAS{command.cas} {show(command.after)}" if command.cas else ""
            print(f"    {show(command.before)}{cas}")
    print(f"  {complaint}\n  left:  {show(got[0])}\n  right: {show(got[1])}", flush=True)
    return repeated


def run(options):
    """Returns the number of differences."""
    explained = Explained(options.explained)
    commands = done = differences = unrepeated = 0
    started = time.monotonic()
    stack = contextlib.ExitStack()
    history = []

    def fresh():
        stack.close()
        history.clear()
        return stack.enter_context(Pair((options.left, options.right), explained))

    def check(conversation):
        nonlocal pair, commands, done, differences, unrepeated
        history.append(conversation)
        commands += len(conversation.commands)
        done += 1
        difference = pair.hold(conversation)
        if difference:
            if report(options, done, list(history), difference, explained):
                differences += 1
            else:
                unrepeated += 1
            if unrepeated > options.commands // UNREPEATED_PER:
                differences += unrepeated
                unrepeated = 0
            pair = fresh()
        return differences < options.differences

    with stack:
        pair = fresh()
        going_on = check(generate.short_lived(EXPIRY_S))
        stored = time.monotonic()
        for conversation in generate.conversations(options.seed, options.commands):
            if not going_on:
                break
            going_on = check(conversation)
        if going_on and differences == unrepeated == 0:  # Else the servers may be others.
            time.sleep(max(0.0, stored + EXPIRED_S - time.monotonic()))
            check(generate.expired())
    words = f"{differences} differences" if differences else "no difference"
    print(f"{commands} commands in {done} conversations, seed {options.seed}: {words}, "
          f"{time.monotonic() - started:.0f} s")
    if unrepeated:
        print(f"  and {unrepeated} that did not come again, which memcached alone may have caused")
    for name, uses in sorted(explained.used.items()):
        print(f"  explained: {name}, {uses} times")
    return differences


def main():
    build = pathlib.Path(os.environ.get("FAIRWAY_BUILD", "build"))
    parser = argparse.ArgumentParser(description="Compares the replies of two servers.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commands", type=int, default=20000)
    parser.add_argument("--left", default="memcached -m 1024", help="a command; flags are added")
    parser.add_argument("--right", default=f"{build / 'fairway'} serve -m 1024")
    parser.add_argument("--differences", type=int, default=1, help="stop after so many")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false")
    parser.add_argument("--shrink-seconds", type=float, default=SHRINK_S, help="how long that may take")
    parser.add_argument("--explained", default=EXPLAINED, help="the list of meant differences")
    return 1 if run(parser.parse_args()) else 0


if __name__ == "__main__":
    sys.exit(main())

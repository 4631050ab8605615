# SPDX-License-Identifier: Apache-2.0
"""Ports for programs that have to be told one, and a port that refuses connections.

A port that was free a moment ago can be taken by a program that lets the kernel choose. So each process that runs tests has
an address of the loopback of its own, made of its number, where nobody else listens."""

import contextlib
import os
import socket


def own_address():
    number = os.getpid()  # Of at most 22 bits.
    return f"127.{64 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


ADDRESS = own_address()


@contextlib.contextmanager
def bound_port():
    """A port of ADDRESS that refuses connections and that nobody else gets, for the time of a `with` block."""
    with socket.socket() as taken:
        taken.bind((ADDRESS, 0))
        yield taken.getsockname()[1]


def free_ports(count):
    """Ports of ADDRESS that are free, and differ from each other."""
    with contextlib.ExitStack() as stack:
        return [stack.enter_context(bound_port()) for _ in range(count)]


def free_port():
    return free_ports(1)[0]

# SPDX-License-Identifier: Apache-2.0
"""Goal: the text protocols answer byte for byte as memcached does, however the bytes arrive.
Method: conversations from data/*.txt, each on a connection of its own: step by step, all at once,
and one byte at a time."""

import pathlib

import pytest

import transcript

DATA = pathlib.Path(__file__).parent / "data"
BYTEWISE_MAX = 20000  # Longer conversations are about size, and take too long in single bytes.

ALL = [(path.stem, conversation) for path in sorted(DATA.glob("*.txt"))
       for conversation in transcript.load(path)]
AT_ANY_PACE = [(name, conversation) for name, conversation in ALL
               if not conversation.in_steps and not conversation.captures]


def named(conversations):
    return pytest.mark.parametrize(
        "conversation", [conversation for _, conversation in conversations],
        ids=[f"{name}: {conversation.title}" for name, conversation in conversations])


@named(ALL)
def test_in_steps(client, conversation):
    transcript.hold(conversation, client)
    reopen_if_closed(client, conversation)


@named(AT_ANY_PACE)
def test_at_once(client, conversation):
    transcript.hold_in_one_go(conversation, client, lambda request: [request])
    reopen_if_closed(client, conversation)


@named([entry for entry in AT_ANY_PACE if entry[1].size < BYTEWISE_MAX])
def test_byte_by_byte(client, conversation):
    transcript.hold_in_one_go(conversation, client,
                              lambda request: [bytes([byte]) for byte in request])
    reopen_if_closed(client, conversation)


def reopen_if_closed(client, conversation):
    """The fixture asks once more at the end."""
    if conversation.closes:
        client.reopen()

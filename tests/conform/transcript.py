# SPDX-License-Identifier: Apache-2.0
"""Conversations in a file, as one would write them on paper.

    == title                      a conversation, on a connection of its own
    # remark
    > get key                     what the client sends, with an end of line added
    >> set key 0 0                the same without
    < END                         what the server must answer, with an end of line added
    <~ VALUE k 0 1 (?P<cas>\\d+)   a line that must match; {cas} stands for it from here on
    <|                            the server closes the connection

{k*250} stands for 250 times k, and \\r \\n \\t \\\\ \\xNN for bytes. All that is sent between two answers
goes in one piece. A title that ends in `(in steps)` is a conversation that makes sense at that pace
only; all others are also held in one go, and byte by byte.
"""

import dataclasses
import pathlib
import re

IN_STEPS = " (in steps)"
SYNTAX = re.compile(r"(?P<kind>>>|>|<~|<\||<)(?: (?P<text>.*))?$")


@dataclasses.dataclass
class Step:
    """What goes out, and what must come back for it: pairs of (is a pattern, line)."""
    request: str = ""
    replies: list = dataclasses.field(default_factory=list)
    closes: bool = False


@dataclasses.dataclass
class Conversation:
    title: str
    steps: list = dataclasses.field(default_factory=list)

    @property
    def in_steps(self):
        return self.title.endswith(IN_STEPS)

    @property
    def captures(self):
        return any("(?P<" in line for step in self.steps for _, line in step.replies)

    @property
    def closes(self):
        return any(step.closes for step in self.steps)

    @property
    def size(self):
        """Of all that is sent, in bytes; captured parts do not count."""
        return sum(len(as_bytes(re.sub(r"\{[a-z]\w*\}", "", step.request), {}))
                   for step in self.steps)


def load(path):
    """All conversations of a file."""
    found = []
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        if line.startswith("== "):
            found.append(Conversation(line[3:]))
        elif line and not line.startswith("#"):
            match = SYNTAX.fullmatch(line)
            assert match and found, f"{path}:{number}: {line}"
            add(found[-1].steps, match["kind"], match["text"] or "")
    return found


def add(steps, kind, text):
    if kind in (">", ">>"):
        if not steps or steps[-1].replies or steps[-1].closes:
            steps.append(Step())
        steps[-1].request += text + ("\\r\\n" if kind == ">" else "")
    elif kind == "<|":
        steps[-1].closes = True
    else:
        steps[-1].replies.append((kind == "<~", text))


def as_bytes(text, known):
    """Replaces what stands in braces, and the escapes."""
    text = re.sub(r"\{(.)\*(\d+)\}", lambda match: match[1] * int(match[2]), text)
    text = re.sub(r"\{(\w+)\}", lambda match: known[match[1]], text)
    escapes = {"r": "\r", "n": "\n", "t": "\t", "\\": "\\"}
    text = re.sub(r"\\(x[0-9a-f]{2}|.)", lambda match: escapes.get(match[1]) or
                  chr(int(match[1][1:], 16)), text)
    return text.encode("latin-1")


def match_line(client, pattern, known):
    """Demands that the next line matches; returns what its groups caught."""
    line = client.line().decode("latin-1").removesuffix("\r\n")
    pattern = re.sub(r"\{([a-z]\w*)\}", lambda match: known[match[1]], pattern)
    match = re.fullmatch(pattern, line)
    assert match, f"{line!r} does not match {pattern}"
    return match.groupdict()


def hold(conversation, client):
    """Says its steps one after the other, and compares."""
    known = {}
    for step in conversation.steps:
        client.send(as_bytes(step.request, known))
        for is_pattern, expected in step.replies:
            if is_pattern:
                known |= match_line(client, expected, known)
            else:
                client.expect(as_bytes(expected, known) + b"\r\n")
        if step.closes:
            assert client.ended()
            return
    client.settled()


def hold_in_one_go(conversation, client, split):
    """Says all of it, in the pieces that split() makes of it, before the first answer is read."""
    request = b"".join(as_bytes(step.request, {}) for step in conversation.steps)
    for piece in split(request):
        try:
            client.send(piece)
        except ConnectionError:
            assert conversation.closes
            break
    for step in conversation.steps:
        for is_pattern, expected in step.replies:
            if is_pattern:
                match_line(client, expected, {})
            else:
                client.expect(as_bytes(expected, {}) + b"\r\n")
    if conversation.closes:
        assert client.ended()
    else:
        client.settled()

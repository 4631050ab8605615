# SPDX-License-Identifier: Apache-2.0
"""A page of Markdown as steps to be taken: the fenced blocks of shell sessions and of files.

A block begins with ```LANGUAGE and may have words behind that, which readers of the rendered page do not see:

    ```console                 a session: lines with "$ " are typed, the lines below each are what it shows
    ```console @server         typed in another terminal, of that name; @node1, @node1b are on node 1 of a cluster
    ```console @server stays   its last command does not end: go on when it has shown what is shown here
    ```console fails           each command is to end with a status that is not 0
    ```console figures         where a number is shown any number will do
    ```console needs:nbdkit    the whole page needs that capability (tests/support/capabilities.py)
    ```ini file:fairway.ini    the block is the content of that file, for the steps behind it

In a session a command goes on in the next line behind a backslash or within a here-document's lines, which
are shown with "> " in front. A line "^C" presses that in the terminal. What is shown is compared word by word; "..." stands for
the rest of a line or for any lines. A command without anything shown may show what it likes.
"""

import dataclasses
import re

FENCE = re.compile(r"```(?P<words>.*)$")
INTERRUPT = "^C"


@dataclasses.dataclass
class Command:
    """One line that is typed, or INTERRUPT, and what is to be seen then."""
    line: int
    text: str
    terminal: str = "main"
    shown: list = dataclasses.field(default_factory=list)
    stays: bool = False
    fails: bool = False
    figures: bool = False


@dataclasses.dataclass
class File:
    line: int
    name: str
    text: str


@dataclasses.dataclass
class Page:
    steps: list = dataclasses.field(default_factory=list)
    needs: set = dataclasses.field(default_factory=set)

    def terminals(self):
        return {step.terminal for step in self.steps if isinstance(step, Command)}


class Mistake(Exception):
    """The page is not written as it should be."""


def pattern(shown, figures):
    """The regular expression for what is shown. White space is as wide as you like."""
    parts = []
    for line in shown:
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
            continue
        pieces = []
        for word in re.split(r"(\.\.\.|\s+)", line.strip()):
            if word == "...":
                pieces.append(".*")
            elif word.isspace():
                pieces.append(r"[ \t]+")
            elif figures:
                pieces.append(re.sub(r"\d+(?:[.,]\d+)*", r"\\d[\\d.,]*", re.escape(word).replace(r"\.", ".")))
            else:
                pieces.append(re.escape(word))
        parts.append(r"[ \t]*" + "".join(pieces) + r"[ \t]*\n")
    return re.compile("".join(parts))


def blocks(text):
    """The fenced blocks: number of the first line within, words behind the fence, lines."""
    words = begin = None
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        match = FENCE.match(line)
        if match and words is None:
            words, begin, lines = match["words"].split(), number + 1, []
        elif match:
            yield begin, words, lines
            words = None
        elif words is not None:
            lines.append(line)
        elif re.match(r"(    |\t)\s*\$ ", line):
            raise Mistake(f"line {number}: a command outside of a ```console block, where no test sees it")
    if words is not None:
        raise Mistake(f"line {begin - 1}: this block has no end")


def read_session(begin, words, lines):
    """The commands of one block."""
    options = {"terminal": "main"}
    for word in words:
        if word.startswith("@"):
            options["terminal"] = word[1:]
        elif word in ("fails", "figures", "stays"):
            options[word] = True
        else:
            raise Mistake(f"line {begin - 1}: what does '{word}' mean?")
    stays = options.pop("stays", False)
    commands = []
    for number, line in enumerate(lines, begin):
        if line.startswith("$ "):
            commands.append(Command(number, line[2:], **options))
        elif line == INTERRUPT:
            commands.append(Command(number, INTERRUPT, **options))
        elif not commands:
            raise Mistake(f"line {number}: a session begins with '$ '")
        elif line.startswith("> ") and not commands[-1].shown:
            commands[-1].text += "\n" + line[2:]
        else:
            commands[-1].shown.append(line)
    if stays and (not commands or not commands[-1].shown):
        raise Mistake(f"line {begin - 1}: a command that stays must show when it is ready")
    if stays:
        commands[-1].stays = True
    return commands


def read(text):
    """The steps of a page."""
    page = Page()
    for begin, (language, *words), lines in blocks(text):
        page.needs |= {word.partition(":")[2] for word in words if word.startswith("needs:")}
        words = [word for word in words if not word.startswith("needs:")]
        if language == "console":
            page.steps += read_session(begin, words, lines)
        elif words and words[0].startswith("file:"):
            page.steps.append(File(begin, words[0].partition(":")[2], "\n".join(lines) + "\n"))
    return page

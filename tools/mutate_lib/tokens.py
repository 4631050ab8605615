# SPDX-License-Identifier: Apache-2.0
"""Splits C into tokens.

Comments and white space vanish, and so does every preprocessor line: a macro's text is no statement
of any function, and a change there would be a change of all its users at once. Offsets point into
the original text, so that a mutant is the original with a few characters replaced.
"""

import re
from typing import NamedTuple


class MutateError(Exception):
    """Something a user can act on; its text is all he sees."""


class OriginalFails(MutateError):
    """A module's tests fail on the code as it is, so they can tell nothing about its mutants."""


class OutOfTime(MutateError):
    """The time is over, and what was asked is not known."""


class Token(NamedTuple):
    kind: str  # name, number, string, char or punct
    text: str
    start: int  # Offset of the first character...
    end: int  # ...and of the one behind the last.


PUNCTUATORS = [
    "<<=", ">>=", "...", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||",
    "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "##",
    "[", "]", "(", ")", "{", "}", ".", "&", "*", "+", "-", "~", "!", "/", "%", "<", ">", "^", "|",
    "?", ":", ";", "=", ",", "#", "@", "\\",
]

# A directive ends at the first line end that is neither escaped nor inside a comment. It is tried
# first, and white space stops at line ends, so that no blank before a '#' hides where it stands.
TOKEN = re.compile(
    r"""(?P<directive>^[ \t]*\#(?:/\*.*?\*/|\\\n|[^\n])*)
      | (?P<space>\n|[^\S\n]+|\\\n)
      | (?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<number>\.?[0-9](?:[eEpP][+-]|[\w.])*)
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<char>'(?:\\.|[^'\\\n])*')
      | (?P<punct>%s)
    """ % "|".join(re.escape(p) for p in PUNCTUATORS),
    re.VERBOSE | re.DOTALL | re.MULTILINE)


def tokenise(text, path="<text>"):
    """All tokens of `text` that a compiler would see as code."""
    tokens = []
    position = 0
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            line = text.count("\n", 0, position) + 1
            raise MutateError(f"{path}:{line}: not C: {text[position:position + 20]!r}")
        if match.lastgroup not in ("space", "comment", "directive"):
            tokens.append(Token(match.lastgroup, match.group(), match.start(), match.end()))
        position = match.end()
    return tokens


OPENING = {"(": ")", "[": "]", "{": "}"}
CLOSING = {close: open_ for open_, close in OPENING.items()}


def match_brackets(tokens, path="<text>"):
    """For each bracket's index the index of its partner."""
    partner = {}
    stack = []
    for index, token in enumerate(tokens):
        if token.kind != "punct":
            continue
        if token.text in OPENING:
            stack.append(index)
        elif token.text in CLOSING:
            if not stack or tokens[stack[-1]].text != CLOSING[token.text]:
                raise MutateError(f"{path}: brackets do not match near offset {token.start}; code "
                                  "under #if must be balanced in each branch")
            partner[index] = stack.pop()
            partner[partner[index]] = index
    if stack:
        raise MutateError(f"{path}: a bracket at offset {tokens[stack[-1]].start} is never closed")
    return partner

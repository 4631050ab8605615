# SPDX-License-Identifier: Apache-2.0
"""Survivors that someone has looked at and explained.

A file holds one paragraph per mutant, in the form in which the report prints survivors:

    src/base/thread.c: fw_park_for: compare
    - left_ns > 0;
    + left_ns >= 0;
    One more wait of zero length changes nothing that a caller can see.

An entry names the function and the lines, not the line number, so it lives through changes
elsewhere in the file and dies with its line. One that fits no mutant any more is reported as stale.
Lines that begin with '#' are comments.
"""

from dataclasses import dataclass

from mutate_lib.tokens import MutateError


@dataclass(frozen=True)
class Entry:
    path: str
    function: str
    operator: str
    before: str
    after: str
    reason: str
    source: str  # The file of entries, ...
    line: int  # ... and the line there.

    def fits(self, mutant):
        return ((self.path, self.function, self.operator, self.before, self.after) ==
                (mutant.path, mutant.function, mutant.operator, mutant.before, mutant.after))


def parse(text, path="mutants.allowed"):
    entries = []
    paragraph = []
    for number, line in enumerate(text.splitlines() + [""], 1):
        if line.startswith("#"):
            continue
        if line.strip():
            paragraph.append((number, line))
        elif paragraph:
            entries.append(_entry(paragraph, path))
            paragraph = []
    return entries


def _entry(paragraph, path):
    number = paragraph[0][0]
    lines = [line for _, line in paragraph]
    head = [part.strip() for part in lines[0].split(":")]
    if len(head) != 3 or len(lines) < 3 or lines[1][:2] != "- " or lines[2][:2] != "+ ":
        raise MutateError(f'{path}:{number}: expected "FILE: FUNCTION: OPERATOR", "- OLD LINE", '
                          '"+ NEW LINE" and a reason')
    reason = " ".join(line.strip() for line in lines[3:])
    if not reason:
        raise MutateError(f"{path}:{number}: a survivor without a reason is not explained")
    return Entry(*head, before=lines[1][2:].strip(), after=lines[2][2:].strip(), reason=reason,
                 source=path, line=number)


def show(mutant):
    """A mutant as an entry that lacks its reason."""
    return (f"{mutant.path}: {mutant.function}: {mutant.operator}\n"
            f"- {mutant.before}\n"
            f"+ {mutant.after}")

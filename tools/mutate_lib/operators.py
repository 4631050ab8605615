# SPDX-License-Identifier: Apache-2.0
"""Proposes mutants: small changes of the kind people make by mistake.

drop      an expression statement, an early return or a goto vanishes
compare   < becomes <=, == becomes !=, and so on
logic     && becomes ||, and the other way round
negate    the condition of an if, a loop or a ?: turns into its opposite
constant  an integer is one too large or one too small
bound     what stands right of < or its kin is one too large or too small, whichever way the
          flip of the comparison itself does not reach
order     an acquire, release or stronger becomes relaxed
lock      a function no longer takes and releases one lock
flush     a flush to disk is left out and counts as done
jump      break becomes continue, and the other way round; in a switch it falls through
value     true becomes false; 0 returned becomes an error; an error becomes success or another one

What the compiler never sees, or what is itself a check, is left alone: see SKIPPED_CALLS. Nothing
outside function bodies is mutated either: a changed constant of an enum changes the test that
includes it just as much, and a changed table of data is for the test of its module to compare.

A mutant keeps every line where it was, since __LINE__ is part of the object code by which the
workshop recognises changes that change nothing.
"""

import re
from dataclasses import dataclass

from mutate_lib.statements import LOOPS, Source

# Assertions are the tests inside the code: without one, correct code does the same, so no test
# could notice. A yield point does nothing outside the simulator. A static assertion is the
# compiler's test. Functions of the file that do nothing but assert are assertions too, see
# _assertions(); the text inside them is mutated all the same, since a wrong one fails.
SKIPPED_CALLS = frozenset(
    ["FW_ASSERT", "FW_CHECK", "FW_YIELD_POINT", "static_assert", "_Static_assert"])

# Taking, its counterpart, and what to put where the call's value is used.
LOCKS = {
    "fw_mutex_lock": ("fw_mutex_unlock", None),
    "fw_mutex_trylock": ("fw_mutex_unlock", "true"),
    "pthread_mutex_lock": ("pthread_mutex_unlock", "0"),
    "pthread_mutex_trylock": ("pthread_mutex_unlock", "0"),
}
# Calls that make earlier writes durable, by their name; and those of a disk by their argument too:
# fw_disk_start(disk, &flush).
FLUSH = re.compile(r"fsync|fdatasync|msync|sync_file_range|syncfs|\w+_flush(_\w+)?")
DISK = re.compile(r"fw_disk_\w+")

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
LOGIC = {"&&": "||", "||": "&&"}
BOOLEANS = {"true": "false", "false": "true"}
# What the flip of the comparison leaves: `a < b` flipped is a < b + 1, so b - 1 remains.
BOUND_STEP = {"<": -1, "<=": 1, ">": 1, ">=": -1}

ORDER = re.compile(r"memory_order_(acquire|release|acq_rel|seq_cst|consume)")
ORDER_BUILTIN = re.compile(r"__ATOMIC_(ACQUIRE|RELEASE|ACQ_REL|SEQ_CST|CONSUME)")
ATOMIC = re.compile(r"atomic_(load|store|exchange|fetch_\w+?|compare_exchange_(strong|weak))")
ERRNO = re.compile(r"E[A-Z0-9]+")
INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)([uUlL]*)")

COMMENT = re.compile(r"/\*.*?(\*/|$)|//[^\n]*", re.DOTALL)

OPERATORS = ("drop", "compare", "logic", "negate", "constant", "bound", "order", "lock", "flush",
             "jump", "value")


@dataclass(frozen=True)
class Mutant:
    path: str
    function: str
    operator: str
    line: int
    column: int
    edits: "tuple[tuple[int, int, str], ...]"  # Start, end, replacement; by rising start.
    before: str  # The lines that change, in one line of text...
    after: str  # ...and as they are in the mutant.

    @property
    def place(self):
        return f"{self.path}:{self.line}:{self.column}"

    def apply(self, text):
        for start, end, replacement in reversed(self.edits):
            text = text[:start] + replacement + text[end:]
        return text


def mutants_of(path, text):
    """All mutants of a file, in the order of their places."""
    found = _Finder(Source(path, text)).run()
    return sorted(set(found), key=lambda m: (m.edits, OPERATORS.index(m.operator)))


class _Finder:
    def __init__(self, source):
        self.source = source
        self.tokens = source.tokens
        self.partner = source.partner
        self.mutants = []
        self.function = None
        self.skipped_calls = SKIPPED_CALLS | self._assertions()

    def _assertions(self):
        """The names of functions here that only assert."""
        return {f.name for f in self.source.functions
                if f.name.endswith("_invariant") or f.returns_void and self._only_asserts(f)}

    def _only_asserts(self, function):
        kinds = ("block", "if", "for", "while", "macro-loop", "declaration")
        others = [s for s in function.body.walk() if s.kind not in kinds]
        return bool(others) and all(self.tokens[s.first].text in SKIPPED_CALLS for s in others)

    def run(self):
        for function in self.source.functions:
            self.function = function
            self.skipped = self._skipped_ranges()
            self.taken = set()  # Statements that another operator drops already.
            self._locks()
            for statement in function.body.walk():
                self._statement(statement)
            first, last = function.body.first, function.body.last
            for index in range(first, last + 1):
                if not self._is_skipped(index):
                    self._token(index)
        return self.mutants

    def _skipped_ranges(self):
        body = self.function.body
        ranges = []
        for index in range(body.first, body.last):
            if self.tokens[index].text in self.skipped_calls and self.tokens[index + 1].text == "(":
                ranges.append((index, self.partner[index + 1]))
        return ranges

    def _is_skipped(self, index):
        return any(first <= index <= last for first, last in self.skipped)

    # Making a mutant.

    def _add(self, operator, *edits):
        text = self.source.text
        edits = tuple(sorted(edits))
        line_start = text.rfind("\n", 0, edits[0][0]) + 1
        self.mutants.append(Mutant(
            path=self.source.path, function=self.function.name, operator=operator,
            line=self.source.line_of(edits[0][0]), column=edits[0][0] - line_start + 1,
            edits=edits, before=self._lines(edits, False), after=self._lines(edits, True)))

    def _lines(self, edits, changed):
        """The lines that `edits` touch; edits far apart are joined by dots."""
        text = self.source.text
        pieces = []
        covered = 0
        for start, end, replacement in edits:
            line_start = text.rfind("\n", 0, start) + 1
            line_end = text.find("\n", end)
            line_end = len(text) if line_end < 0 else line_end
            if pieces and line_start <= covered + 1:
                pieces[-1][1] = line_end
            else:
                pieces.append([line_start, line_end, []])
            covered = line_end
            pieces[-1][2].append((start, end, replacement))
        shown = []
        for line_start, line_end, own in pieces:
            piece = text[line_start:line_end]
            for start, end, replacement in reversed(own if changed else []):
                piece = piece[:start - line_start] + replacement + piece[end - line_start:]
            shown.append(" ".join(COMMENT.sub(" ", piece).split()))
        return " ... ".join(shown)

    def _replaced(self, first, last, replacement):
        """An edit of tokens `first` to `last` that keeps the number of lines."""
        start, end = self.tokens[first].start, self.tokens[last].end
        lines = self.source.text.count("\n", start, end)
        return start, end, replacement + "\n" * lines

    # Whole statements.

    def _statement(self, statement):
        if self._is_skipped(statement.first):
            return
        if statement.condition is not None:
            self._negate(*statement.condition)
        if statement.kind in ("break", "continue"):
            self._jump(statement)
        elif statement.kind == "goto" or self._is_droppable_return(statement):
            self._add("drop", self._replaced(statement.first, statement.last, ";"))
        elif statement.kind == "expression" and statement.first not in self.taken:
            if not self._is_not_worth_dropping(statement):
                self._add("drop", self._replaced(statement.first, statement.last, ";"))

    def _is_not_worth_dropping(self, statement):
        """`(void)name;` only quiets the compiler, and flushes have their own operator."""
        texts = self.source.texts(statement.first, statement.last)
        if texts[:3] == ["(", "void", ")"]:
            texts = texts[3:]
            if len(texts) == 2:
                return True
        called = statement.last - len(texts) + 1
        return texts[0] in self.skipped_calls or self._is_flush(called)

    def _is_droppable_return(self, statement):
        """An early return, in a function that still returns a value without it."""
        body = self.function.body
        if statement.kind != "return" or statement is body.children[-1]:
            return False
        return self.function.returns_void or body.children[-1].kind == "return"

    def _jump(self, statement):
        around = statement.enclosing(LOOPS + ("switch",))
        if statement.kind == "continue":
            self._add("jump", self._replaced(statement.first, statement.first, "break"))
        elif around is not None and around.kind == "switch":
            self._add("jump", self._replaced(statement.first, statement.last, ";"))
        else:
            self._add("jump", self._replaced(statement.first, statement.first, "continue"))

    def _negate(self, first, last):
        texts = self.source.texts(first, last)
        equalities = sum(texts.count(text) for text in ("==", "!="))
        others = sum(texts.count(text) for text in ("<", "<=", ">", ">=", "&&", "||", "?"))
        if equalities == 1 and others == 0:
            return  # The flipped comparison is the same.
        start, end = self.tokens[first].start, self.tokens[last].end
        self._add("negate", (start, start, "!("), (end, end, ")"))

    # Locks and flushes.

    def _calls(self, name):
        """The calls of `name` in this function: pairs of token indices."""
        body = self.function.body
        for index in range(body.first, body.last):
            if self.tokens[index].text == name and self.tokens[index + 1].text == "(":
                if not self._is_skipped(index):
                    yield index, self.partner[index + 1]

    def _without_call(self, first, last, value):
        """An edit that leaves a call out; `value` stands in where one is needed."""
        alone = self.tokens[last + 1].text == ";" and self.tokens[first - 1].text in "{};)"
        return self._replaced(first, last, "" if value is None or alone else value)

    def _locks(self):
        for lock, (unlock, value) in LOCKS.items():
            unlocks = list(self._calls(unlock))
            locks = {}
            for first, last in self._calls(lock):
                locks.setdefault(tuple(self.source.texts(first + 2, last - 1)), []).append(
                    (first, last))
            for what, calls in locks.items():
                pairs = [(first, last) for first, last in unlocks
                         if tuple(self.source.texts(first + 2, last - 1)) == what]
                if pairs or value == "0":
                    edits = [self._without_call(*call, value) for call in calls]
                    edits += [self._without_call(*call, value and "0") for call in pairs]
                    self._add("lock", *edits)
                    self.taken.update(first for first, _ in calls + pairs)
            if value == "0" and not locks:
                for first, last in unlocks:
                    self._add("lock", self._without_call(first, last, value))

    def _is_flush(self, index):
        if self.tokens[index].kind != "name" or self.tokens[index + 1].text != "(":
            return False
        name = self.tokens[index].text
        arguments = self.source.texts(index + 2, self.partner[index + 1] - 1)
        return FLUSH.fullmatch(name) is not None or (
            DISK.fullmatch(name) is not None and any("flush" in text for text in arguments))

    def _flush(self, index):
        close = self.partner[index + 1]
        self._add("flush", self._replaced(index, close, "0"))

    # Single tokens.

    def _token(self, index):
        token = self.tokens[index]
        text = token.text
        if text in COMPARISONS:
            self._add("compare", self._replaced(index, index, COMPARISONS[text]))
            self._bound(index)
        elif text in LOGIC:
            self._add("logic", self._replaced(index, index, LOGIC[text]))
        elif text == "?":
            self._negate_ternary(index)
        elif token.kind == "number":
            self._constant(index)
        elif text in BOOLEANS:
            self._add("value", self._replaced(index, index, BOOLEANS[text]))
        elif token.kind == "name":
            self._name(index)

    def _name(self, index):
        text = self.tokens[index].text
        if ORDER.fullmatch(text):
            self._add("order", self._replaced(index, index, "memory_order_relaxed"))
        elif ORDER_BUILTIN.fullmatch(text):
            self._add("order", self._replaced(index, index, "__ATOMIC_RELAXED"))
        elif ERRNO.fullmatch(text) and self.tokens[index - 1].text == "-":
            self._errno(index)
        elif self.tokens[index + 1].text == "(":
            if ATOMIC.fullmatch(text):
                self._implicit_order(index)
            elif self._is_flush(index):
                self._flush(index)

    def _implicit_order(self, index):
        """Calls without an order are as strong as can be."""
        name = self.tokens[index].text
        end = self.tokens[self.partner[index + 1]].start
        orders = ", memory_order_relaxed" * (2 if "compare" in name else 1)
        self._add("order", self._replaced(index, index, name + "_explicit"), (end, end, orders))

    def _errno(self, index):
        before = self.tokens[index - 2]
        if before.text in COMPARISONS or before.text == "case" or before.kind == "number":
            return
        if before.kind == "name" and before.text != "return" or before.text in (")", "]"):
            return  # A subtraction.
        self._add("value", self._replaced(index - 1, index, "0"))
        other = f"(-{self.tokens[index].text} - 1)"
        self._add("value", self._replaced(index - 1, index, other))

    def _bound(self, index):
        step = BOUND_STEP.get(self.tokens[index].text)
        if step is None or self._is_lone_number(index + 1):
            return
        at = self.tokens[index].end
        self._add("bound", (at, at, f" {step} +"))

    def _is_lone_number(self, index):
        return (self.tokens[index].kind == "number" and
                self.tokens[index + 1].text in (")", ";", "&&", "||", "?", ":", ",", "]", "}"))

    def _constant(self, index):
        match = INTEGER.fullmatch(self.tokens[index].text)
        if match is None:
            return
        digits, suffix = match.groups()
        value, show = _number(digits)
        steps = [1, -1] if value > 0 else [1]
        before = self.tokens[index - 1].text
        if before == "return" and value == 0 and self.tokens[index + 1].text == ";":
            self._add("value", self._replaced(index, index, "-1"))
            return
        if before in BOUND_STEP and self._is_lone_number(index):
            steps = [step for step in steps if step == BOUND_STEP[before]]
        elif self._is_dimension(index):
            steps = [-1]  # A local array that is too long does no harm that can be seen.
        for step in steps:
            self._add("constant", self._replaced(index, index, show(value + step) + suffix))

    def _is_dimension(self, index):
        if self.tokens[index - 1].text != "[" or self.tokens[index + 1].text != "]":
            return False
        return any(s.kind == "declaration" and s.first <= index <= s.last and
                   "=" not in self.source.texts(s.first, index)
                   for s in self.function.body.walk())

    def _negate_ternary(self, question):
        """The condition reaches back to what binds less than ?: does, to its bracket, or to the
        beginning of the statement."""
        statement = [s for s in self.function.body.walk() if s.first <= question <= s.last][-1]
        first = question
        while first > statement.first:
            before = self.tokens[first - 1].text
            if before in ("(", "[", "{", ",", ";", "?", ":", "return") or (
                    before.endswith("=") and before not in COMPARISONS):
                break
            first = self.partner[first - 1] if before in (")", "]", "}") else first - 1
        self._negate(first, question - 1)


def _number(digits):
    """The value, and how to write its neighbours: in the same base."""
    if digits[:2] in ("0x", "0X"):
        return int(digits, 16), hex
    if digits[:2] in ("0b", "0B"):
        return int(digits, 2), bin
    if len(digits) > 1 and digits[0] == "0":
        return int(digits, 8), lambda value: f"0{value:o}" if value else "0"
    return int(digits), str

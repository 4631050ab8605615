# SPDX-License-Identifier: Apache-2.0
"""Finds functions and their statements.

This is no C parser. It knows where a statement begins and ends, what its condition is and what it
is nested in, which is all the operators need; expressions stay rows of tokens. It relies on our
style where C alone would need a symbol table: a statement that begins like a declaration is one.
"""

from dataclasses import dataclass, field

from mutate_lib.tokens import MutateError, Token, match_brackets, tokenise

DECLARATION_WORDS = frozenset("""
    auto char const double enum extern float inline int long register restrict short signed static
    struct typedef union unsigned void volatile _Atomic _Alignas _Bool _Noreturn _Thread_local
    alignas bool typeof __typeof__ __attribute__ __extension__
    """.split())
LOOPS = ("for", "while", "do", "macro-loop")


@dataclass
class Statement:
    """`first` and `last` are token indices, both inside. `condition` is such a pair or None."""
    kind: str  # block if for while do switch macro-loop return break continue goto label
    #            declaration expression empty
    first: int
    last: int
    parent: "Statement | None"
    condition: "tuple[int, int] | None" = None
    children: "list[Statement]" = field(default_factory=list)

    def walk(self):
        yield self
        for child in self.children:
            yield from child.walk()

    def enclosing(self, kinds):
        """The innermost statement around this one that is of one of `kinds`, or None."""
        outer = self.parent
        while outer is not None and outer.kind not in kinds:
            outer = outer.parent
        return outer


@dataclass
class Function:
    name: str
    returns_void: bool
    body: Statement


class Source:
    """A file's text with its tokens, bracket pairs and functions."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.tokens: "list[Token]" = tokenise(text, path)
        self.partner = match_brackets(self.tokens, path)
        self.functions = list(self._find_functions())

    def line_of(self, offset):
        return self.text.count("\n", 0, offset) + 1

    def texts(self, first, last):
        return [token.text for token in self.tokens[first:last + 1]]

    def error(self, index, what):
        offset = self.tokens[min(index, len(self.tokens) - 1)].start
        return MutateError(f"{self.path}:{self.line_of(offset)}: {what}")

    # Functions.

    def _find_functions(self):
        declaration = 0  # Where the declaration began that may turn out to be a function.
        index = 0
        while index < len(self.tokens):
            text = self.tokens[index].text
            if text == ";":
                declaration = index + 1
            elif text == "{":
                name = self._function_name(declaration, index)
                if name is not None:
                    yield self._function(declaration, name, index)
                index = self.partner[index]
                if name is not None:
                    declaration = index + 1
            elif text in ("(", "["):
                index = self.partner[index]
            index += 1

    def _function_name(self, first, brace):
        """The index of the name that the body at `brace` belongs to, or None: not a function."""
        if brace == first or self.tokens[brace - 1].text != ")":
            return None
        index = first
        while index < brace:
            token = self.tokens[index]
            if token.text == "=":
                return None
            if token.text in ("(", "["):
                index = self.partner[index]
            elif token.kind == "name" and self.tokens[index + 1].text == "(":
                # Attributes come before the name too, ours as macros in capitals.
                if not token.text.startswith("__") and not token.text.isupper():
                    return index
            index += 1
        return None

    def _function(self, declaration, name, brace):
        before = self.texts(declaration, name - 1)
        body, _ = self._statement(brace, None)
        returns_void = "void" in before and "*" not in before
        return Function(self.tokens[name].text, returns_void, body)

    # Statements. Each method takes the index where one begins and returns it with the index behind.

    def _statement(self, index, parent):
        token = self.tokens[index]
        text = token.text
        if text == "{":
            return self._block(index, parent)
        if text in ("if", "for", "while", "switch"):
            return self._headed(text, index, parent)
        if text == "do":
            return self._do(index, parent)
        if text in ("return", "break", "continue", "goto"):
            return self._simple(text, index, parent)
        if text in ("case", "default"):
            return self._label(index, parent)
        if text == ";":
            return Statement("empty", index, index, parent), index + 1
        if token.kind == "name" and self.tokens[index + 1].text == ":":
            return self._label(index, parent)
        if token.kind == "name" and self.tokens[index + 1].text == "(":
            behind = self.partner[index + 1] + 1
            if self.tokens[behind].text == "{":
                return self._headed("macro-loop", index, parent)
        kind = "declaration" if self._is_declaration(index) else "expression"
        return self._simple(kind, index, parent)

    def _block(self, index, parent):
        end = self.partner[index]
        block = Statement("block", index, end, parent)
        position = index + 1
        while position < end:
            child, position = self._statement(position, block)
            block.children.append(child)
        return block, end + 1

    def _headed(self, kind, index, parent):
        open_ = index + 1
        if self.tokens[open_].text != "(":
            raise self.error(index, f'expected "(" after {self.tokens[index].text}')
        close = self.partner[open_]
        statement = Statement(kind, index, close, parent)
        if kind in ("if", "while"):
            statement.condition = (open_ + 1, close - 1)
        elif kind == "for":
            statement.condition = self._for_condition(open_, close)
        child, behind = self._statement(close + 1, statement)
        statement.children.append(child)
        if kind == "if" and behind < len(self.tokens) and self.tokens[behind].text == "else":
            child, behind = self._statement(behind + 1, statement)
            statement.children.append(child)
        statement.last = behind - 1
        return statement, behind

    def _for_condition(self, open_, close):
        semicolons = []
        index = open_ + 1
        while index < close:
            if self.tokens[index].text in ("(", "[", "{"):
                index = self.partner[index]
            elif self.tokens[index].text == ";":
                semicolons.append(index)
            index += 1
        if len(semicolons) != 2:
            raise self.error(open_, 'expected two ";" in the head of a for')
        first, last = semicolons[0] + 1, semicolons[1] - 1
        return (first, last) if first <= last else None

    def _do(self, index, parent):
        statement = Statement("do", index, index, parent)
        child, behind = self._statement(index + 1, statement)
        statement.children.append(child)
        if self.tokens[behind].text != "while":
            raise self.error(behind, 'expected "while" after the body of a do')
        close = self.partner[behind + 1]
        statement.condition = (behind + 2, close - 1)
        statement.last = close + 1
        return statement, close + 2

    def _simple(self, kind, index, parent):
        end = index
        while self.tokens[end].text != ";":
            end = self.partner[end] if self.tokens[end].text in ("(", "[", "{") else end
            end += 1
            if end >= len(self.tokens) or self.tokens[end].text == "}":
                raise self.error(index, 'a statement without ";"')
        return Statement(kind, index, end, parent), end + 1

    def _label(self, index, parent):
        end = index
        while self.tokens[end].text != ":":
            end = self.partner[end] if self.tokens[end].text in ("(", "[", "{") else end
            end += 1
        return Statement("label", index, end, parent), end + 1

    def _is_declaration(self, index):
        first = self.tokens[index]
        if first.kind != "name":
            return False
        if first.text in DECLARATION_WORDS:
            return True
        index += 1
        while self.tokens[index].text == "*":  # `type *name`: nobody multiplies for nothing.
            index += 1
        return self.tokens[index].kind == "name"

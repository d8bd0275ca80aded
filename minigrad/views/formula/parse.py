r"""LaTeX of declarations and of hand-derived steps as a tree.

It reads the LaTeX of this project, not LaTeX at large: a command that it does not know is a word,
and what is missing is left out, so that any text gives a tree.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .signs import FUNCTIONS, GREEK, OPERATORS, SPACES
from .tree import Accent, Call, Fraction, Group, Node, Row, Script, Sign, Slot, base_of, row

__all__ = ["parse"]

TOKEN = re.compile(r"\\[A-Za-z]+|\\.|<\w+>|\s+|.", re.DOTALL)
CLOSING = {"(": ")", "[": "]", "|": "|", "{": "}"}
IGNORED = ("textstyle", "displaystyle", "mathbin", "mathrel", "mathbf", "mathit")
GLUED = re.compile(r"\{([:+])\}")  # an operator in braces, which LaTeX sets without room


@lru_cache(maxsize=4096)
def parse(tex: str) -> Node:
    r"""A formula as a tree.

    >>> parse(r"<x>^\top")
    Script(base=Slot(name='x'), below=None, above=Sign(kind='operator', tex='\\top'))
    """
    tex = re.sub(r"\\[lr]vert\b ?", "|", GLUED.sub(r"\\glued\1", tex))
    return _Parser(TOKEN.findall(tex)).formula()


class _Parser:
    """Reads tokens from the left."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at = tokens, 0

    def formula(self) -> Node:
        items: list[Node] = []
        while self.at < len(self.tokens):
            items += self.items()
            if self.at < len(self.tokens):  # a bracket that nothing opened
                items.append(Sign("word", self.next().strip("\\")))
        return row(items)

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def items(self) -> list[Node]:
        """Nodes up to a closing bracket or the end."""
        items: list[Node] = []
        apart = True  # whether a space or nothing stands before the next token
        while (token := self.peek()) and token not in (")", "]", "}", r"\right", "|end"):
            if token.isspace():
                self.at += 1
                apart = True
                continue
            if token in "^_":
                self.at += 1
                items[-1:] = [self.scripted(items[-1] if items else Row(()), token)]
            else:
                node = self.node()
                if node is None:
                    continue
                if isinstance(node, Group) and items and not apart and _takes(items[-1], node):
                    items[-1] = Call(items[-1], node)
                else:
                    items.append(node)
            apart = False
        return items

    def node(self) -> Node | None:
        """What begins at the next token; None for a command that only sets a style."""
        token = self.next()
        if token == "{":
            return self.braced()
        if token in ("(", "[", "|"):
            return self.bracketed(token)
        if len(token) > 2 and token[0] == "<":
            return Slot(token[1:-1])
        if token.startswith("\\"):
            return self.command(token)
        if token.isdigit():
            return Sign("number", token + self.digits())
        if token.isalpha():
            while self.peek() == "'":
                token += self.next()
            return Sign("letter", token)
        return Sign("operator", token)

    def digits(self) -> str:
        """The rest of a number."""
        rest = re.match(r"\d*(\.\d+)?", "".join(self.tokens[self.at : self.at + 40]))
        found = rest[0] if rest else ""
        self.at += len(found)
        return found

    def braced(self) -> Node:
        items = self.items()
        if self.peek() == "}":
            self.at += 1
        return row(items)

    def bracketed(self, open: str, tall: bool = False) -> Node:
        close = CLOSING[open]
        if open == "|":
            return self.absolute()
        items = self.items()
        if tall and self.peek() == r"\right":
            self.at += 1
        if self.peek() == close:
            self.at += 1
            return Group(open, row(items), close, tall)
        return Row((Sign("operator", open), *items))

    def absolute(self) -> Node:
        if "|" not in self.tokens[self.at :]:
            return Sign("operator", "|")
        end = self.tokens.index("|", self.at)
        self.tokens[end] = "|end"
        items = self.items()
        self.at += 1
        return Group("|", row(items), "|")

    def command(self, token: str) -> Node | None:
        name = token[1:]
        if name in ("frac", "tfrac", "dfrac"):
            return Fraction(self.argument(), self.argument(), small=name == "tfrac")
        if name in ("hat", "bar", "sqrt"):
            return Accent(name, self.argument())
        if name in ("operatorname", "mathrm", "text"):
            kind = {"operatorname": "function", "mathrm": "word", "text": "text"}[name]
            return Sign(kind, self.raw())
        if name == "left":
            return self.bracketed(self.next(), tall=True) if self.peek() in CLOSING else None
        if name == "right":
            return None
        if name == "glued":
            return Sign("operator", f"{{{self.next()}}}")
        if name in SPACES:
            return Sign("space", token)
        if name in OPERATORS:
            return Sign("operator", token)
        if name in FUNCTIONS:
            return Sign("function", token)
        if name in IGNORED:
            return None
        return Sign("letter", token) if name in GREEK else Sign("word", name)

    def raw(self) -> str:
        """What stands in braces, as it is."""
        if self.peek() != "{":
            return self.next() if self.peek() else ""
        self.at += 1
        start, depth = self.at, 1
        while self.peek() and depth:
            depth += {"{": 1, "}": -1}.get(self.next(), 0)
        return "".join(self.tokens[start : self.at - (depth == 0)])

    def argument(self) -> Node:
        """What a command applies to: a group, or the next token, which of a number is one digit."""
        while self.peek().isspace():
            self.at += 1
        token = self.peek()
        if not token or token in (")", "]", "}"):
            return Row(())
        if token.isdigit():
            return Sign("number", self.next())
        return self.node() or Row(())

    def scripted(self, base: Node, sign: str) -> Script:
        script = self.argument()
        free = isinstance(base, Script) and (base.below if sign == "_" else base.above) is None
        whole = base if isinstance(base, Script) and free else Script(base)
        below, above = (script, whole.above) if sign == "_" else (whole.below, script)
        return Script(whole.base, below, above)


def _takes(head: Node, group: Group) -> bool:
    """Whether brackets right behind a node are its arguments or its index."""
    base = base_of(head)
    if group.open == "|" or (isinstance(base, Sign) and base.kind == "number"):
        return False
    operator = isinstance(base, Sign) and base.kind in ("operator", "space", "text")
    return not operator or base == Sign("operator", r"\#")

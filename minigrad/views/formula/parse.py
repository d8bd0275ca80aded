r"""LaTeX of declarations and of hand-derived steps as a tree.

It reads the LaTeX of this project, not LaTeX at large: a command that it does not know is a word,
and missing parts are left out, so that any text gives a tree.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .tree import CLOSING, EMPTY, KIND_OF_COMMAND, Formula, base_of, items_of, operator, row, script

__all__ = ["parse"]

LATEX_TOKEN = re.compile(r"(\s*)(\\[A-Za-z]+|\\.|<\w+>|\d+(?:\.\d+)?|[^\W\d_]'*|\S)", re.DOTALL)

ENDS = (")", "]", "}", r"\right", "")  # where a row ends
STYLE_COMMANDS = ("textstyle", "displaystyle", "mathbin", "mathrel", "mathbf", "mathit", "right")
RAW = {"operatorname": "function", "mathrm": "word", "text": "text"}


@lru_cache(maxsize=4096)
def parse(tex: str) -> Formula:
    r"""A formula as a tree.

    >>> parse("-<x>").parts
    (Formula(kind='operator', text='-', parts=()), Formula(kind='slot', text='x', parts=()))
    """
    tex = re.sub(r"\{([:+])\}", r"\\glued\1", tex)  # an operator that LaTeX sets without room
    tex = re.sub(r"\|([^|]*)\|", r"\\abs{\1}", re.sub(r"\\[lr]vert\b ?", "|", tex))
    parser = _LatexParser(tex)
    items = parser.items()
    while parser.peek():  # a bracket that nothing opened
        items += [Formula("word", parser.next().strip("\\")), *parser.items()]
    return row(items)


class _LatexParser:
    """Reads tokens from the left, each with the room before it."""

    def __init__(self, tex: str) -> None:
        self.tokens, self.at = [*LATEX_TOKEN.findall(tex), ("", "")], 0

    def peek(self) -> str:
        return str(self.tokens[self.at][1])

    def next(self) -> str:
        token = self.peek()
        self.at += bool(token)
        return token

    def skip(self, token: str) -> bool:
        found = self.peek() == token
        self.at += found
        return found

    def items(self) -> list[Formula]:
        """Nodes up to a closing bracket or the end."""
        items: list[Formula] = []
        while self.peek() not in ENDS:
            close = not self.tokens[self.at][0]
            if self.peek() in "^_":
                items[-1:] = [self.scripted(items[-1] if items else row(()), self.next())]
                continue
            node = self.node(self.next())
            if (
                node.kind in ("group", "tall")
                and items
                and close
                and _is_applied_to(items[-1], node)
            ):
                items[-1] = Formula("call", "", (items[-1], node))
            elif node != EMPTY:
                items.append(node)
        return items

    def node(self, token: str) -> Formula:
        """What begins at a token; EMPTY for a command that only sets a style."""
        if token == "{":
            inside = row(self.items())
            self.skip("}")
            return inside
        if token in ("(", "["):
            return self.group(token)
        if token[0] == "\\":
            return self.command(token, token[1:])
        if token[0] == "<" and token[1:]:
            return Formula("slot", token[1:-1])
        if token[0].isdigit():
            return Formula("number", token)
        return Formula("letter" if token[0].isalpha() else "operator", token)

    def group(self, open: str, tall: bool = False) -> Formula:
        inside = row(self.items())
        if tall:
            self.skip(r"\right")
        if self.skip(CLOSING[open]):
            return Formula("tall" if tall else "group", open, (inside,))
        return row((operator(open), *items_of(inside)))

    def command(self, token: str, name: str) -> Formula:
        match name:
            case "frac" | "tfrac" | "dfrac":
                kind = "tfrac" if name == "tfrac" else "frac"
                return Formula(kind, "", (self.argument(), self.argument()))
            case "hat" | "bar" | "sqrt":
                return Formula(name, "", (self.argument(),))
            case "abs":
                return Formula("group", "|", (self.argument(),))
            case "operatorname" | "mathrm" | "text":
                return Formula(RAW[name], self.raw())
            case "glued":
                return operator(f"{{{self.next()}}}")
            case "left":
                return self.group(self.next(), tall=True) if self.peek() in ("(", "[") else EMPTY
        if name in STYLE_COMMANDS:
            return EMPTY
        return (
            Formula(KIND_OF_COMMAND[name], token)
            if name in KIND_OF_COMMAND
            else Formula("word", name)
        )

    def raw(self) -> str:
        if not self.skip("{"):
            return self.next()
        start, depth = self.at, 1
        while self.peek() and depth:
            depth += {"{": 1, "}": -1}.get(self.next(), 0)
        text = "".join(room + token for room, token in self.tokens[start : self.at])
        return text[:-1] if depth == 0 else text

    def argument(self) -> Formula:
        """What a command applies to: a group, or the next token, which of a number is one digit."""
        token = self.peek()
        if token in ENDS:
            return row(())
        if token[0].isdigit():
            self.tokens[self.at : self.at + 1] = [("", token[0]), *LATEX_TOKEN.findall(token[1:])]
        node = self.node(self.next())
        return row(()) if node == EMPTY else node

    def scripted(self, base: Formula, sign: str) -> Formula:
        added, side = self.argument(), 1 if sign == "_" else 2
        free = base.kind == "script" and base.parts[side] == EMPTY
        parts = [*base.parts] if free else [base, EMPTY, EMPTY]
        parts[side] = added
        return script(*parts)


def _is_applied_to(head: Formula, group: Formula) -> bool:
    """Whether brackets directly behind a node are its arguments or its index."""
    base = base_of(head)
    signs = ("number", "operator", "space", "text")
    return group.text != "|" and (base.kind not in signs or base == operator(r"\#"))

"""What the signs in a derivation mean: those that occur in it, each once."""

from __future__ import annotations

import re

from ..plain import one_line

__all__ = ["code", "inline", "notation"]

# a pattern in the text, and what to say where it occurs
SIGNS = (
    (
        r"(\\(sum|max|min|\#)|\{(mean|var|sum|softmax|broadcast|concat|stack)\})_\{[bhgij][',}]",
        r"An array's axes are {i}, or {i, j}, or {b, i, j}, or {b, h, i, j}, or {b, h, g, i, j}, "
        r"by how many it has; what has letters below it goes over these axes.",
    ),
    (
        r"\\odot|\\oslash|\\circ",
        r"{\odot}, {\oslash} and {x^{\circ p}} work entry by entry.",
    ),
    (
        r"\\mathrm\{softmax\}",
        r"{\mathrm{softmax}(x)_i = e^{x_i} / \sum_j e^{x_j}}, along the last axis.",
    ),
    (
        r"rowsum",
        r"{\mathrm{rowsum}} adds along the last axis; its result is subtracted from, or "
        r"multiplied with, each entry of the row.",
    ),
    (
        r"rowmean",
        r"{\mathrm{rowmean}} averages along the last axis and stands for each entry of the "
        r"row.",
    ),
    (
        r"\{broadcast\}",
        r"{\mathrm{broadcast}} repeats its argument to the shape of what it is the "
        r"gradient of, or to the shape that stands below it.",
    ),
    (
        r"\{(swap|transpose)\}",
        r"{\mathrm{swap}_{a,b}} exchanges two axes and {\mathrm{transpose}} orders them "
        r"anew, counted from 0.",
    ),
    (
        r"\\sigma\^2 \+ \\varepsilon",
        r"Layer norm: {\mu} and {\sigma^2} are mean and variance of its input {x} along "
        r"the last axis; {\hat x = (x - \mu) / \sqrt{\sigma^2 + \varepsilon}}.",
    ),
    (
        r"\\tfrac1r",
        r"RMS norm: {r = \sqrt{\mathrm{mean}(x^2) + \varepsilon}} of its input {x} along "
        r"the last axis, and {\hat x = x / r}.",
    ),
    (
        r"onehot",
        r"{t} holds the targets; {\mathrm{onehot}(t)} is 1 at each row's target and 0 "
        r"elsewhere; {N} is the number of rows.",
    ),
    (
        r"\\tfrac1n|\\tfrac\{2\}\{n\}",
        r"{n} is the number of entries that go into one mean or variance.",
    ),
    (
        r"\\bar S",
        r"In attention that is one op, {A} is its softmax, which is made again tile by tile, and "
        r"{\bar S} the gradient of what the softmax is taken of.",
    ),
    (
        r"softmax\}_\{j \\le i\}",
        r"{\mathrm{softmax}_{j \le i}} is of query {i} over the keys {j \le i} alone; the others "
        r"get weight 0.",
    ),
    (
        r"\\Phi",
        r"{\Phi} is the standard normal distribution function, {\varphi} its density.",
    ),
    (
        r"\\sigma\(",
        r"{\sigma(x) = 1 / (1 + e^{-x})}.",
    ),
    (
        r"\[[^\[\]\n]*(\\[lg]t|\\le|=) [^\[\]\n]*\]",
        r"{[\,\cdot\,]} is 1 where the condition holds and 0 elsewhere; {\#} counts where.",
    ),
    (
        r"\{detach\}",
        r"{\mathrm{detach}(x)} is {x} as a constant: no gradient goes back through it.",
    ),
    (
        r"\{keep\}",
        r"{\text{keep}} is 1 for the entries that dropout kept and 0 for the others.",
    ),
    (
        r"\{scatter\}",
        r"{\mathrm{scatter}_k} adds what was picked at the index {k} back in its place, and is 0 "
        r"elsewhere.",
    ),
    (
        r"\{:\}|\[\\ldots",
        r"Indices are NumPy's: {2{:}4} picks entries 2 and 3, {\ldots} stands for all other axes.",
    ),
    (
        r"\{(concat|stack)\}",
        r"{\mathrm{concat}} joins arrays along an axis, {\mathrm{stack}} along a new one.",
    ),
    (
        r"\{(expand|squeeze)\}",
        r"{\mathrm{expand}} adds axes of length 1 and {\mathrm{squeeze}} drops them, at places "
        r"counted from 0.",
    ),
    (
        r"\{pad\}",
        r"{\mathrm{pad}_{1{+}2}} puts 1 zero before and 2 behind along an axis, or the number that "
        r"is given.",
    ),
    (
        r"\{einsum\}",
        r"{\mathrm{einsum}} multiplies entries with these indices, and adds over those that are "
        r"not behind the arrow.",
    ),
    (
        r"\\right\\rvert",
        r"{\left.\frac{\partial L}{\partial X}\right\rvert_{Y}} is the part of the "
        r"gradient that comes back through {Y}.",
    ),
)


def inline(tex: str) -> str:
    """LaTeX within a line, in GitHub's form that no Markdown sign can disturb."""
    tex = " ".join(tex.replace("`", "'").split())
    return f"$`{tex}`$"


def code(text: str) -> str:
    """A name as code within a line; it cannot end the span."""
    return f"`{one_line(text, 120).replace('`', chr(39))}`"


def notation(text: str, conventions: list[str]) -> list[str]:
    """A chapter on the signs that occur in a text; nothing if it has none of them."""
    said = [*conventions] + [sentence for pattern, sentence in SIGNS if re.search(pattern, text)]
    lines = [f"- {_set(sentence)}" for sentence in said]
    return ["## Notation", "\n".join(lines)] if lines else []


def _set(sentence: str) -> str:
    """Outermost braces in a sentence hold formulas."""
    pieces, depth, start = [""], 0, 0
    for i, c in enumerate(sentence):
        if c == "{":
            depth += 1
            if depth == 1:
                start = i + 1
                continue
        if c == "}":
            depth -= 1
            if depth == 0:
                pieces.append(inline(sentence[start:i]))
                continue
        if depth == 0:
            pieces.append(c)
    return "".join(pieces)

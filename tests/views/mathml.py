"""Write the MathML of every formula, for the page: `python -m tests.views.mathml`.

To be run after a formula has changed. The formulas are LaTeX, in op declarations and in the
hand-derived steps. Here, and only here, latex2mathml turns them into MathML. What a placeholder
`<x>` stands for is filled in by the page, so it becomes `<mi class="slot">x</mi>`.
"""

from __future__ import annotations

import json
import re
import sys
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from layers.hand_derived import Step, multi_head_steps, self_attention_steps
from minigrad.engine.op import registry
from minigrad.views.variants import WHERE, variants

FILE = Path(__file__).parents[2] / "minigrad" / "views" / "page" / "assets" / "mathml.json"
NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"
SLOT = 0xE000  # from here on, a private character of Unicode for each placeholder of a formula
WORDLIKE = {"mi", "msub", "msup", "msubsup", "mfrac", "msqrt"}


def formulas() -> list[str]:
    """Every formula that the registry and the hand-derived steps can show, as LaTeX."""
    found = {
        tex
        for op in registry.values()
        if op.kernel.__module__.startswith("minigrad.")
        for made in variants(op)
        for whole in (made.tex, *made.vjp_tex.values())
        for tex in whole.split(WHERE)
    }
    for step in hand_derived():
        found |= {step.forward, *step.formulas.values()}
    return sorted(found)


def hand_derived() -> list[Step]:
    """The steps of each kind of layer: one head, many, shared ones, with biases and without."""
    X, W, half, b = np.ones((1, 3, 4)), np.eye(4), np.ones((4, 2)), np.ones(4)
    steps: list[Step] = []
    for biases, kv_heads in product((False, True), (None, 2, 1)):
        given = dict.fromkeys(("b_Q", "b_K", "b_V", "b_O"), b) if biases else {}
        weights = dict.fromkeys(("W_Q", "W_K", "W_V", "W_O"), W)
        if kv_heads is None:
            steps += self_attention_steps(X=X, grad_output=X, **weights, **given)
            continue
        if kv_heads == 1:
            weights |= {"W_K": half, "W_V": half}
            given |= {"b_K": b[:2], "b_V": b[:2]} if biases else {}
        steps += multi_head_steps(
            X=X, n_heads=2, n_kv_heads=kv_heads, grad_output=X, **weights, **given
        )
    return steps


def mathml(tex: str) -> str:
    """One formula as MathML, its placeholders marked.

    The converter's own spelling is tidied: names of functions become identifiers, letters of an
    upright word are joined, and neighbours in a product get some room: their symbols may be words.
    """
    from latex2mathml.converter import convert

    names = list(dict.fromkeys(re.findall(r"<(\w+)>", tex)))
    for i, name in enumerate(names):
        tex = tex.replace(f"<{name}>", f" {chr(SLOT + i)} ")
    root = ElementTree.fromstring(convert(tex, display="block"))
    for element in root.iter():
        element.tag = element.tag.removeprefix(NAMESPACE)
        if element.tag == "mi" and element.text and ord(element.text[0]) >= SLOT:
            element.text, element.attrib = names[ord(element.text[0]) - SLOT], {"class": "slot"}
        if element.tag == "mo" and len(element.text or "") > 1:
            element.tag, element.attrib = "mi", {}
        if element.text in ("(", ")", "[", "]"):
            element.attrib.pop("stretchy", None)  # <g> becomes a fraction: let them grow with it
    for element in root.iter():
        join_words(element)
        make_room(element)
    root.attrib = {}
    return ElementTree.tostring(root, encoding="unicode")


def join_words(element: ElementTree.Element) -> None:
    """<mi>o</mi><mi>u</mi><mi>t</mi>, all upright, become one <mi>out</mi>."""
    letters = list(element)
    if len(letters) > 1 and all(
        x.tag == "mi" and x.get("mathvariant") == "normal" for x in letters
    ):
        word = "".join(x.text or "" for x in letters)
        for letter in letters:
            element.remove(letter)
        ElementTree.SubElement(element, "mi").text = word


def make_room(element: ElementTree.Element) -> None:
    if element.tag not in ("math", "mrow", "mstyle", "msqrt"):
        return
    children = list(element)
    for child in children:
        element.remove(child)
    for child, after in zip(children, [*children[1:], None], strict=True):
        element.append(child)
        if after is None or child.tag not in WORDLIKE or after.tag not in WORDLIKE:
            continue
        element.append(ElementTree.Element("mspace", {"width": "0.17em"}))


def main() -> None:
    data = {tex: mathml(tex) for tex in formulas()}
    FILE.write_text(json.dumps(data, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{FILE}: {len(data)} formulas", file=sys.stderr)


if __name__ == "__main__":
    main()

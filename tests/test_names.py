"""One name has one meaning, and a line assigns one thing."""

import ast
from collections import defaultdict
from pathlib import Path

import layers
import minigrad as mg

ROOMS = (Path(mg.__file__).parent, Path(layers.__file__).parent)


MODULES = {
    str(path.relative_to(room.parent)): ast.parse(path.read_text("utf-8"))
    for room in ROOMS
    for path in sorted(room.rglob("*.py"))
}


def names_of(module):
    """The classes and constants of a module."""
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
            bound = (name.id for name in names if isinstance(name.ctx, ast.Store))
            yield from (name for name in bound if name.isupper() and len(name) > 1)


def is_packed(node):
    """Whether this is `a, b, c = x, y, z`, other than a rotation of the same names."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    values = {ast.unparse(value) for value in node.value.elts}
    return any(
        isinstance(target, ast.Tuple)
        and len(target.elts) > 2
        and {ast.unparse(part) for part in target.elts} != values
        for target in node.targets
    )


def test_a_class_or_constant_has_a_name_of_its_own():
    places = defaultdict(set)
    for path, module in MODULES.items():
        for name in names_of(module):
            places[name].add(path)
    several = {name: sorted(where) for name, where in places.items() if len(where) > 1}
    assert not several, "choose another name"


def test_a_line_assigns_one_thing():
    packed = [
        f"{path}:{node.lineno}"
        for path, module in MODULES.items()
        for node in ast.walk(module)
        if is_packed(node)
    ]
    assert not packed

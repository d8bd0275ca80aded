"""The model as a file: names, nodes, constants, and what onnxruntime makes of it."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError
from .attention import fused
from .graph import Graph, Value
from .positions import Pattern
from .program import Program
from .run import Constant, Made
from .sizes import Size
from .translation import Untranslatable, translate

__all__ = ["written"]


class Writer:
    """Writes a program as a graph.

    Args: names: of parameters, by the id of their arrays.
        axes: by input, by axis, the symbol of its length.
    """

    def __init__(
        self,
        program: Program,
        axes: dict[str, dict[int, str]],
        names: dict[int, str],
        attention: str,
    ) -> None:
        self.program, self.axes, self.names = program, axes, names
        self.to = Graph(attention)
        self._steps: Counter[str] = Counter()
        self.inputs: dict[str, Value] = {}
        self.values: dict[str | int, Value] = {}
        for name, form in program.inputs.items():
            self._add_input(name, form)
        if attention == "node":
            program.steps = fused(program.steps, [*program.outputs.values()])
        needed = _needed(program)
        for k, step in enumerate(program.steps):
            if k in needed:
                self._add_step(k, step)
        self.outputs = self._outputs()

    def _add_input(self, name: str, form: Any) -> None:
        """Integers come as int64, whatever the function was given."""
        dtype = np.dtype(np.int64) if form.dtype.kind in "iu" else form.dtype
        given = self.inputs[name] = Value(dtype, form.shape, name=name)
        given.infinite = form.dtype.kind == "f"  # it may be a mask
        self.to.path = "/sizes"
        for axis, symbol in self.axes.get(name, {}).items():
            if symbol not in self.to.symbols:
                made = self.to.Shape(given, start=axis, end=axis + 1, dtype=np.int64)
                made.name = symbol
                self.to.symbols[symbol] = made
        self.to.path = f"/{name}"
        self.values[name] = self.to.cast(given, form.dtype)

    def _add_step(self, k: int, step: Any) -> None:
        to, scope = self.to, f"/{step.scope}" if step.scope else ""
        to.path = self._unique(f"{scope}/{step.op.name}")
        to.label = f"{step.op.name}, at {step.place}"
        inputs = tuple([self._given(x, scope) for x in step.inputs])
        settings = tuple([self._given(x, scope) for x in step.settings])
        before = len(to.nodes)
        try:
            made = to.cast(translate(to, step.op, inputs, settings, step.out), step.out.dtype)
        except Untranslatable as error:
            raise ArgumentError(f"export_onnx: {to.label}, {error}") from None
        if any(made in outputs for _, _, outputs, _, _ in to.nodes[before:]):
            made.shape = step.out.shape
            made.name = f"{scope}/{step.name}" if step.name else ""
        self.values[k] = made

    def _unique(self, path: str) -> str:
        """A step's path, numbered from its second time on."""
        self._steps[path] += 1
        return path if self._steps[path] == 1 else f"{path}_{self._steps[path]}"

    def _given(self, item: Any, scope: str) -> Any:
        """An argument, its arrays as Values."""
        if isinstance(item, Made):
            return self.values[item.by]
        if isinstance(item, Constant):
            own = f"{scope}/{item.name}" if item.name else ""
            return self.to.constant(item.array, self.names.get(id(item.array), own))
        if item.__class__ in (tuple, list):
            return item.__class__([self._given(x, scope) for x in item])
        return self.to.pattern(item) if isinstance(item, Pattern) else item

    def _outputs(self) -> dict[str, Value]:
        found: dict[str, Value] = {}
        taken = {*self.inputs.values()}
        for name, made in self.program.outputs.items():
            value = self.values[made.by]
            if value in taken:
                self.to.path = f"/{name}"
                shape, value = value.shape, self.to.Identity(value)
                value.shape = shape
            taken.add(value)
            found[name] = value
            value.name = name
        return found


def _needed(program: Program) -> set[Any]:
    """The steps that outputs depend on; not those of checks, say."""
    stack, found = [*program.outputs.values()], set()
    while stack:
        item = stack.pop()
        if isinstance(item, tuple | list):
            stack += item
        elif isinstance(item, slice):
            stack += [item.start, item.stop, item.step]
        elif isinstance(item, Made) and item.by not in found:
            found.add(item.by)
            if isinstance(item.by, int):
                step = program.steps[item.by]
                stack += [*step.inputs, *step.settings]
    return found


def written(
    program: Program,
    axes: dict[str, dict[int, str]],
    names: dict[int, str],
    path: str,
    external: bool | None,
    attention: str,
) -> Any:
    """Write the model file; the ModelProto."""
    import onnx

    writer = Writer(program, axes, names, attention)
    to, helper = writer.to, onnx.helper
    told = _unique_names(writer)
    nodes = []
    used: Counter[str] = Counter()
    for operator, inputs, outputs, attributes, where in to.nodes:
        plain = {k: _attribute(helper, v) for k, v in attributes.items()}
        name = where if not used[where] else f"{where}/{operator}"
        used[where] += 1
        used[name] += name != where
        name = name if used[name] < 2 or name == where else f"{name}_{used[name]}"
        listed = ["" if x is None else told[x] for x in inputs]
        node = helper.make_node(operator, listed, [told[x] for x in outputs], name=name, **plain)
        node.metadata_props.add(key="namespace", value=where.strip("/"))
        nodes.append(node)
    kept = {id(x) for _, inputs, _, _, _ in to.nodes for x in inputs}
    constants = [
        onnx.numpy_helper.from_array(np.ascontiguousarray(v.array).reshape(v.array.shape), told[v])
        for v in to.constants
        if id(v) in kept
    ]
    infos = {id(v): _info(helper, told[v], v) for v in told if v.shape is not None}
    ends = {id(v) for v in (*writer.inputs.values(), *writer.outputs.values())}
    between = [
        infos[id(v)]
        for _, _, outs, _, _ in to.nodes
        for v in outs
        if id(v) in infos and id(v) not in ends
    ]
    graph = helper.make_graph(
        nodes,
        "minigrad",
        [infos[id(v)] for v in writer.inputs.values()],
        [infos[id(v)] for v in writer.outputs.values()],
        constants,
        value_info=between,
    )
    opset = helper.make_opsetid("", to.opset)
    model = helper.make_model(
        graph,
        producer_name="minigrad",
        opset_imports=[opset],
        ir_version=max(10, helper.find_min_ir_version_for([opset])),
    )
    _save(onnx, model, path, external)
    return model


def _unique_names(writer: Writer) -> dict[Value, str]:
    """A name for each value: its own, numbered where it comes again; or its node's."""
    told: dict[Value, str] = {}
    used: set[str] = set()
    named = [*writer.inputs.values(), *writer.outputs.values(), *writer.to.constants]
    hints = [(v, v.name or "constant") for v in named]
    for operator, _, outputs, _, where in writer.to.nodes:
        hints += [(v, v.name or f"{where}/{operator}") for v in outputs]
    for value, hint in hints:
        if value in told:
            continue
        name, k = hint, 0
        while name in used:
            k += 1
            name = f"{hint}_{k}"
        used.add(name)
        told[value] = name
    return told


def _attribute(helper: Any, value: Any) -> Any:
    return helper.np_dtype_to_tensor_dtype(value) if isinstance(value, np.dtype) else value


def _info(helper: Any, name: str, value: Value) -> Any:
    axes = [
        n if isinstance(n, int) else str(n) if isinstance(n, Size) else None for n in value.shape
    ]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), axes)


def _save(onnx: Any, model: Any, path: str, external: bool | None) -> None:
    """One file; above 2 GB, or if asked for, the constants in another beside it."""
    onnx.checker.check_model(model) if model.ByteSize() < 2**31 else None
    apart = model.ByteSize() >= 2**31 - 2**20 if external is None else external
    if not apart:
        with open(path, "wb") as file:
            file.write(model.SerializeToString(deterministic=True))
        return
    data = f"{os.path.basename(path)}.data"
    beside = os.path.join(os.path.dirname(path), data)
    if os.path.exists(beside):
        os.remove(beside)
    onnx.save_model(model, path, save_as_external_data=True, location=data, size_threshold=1024)

"""The model as a file: names, nodes, constants, and what onnxruntime makes of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain, count
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.op import Shaped
from .graph import Graph, GraphValue
from .positions import GrowingArray
from .program import SizedProgram
from .run import Constant, Made, RecordedCall, RecordedStep, mapped
from .sizes import Size
from .translation import Untranslatable, translate

__all__ = ["written"]

MOST_BYTES_OF_CONSTANTS = 2**31 - 2**24  # in one file: one of protobuf ends at 2 GB


class ModelWriter:
    """Writes what runs of a function share as a graph.

    Args: runs: made of the same steps (see check_alike).
        axes: by input, by axis, the symbol of its length.
        names: of parameters, by the id of their arrays.
    """

    def __init__(
        self,
        runs: Sequence[RecordedCall],
        axes: dict[str, dict[int, str]],
        names: dict[int, str],
    ) -> None:
        self.program = SizedProgram(runs)
        self.axes = axes
        self.names = names
        self.to = Graph()
        self._steps: Counter[str] = Counter()
        self.inputs: dict[str, GraphValue] = {}
        self.values: dict[str | int, GraphValue] = {}
        for name in runs[0].inputs:
            self._add_input(name, self.program.form([Shaped.of(run.inputs[name]) for run in runs]))
        needed = _needed(runs[0])
        for k, steps in enumerate(zip(*(run.steps for run in runs), strict=True)):
            if k in needed:
                self._add_step(k, steps)
        self.outputs = self._outputs(runs[0].outputs)

    def _add_input(self, name: str, form: Any) -> None:
        """Integers come as int64, whatever the function was given."""
        dtype = np.dtype(np.int64) if form.dtype.kind in "iu" else form.dtype
        given = self.inputs[name] = GraphValue(dtype, form.shape, name=name)
        given.infinite = form.dtype.kind == "f"  # it may be a mask
        self.to.path = "/sizes"
        for axis, symbol in self.axes.get(name, {}).items():
            if symbol not in self.to.symbols:
                made = self.to.Shape(given, start=axis, end=axis + 1, dtype=np.int64)
                made.name = symbol
                self.to.symbols[symbol] = made
        self.to.path = f"/{name}"
        self.values[name] = self.to.cast(given, form.dtype)

    def _add_step(self, k: int, steps: Sequence[RecordedStep]) -> None:
        to, step = self.to, steps[0]
        scope = f"/{step.scope}" if step.scope else ""
        to.path = self._unique(f"{scope}/{step.op.name}")
        to.label = f"{step.op.name}, at {step.place}"
        arguments = self.program.argument([(one.inputs, one.settings) for one in steps], to.label)
        inputs, settings = mapped(partial(self._given, scope), arguments)
        out = self.program.form([one.out for one in steps])
        before = len(to.nodes)
        try:
            made = to.cast(translate(to, step.op, inputs, settings, out), out.dtype)
        except Untranslatable as error:
            raise ArgumentError(f"export_onnx: {to.label}, {error}") from None
        if any(made in outputs for _, _, outputs, _, _ in to.nodes[before:]):
            made.shape = out.shape
            made.name = f"{scope}/{step.name}" if step.name else ""
        self.values[k] = made

    def _unique(self, path: str) -> str:
        """A step's path, numbered from its second time on."""
        self._steps[path] += 1
        return path if self._steps[path] == 1 else f"{path}_{self._steps[path]}"

    def _given(self, scope: str, item: Any) -> Any:
        """An argument that is no container; an array as a GraphValue."""
        if isinstance(item, Made):
            return self.values[item.by]
        if isinstance(item, Constant):
            own = f"{scope}/{item.name}" if item.name else ""
            return self.to.constant(item.array, self.names.get(id(item.array), own))
        return self.to.pattern(item) if isinstance(item, GrowingArray) else item

    def _outputs(self, outputs: dict[str, Any]) -> dict[str, GraphValue]:
        found: dict[str, GraphValue] = {}
        taken = {*self.inputs.values()}
        for name, made in outputs.items():
            value = self.values[made.by]
            if value in taken:
                self.to.path = f"/{name}"
                shape, value = value.shape, self.to.Identity(value)
                value.shape = shape
            taken.add(value)
            found[name] = value
            value.name = name
        return found


def _needed(run: RecordedCall) -> set[Any]:
    """The steps that outputs depend on; not those of checks, say."""
    found: set[Any] = set()

    def note(item: Any) -> None:
        if isinstance(item, Made):
            found.add(item.by)

    mapped(note, [*run.outputs.values()])
    for k in reversed(range(len(run.steps))):
        if k in found:
            mapped(note, [run.steps[k].inputs, run.steps[k].settings])
    return found


def _unused(hint: str, used: set[str]) -> str:
    """A name that is used from here on: the hint, or the hint and a number."""
    numbered = (f"{hint}_{k}" for k in count(1))
    name = next(name for name in chain([hint], numbered) if name not in used)
    used.add(name)
    return name


def written(
    runs: Sequence[RecordedCall],
    axes: dict[str, dict[int, str]],
    names: dict[int, str],
    path: str,
    external: bool | None,
) -> None:
    """Write the model file."""
    import onnx

    writer = ModelWriter(runs, axes, names)
    to, helper = writer.to, onnx.helper
    used = {x for _, inputs, _, _, _ in to.nodes for x in inputs}
    constants = [x for x in to.constants if x in used]
    made = [x for _, _, outputs, _, _ in to.nodes for x in outputs]
    hints = {x: x.name or "constant" for x in (*writer.inputs.values(), *constants)}
    for operator, _, outputs, _, where in to.nodes:
        hints |= {x: x.name or f"{where}/{operator}" for x in outputs}
    taken: set[str] = set()
    ends = [*writer.inputs.values(), *writer.outputs.values()]  # whose names are settled
    told = {x: _unused(hints[x], taken) for x in dict.fromkeys([*ends, *constants, *made])}
    known = [x for x in made if x.shape is not None and x not in ends]
    arrays = [np.ascontiguousarray(x.array).reshape(x.array.shape) for x in constants]
    graph = helper.make_graph(
        _nodes(helper, to, told),
        "minigrad",
        [_info(helper, told[x], x) for x in writer.inputs.values()],
        [_info(helper, told[x], x) for x in writer.outputs.values()],
        [
            onnx.numpy_helper.from_array(array, told[x])
            for array, x in zip(arrays, constants, strict=True)
        ],
        value_info=[_info(helper, told[x], x) for x in known],
    )
    opset = helper.make_opsetid("", to.opset)
    ir_version = max(10, helper.find_min_ir_version_for([opset]))
    settings = {"producer_name": "minigrad", "opset_imports": [opset], "ir_version": ir_version}
    large = sum(array.nbytes for array in arrays) > MOST_BYTES_OF_CONSTANTS
    _save(onnx, helper.make_model(graph, **settings), path, large if external is None else external)


def _nodes(helper: Any, to: Graph, told: dict[GraphValue, str]) -> list[Any]:
    """The first node of a step bears its path, others that and their operator too."""
    names: set[str] = set()
    nodes = []
    for operator, inputs, outputs, attributes, where in to.nodes:
        plain = {
            key: helper.np_dtype_to_tensor_dtype(x) if isinstance(x, np.dtype) else x
            for key, x in attributes.items()
        }
        name = _unused(f"{where}/{operator}" if where in names else where, names)
        listed = ["" if x is None else told[x] for x in inputs]
        node = helper.make_node(operator, listed, [told[x] for x in outputs], name=name, **plain)
        node.metadata_props.add(key="namespace", value=where.strip("/"))
        nodes.append(node)
    return nodes


def _info(helper: Any, name: str, value: GraphValue) -> Any:
    axes = [
        n if isinstance(n, int) else str(n) if isinstance(n, Size) else None for n in value.shape
    ]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), axes)


def _save(onnx: Any, model: Any, path: str, apart: bool) -> None:
    """One file; or the constants in another beside it. The file is checked."""
    data = f"{os.path.basename(path)}.data"
    if apart:
        onnx.save_model(model, path, save_as_external_data=True, location=data, size_threshold=1024)
    else:
        with open(path, "wb") as file:
            file.write(model.SerializeToString(deterministic=True))
    onnx.checker.check_model(path)

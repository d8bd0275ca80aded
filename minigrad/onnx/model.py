"""The model as a file: names, nodes and constants."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain, count
from types import ModuleType
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.op import Shaped
from .graph import Graph, GraphNode, GraphValue
from .positions import GrowingArray
from .program import SizedForm, SizedProgram
from .run import Constant, RecordedCall, RecordedStep, Reference, mapped
from .sizes import AxisSymbols, Size
from .translation import Untranslatable, translate

__all__ = ["written"]

MOST_BYTES_OF_CONSTANTS = 2**31 - 2**24  # in one file: one of protobuf ends at 2 GB


class ModelWriter:
    """Writes the program of several runs of a function as a graph.

    Args: runs: made of the same steps (see check_same_steps).
        axes: by input, by axis, the symbol of its length.
        names: of parameters, by the id of their arrays.
    """

    def __init__(
        self,
        runs: Sequence[RecordedCall],
        axes: AxisSymbols,
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

    def _add_input(self, name: str, form: SizedForm) -> None:
        """An input of the model, and its lengths that are symbols; integers are int64 there."""
        dtype = np.dtype(np.int64) if form.dtype.kind in "iu" else form.dtype
        value = self.inputs[name] = GraphValue(dtype, form.shape, name=name)
        value.infinite = form.dtype.kind == "f"  # it may be a mask
        self.to.path = "/sizes"
        for axis, symbol in self.axes.get(name, {}).items():
            if symbol not in self.to.symbols:
                length = self.to.Shape(value, start=axis, end=axis + 1, dtype=np.int64)
                length.name = symbol
                self.to.symbols[symbol] = length
        self.to.path = f"/{name}"
        self.values[name] = self.to.cast(value, form.dtype)

    def _add_step(self, k: int, steps: Sequence[RecordedStep]) -> None:
        to, step = self.to, steps[0]
        scope = f"/{step.scope}" if step.scope else ""
        to.path = self._unique(f"{scope}/{step.op.name}")
        to.label = f"{step.op.name}, at {step.place}"
        arguments = self.program.argument(
            [(each.inputs, each.settings) for each in steps], to.label
        )
        inputs, settings = mapped(partial(self._argument, scope), arguments)
        out = self.program.form([each.out for each in steps])
        before = len(to.nodes)
        try:
            value = to.cast(translate(to, step.op, inputs, settings, out), out.dtype)
        except Untranslatable as error:
            raise ArgumentError(f"export_onnx: {to.label}, {error}") from None
        if any(value in node.outputs for node in to.nodes[before:]):
            value.shape = out.shape
            value.name = f"{scope}/{step.name}" if step.name else ""
        self.values[k] = value

    def _unique(self, path: str) -> str:
        """A step's path, numbered from its second time on."""
        self._steps[path] += 1
        return path if self._steps[path] == 1 else f"{path}_{self._steps[path]}"

    def _argument(self, scope: str, item: object) -> object:
        """An argument that is no container; an array as a GraphValue."""
        if isinstance(item, Reference):
            return self.values[item.source]
        if isinstance(item, Constant):
            own = f"{scope}/{item.name}" if item.name else ""
            return self.to.constant(item.array, self.names.get(id(item.array), own))
        return self.to.pattern(item) if isinstance(item, GrowingArray) else item

    def _outputs(self, outputs: dict[str, Reference]) -> dict[str, GraphValue]:
        found: dict[str, GraphValue] = {}
        taken = {*self.inputs.values()}
        for name, made in outputs.items():
            value = self.values[made.source]
            if value in taken:
                self.to.path = f"/{name}"
                shape, value = value.shape, self.to.Identity(value)
                value.shape = shape
            taken.add(value)
            found[name] = value
            value.name = name
        return found


def _needed(run: RecordedCall) -> set[str | int]:
    """The inputs and steps that outputs depend on; steps of checks are left out."""
    found: set[str | int] = set()

    def note(item: object) -> None:
        if isinstance(item, Reference):
            found.add(item.source)

    mapped(note, [*run.outputs.values()])
    for k in reversed(range(len(run.steps))):
        if k in found:
            mapped(note, [run.steps[k].inputs, run.steps[k].settings])
    return found


def _unused(hint: str, used: set[str]) -> str:
    """The hint, with a number if it is used already; then it is used too."""
    numbered = (f"{hint}_{k}" for k in count(1))
    name = next(name for name in chain([hint], numbered) if name not in used)
    used.add(name)
    return name


def written(
    runs: Sequence[RecordedCall],
    axes: AxisSymbols,
    names: dict[int, str],
    path: str,
    external: bool | None,
) -> dict[int, str]:
    """Write the model file; returns the names of what steps rounded, by their positions."""
    import onnx

    writer = ModelWriter(runs, axes, names)
    nodes, helper = writer.to.nodes, onnx.helper
    inputs, outputs = writer.inputs.values(), writer.outputs.values()
    used = {x for node in nodes for x in node.inputs}
    constants = [x for x in writer.to.constants if x in used]
    arrays = [np.asarray(x.array, order="C") for x in constants]
    named = _named_values([*inputs, *outputs], constants, nodes)
    inner = [x for node in nodes for x in node.outputs if x.shape is not None and x not in outputs]
    graph = helper.make_graph(
        _nodes(helper, nodes, named),
        "minigrad",
        [_info(helper, named[x], x) for x in inputs],
        [_info(helper, named[x], x) for x in outputs],
        [
            onnx.numpy_helper.from_array(array, named[x])
            for array, x in zip(arrays, constants, strict=True)
        ],
        value_info=[_info(helper, named[x], x) for x in inner],
    )
    opset = helper.make_opsetid("", writer.to.opset)
    ir_version = max(10, helper.find_min_ir_version_for([opset]))
    settings = {"producer_name": "minigrad", "opset_imports": [opset], "ir_version": ir_version}
    large = sum(array.nbytes for array in arrays) > MOST_BYTES_OF_CONSTANTS
    _save(onnx, helper.make_model(graph, **settings), path, large if external is None else external)
    return {
        k: named[writer.values[k]]
        for k, step in enumerate(runs[0].steps)
        if step.rounding and k in writer.values
    }


def _named_values(
    ends: list[GraphValue], constants: list[GraphValue], nodes: list[GraphNode]
) -> dict[GraphValue, str]:
    """A name for each value. Inputs and outputs, the ends, come first and keep theirs."""
    hints = {x: x.name or "constant" for x in [*ends, *constants]}
    for node in nodes:
        hints |= {x: x.name or f"{node.path}/{node.operator}" for x in node.outputs}
    used: set[str] = set()
    return {x: _unused(hint, used) for x, hint in hints.items()}


def _nodes(helper: ModuleType, nodes: list[GraphNode], named: dict[GraphValue, str]) -> list[Any]:
    """The nodes of the file, named by their steps, and by their operators from the second on."""
    names: set[str] = set()
    made = []
    for operator, inputs, outputs, attributes, path in nodes:
        plain = {
            key: helper.np_dtype_to_tensor_dtype(x) if isinstance(x, np.dtype) else x
            for key, x in attributes.items()
        }
        name = _unused(f"{path}/{operator}" if path in names else path, names)
        given = ["" if x is None else named[x] for x in inputs]
        node = helper.make_node(operator, given, [named[x] for x in outputs], name=name, **plain)
        node.metadata_props.add(key="namespace", value=path.strip("/"))
        made.append(node)
    return made


def _info(helper: ModuleType, name: str, value: GraphValue) -> Any:
    """Name, dtype and shape of a value, as the file has them."""
    assert value.shape is not None
    dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
    axes = [
        n if isinstance(n, int) else str(n) if isinstance(n, Size) else None for n in value.shape
    ]
    return helper.make_tensor_value_info(name, dtype, axes)


def _save(onnx: ModuleType, model: Any, path: str, apart: bool) -> None:
    """One file; or the constants in another beside it. The file is checked."""
    data = f"{os.path.basename(path)}.data"
    if apart:
        onnx.save_model(model, path, save_as_external_data=True, location=data, size_threshold=1024)
    else:
        with open(path, "wb") as file:
            file.write(model.SerializeToString(deterministic=True))
    onnx.checker.check_model(path)

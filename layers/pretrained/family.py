"""A family of checkpoints, as data: where its tensors go, and what its config.json says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Family", "ParameterNames", "TensorSource", "classes", "joined", "numbered"]


class TensorSource(NamedTuple):
    """The tensor that a parameter comes from, and what is done to it.

    how: "T" transposes; "0/3" takes the first of three parts of the last axis, "T0/3" that of the
        transpose.
    """

    name: str
    how: str = ""

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The tensor's shape, for a parameter of this shape."""
        if parts := self.how.partition("/")[2]:
            shape = (*shape[:-1], shape[-1] * int(parts))
        return shape[::-1] if self.how.startswith("T") else shape

    def take(self, tensor: NDArray[Any]) -> NDArray[Any]:
        """The parameter's entries: a view, or a copy of a part."""
        tensor = tensor.T if self.how.startswith("T") else tensor
        part, _, parts = self.how.removeprefix("T").partition("/")
        return np.split(tensor, int(parts), axis=-1)[int(part)].copy() if parts else tensor


def joined(parts: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """The tensor whose parameters, by their `how`, have these entries: it undoes `take`.

    >>> joined({"T1/2": np.zeros((3, 2)), "T0/2": np.ones((3, 2))}).shape
    (4, 3)
    """
    arrays = [parts[how] for how in sorted(parts)]
    tensor = arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=-1)
    return tensor.T if min(parts).startswith("T") else tensor


class ParameterNames(NamedTuple):
    """One of our parameters, the names in the file that it may have, and what is done to it."""

    ours: str
    theirs: tuple[str, ...]
    how: str


class Family(NamedTuple):
    """A kind of checkpoint: a table of names, a table of settings, and what else is its own.

    model: what is made of it: "PretrainedLanguageModel", "TextEncoder" or "TextToText".
    kinds: the classes of the library `transformers` that write it, the usual one first; for each
        the parts of the model that its checkpoint must have.
    names: a line for each of our parameters: its path, the file's name, and what is done to it: T
        transposes, 0/3 is the first third of the last axis. `*` is the number of a block, `W|b` a
        .weight and a .bias, a comma stands between names of which the first that is there counts.
        Indented lines have the prefixes of the line above them.
    prefix: what stands before the file's names where a head surrounds the model, except before
        those that begin with a slash.
    settings: a line for each keyword of the model: the keyword, the config's key, how it is read
        (a name of READERS; "size" unless given) and what it is where the key is missing: JSON, or
        made of settings above. Without that, the key is required.
    options: keywords that are the same for all checkpoints of the family.
    only: keys that must have this value, where they are there.
    neutral: keys that change nothing in this family.
    optional: parts that a file may have whatever its class.
    ignored: a pattern of tensors that no model computes with.
    tied: names that a file may have although they are one of our parameters.
    """

    model: str
    kinds: Mapping[str, str]
    names: str
    settings: str
    prefix: str = ""
    options: Mapping[str, Any] = MappingProxyType({})
    only: Mapping[str, Any] = MappingProxyType({})
    neutral: str = ""
    optional: str = ""
    ignored: str = "$^"
    tied: Mapping[str, str] = MappingProxyType({"lm_head.weight": "embedding.W"})

    def rows(self) -> list[ParameterNames]:
        """The table of names, row by row; a name that needs no prefix begins with a slash.

        >>> Family("", {}, "decoder.blocks.*.  h.*.\\n  W  a,b  T", "").rows()
        [ParameterNames(ours='decoder.blocks.*.W', theirs=('h.*.a', 'h.*.b'), how='T')]
        """
        return [row for line in _lines(self.names) for row in _rows(*line)]


def classes(name: str, endings: Mapping[str, str]) -> dict[str, str]:
    """The `kinds` of a family whose classes have this name and these endings."""
    return {name + ending: parts for ending, parts in endings.items()}


def _lines(table: str) -> Iterator[tuple[str, list[str], str]]:
    """Each line's path and names, with the prefixes of the heading above it, and its how."""
    before = ("", "")
    for line in filter(str.strip, table.splitlines()):
        ours, theirs, *how = line.split()
        if ours.endswith("."):
            before = (ours, theirs)
            continue
        before = before if line[0] == " " else ("", "")
        yield before[0] + ours, [before[1] + name for name in theirs.split(",")], "".join(how)


def _rows(path: str, names: list[str], how: str) -> list[ParameterNames]:
    """One row of a line; of W|b two."""
    weight, _, bias = path.partition("|")
    if not bias:
        return [ParameterNames(path, tuple(names), how)]
    owner = path.rpartition(".")[0]
    weights, biases = (tuple(f"{n}.{end}" for n in names) for end in ("weight", "bias"))
    return [
        ParameterNames(weight, weights, how),
        ParameterNames(f"{owner}.{bias}", biases, how if "/" in how else ""),
    ]


def numbered(name: str, path: str) -> str:
    """A name whose `*` is the number of the block that a parameter's path has."""
    number = re.search(r"\.(\d+)\.", path)
    return name.replace("*", number[1]) if number else name

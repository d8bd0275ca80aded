"""save and load: a training run in one file, whole or not at all.

The file is an `.npz` without pickle: the arrays, and one JSON text that has everything else, with
names in place of arrays. NumPy alone can open it.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from .engine.errors import ArgumentError, FileError
from .engine.refusals import explained
from .engine.types import Array, StateDict
from .files import is_special, make_folder, open_regular, resolve, writing

__all__ = ["load", "save"]


class HasState(Protocol):
    """A model, an optimizer, a schedule, and whatever else has a state."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state: Any, /) -> object: ...


Part: TypeAlias = HasState | np.random.Generator
PlainData: TypeAlias = Any  # numbers, text, arrays, and lists and dicts of them

FILE_VERSION = 1
JSON_NAME = "minigrad.json"  # the name of the JSON text among the arrays
ARRAY_KEY = "minigrad.array"  # stands in that text where an array is


@explained
def save(
    path: str | os.PathLike[str],
    *,
    step: PlainData = None,
    note: PlainData = None,
    keep: int = 2,
    **parts: Part | None,
) -> Path:
    """Write a training run into one file; a kill at any moment leaves the one before it whole.

    The file is written under another name, flushed to the disk, then renamed. What `path` held
    becomes `path.1`, that one `path.2`, up to `keep` files. A run that is loaded ends in the same
    bits as one that was never stopped; with a compiled step, whose first call runs eagerly, it ends
    in the same numbers to rounding.

    Args:
        parts: model=, optimizer=, schedule=, data=, rng=, or any name: generators, and whatever has
            `state_dict`; of a model's layers the generators as well.
        step, note: plain values, arrays and lists and dicts of them, which `load` returns: tuples
            as lists, keys of dicts as text.
    Raises: ArgumentError for what cannot be kept, before anything is written.

    >>> from tempfile import TemporaryDirectory
    >>> from layers import Linear
    >>> with TemporaryDirectory() as folder:
    ...     path = save(f"{folder}/run.npz", model=Linear(3, 2), step=7)
    ...     print(load(path, model=Linear(3, 2))["step"])
    7
    """
    if keep < 1:
        raise ArgumentError(f"save: keep must be at least 1, got {keep}")
    states = {name: state_of(part) for name, part in parts.items() if part is not None}
    arrays: dict[str, Array] = {}
    about = {
        "minigrad": FILE_VERSION,
        "step": _without_arrays(step, "step", arrays),
        "note": _without_arrays(note, "note", arrays),
        "parts": _without_arrays(states, "", arrays),
    }
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    path = Path(path)
    make_folder(path.parent, "save")
    target = resolve(path, "save")
    kept = [] if is_special(target) else _names(target, keep)
    for name in kept:
        resolve(name, "save")  # an older file's name may be a folder
    with writing(target, "save", sync=True, before=lambda: _shift(kept)) as file:
        np.savez(file, **{JSON_NAME: text}, **arrays)  # type: ignore[arg-type]
    if kept:
        _sync_folder(target.parent)
    return path


@explained
def load(path: str | os.PathLike[str], **parts: Part | None) -> StateDict:
    """Put a saved run back into the parts given by name; all of it fits, or nothing is changed.

    Where the file is damaged, or is none of ours, the one saved before it is used, with a warning.

    Returns: "step" and "note" as they were saved, "path" of the file that was read, and the states
        of parts that were not asked for.
    Raises: FileError if no file can be read; ArgumentError that lists all that does not fit.
    """
    found, about = _newest(Path(path))
    states = about["parts"]
    wanted = {name: part for name, part in parts.items() if part is not None}
    before = {name: state_of(part, "load") for name, part in wanted.items()}
    wrong = [f"{name}: not in the file" for name in wanted if name not in states]
    for name, part in wanted.items():
        if name in states:
            try:
                restore(part, states[name])
            except KeyError as error:
                wrong.append(f"{name}: its state in the file has no {error}; save the run anew")
            except Exception as error:  # whatever a part of a user's own raises
                wrong.append(f"{name}: {_said(error)}")
    if wrong:
        for name, part in wanted.items():
            with suppress(Exception):  # listed above
                restore(part, before[name])
        raise ArgumentError("\n  ".join([f"load: nothing was loaded from {found}", *wrong]))
    rest = {name: state for name, state in states.items() if name not in wanted}
    return {"step": about["step"], "note": about["note"], "path": found} | rest


# ---------------------------------------------------------------- states


def state_of(part: Part, call: str = "save") -> StateDict:
    """The arrays and plain values of a part, nested."""
    if isinstance(part, np.random.Generator):
        return dict(deepcopy(part.bit_generator.state))
    if not hasattr(part, "state_dict"):
        raise ArgumentError(
            f"{call}: a {type(part).__name__} has no state_dict, so it cannot be kept; give the "
            "model itself, and plain values as step= or note="
        )
    state = part.state_dict()
    generators = {path: state_of(generator) for path, generator in _generators(part).items()}
    return {"state": state} | ({"generators": generators} if generators else {})


def restore(part: Part, state: StateDict) -> None:
    if isinstance(part, np.random.Generator):
        part.bit_generator.state = state
        return
    generators, saved = _generators(part), state.get("generators", {})
    if set(generators) != set(saved):
        raise ArgumentError(f"generators: {sorted(generators)} here, {sorted(saved)} in the file")
    part.load_state_dict(state["state"])
    for path, generator in generators.items():
        restore(generator, saved[path])


def _generators(part: Part) -> dict[str, np.random.Generator]:
    """The generators that a model's layers draw from, by path; of a shared one, its first path."""
    found: dict[str, np.random.Generator] = {}
    for path, module in getattr(part, "named_modules", dict)():
        for name, value in vars(module).items():
            known = any(value is generator for generator in found.values())
            if isinstance(value, np.random.Generator) and not known:
                found[f"{path}.{name}" if path else name] = value
    return found


def _without_arrays(value: PlainData, path: str, arrays: dict[str, Array]) -> PlainData:
    """Nested plain values for JSON; each array goes into `arrays`, and its name stands for it."""
    if isinstance(value, Mapping):
        if len({*map(str, value)}) < len(value) or ARRAY_KEY in value:
            raise ArgumentError(
                f"save: keys of {path.removeprefix('/')} are kept as text, of which {[*value]} has "
                f"some twice, or {ARRAY_KEY!r}, which stands for an array"
            )
        return {str(k): _without_arrays(v, f"{path}/{k}", arrays) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_arrays(v, f"{path}/{i}", arrays) for i, v in enumerate(value)]
    if hasattr(value, "__apply__"):  # a Tensor, in the state of a user's own class
        value = value.numpy()
    if isinstance(value, np.ndarray):
        name = path.removeprefix("/")
        if value.dtype.hasobject:
            raise ArgumentError(
                f"save: {name} is an array of Python objects, which would have to be pickled; "
                "keep numbers, text, or lists of them"
            )
        name += f"~{len(arrays)}" if name in arrays else ""  # a key may have a slash in it
        arrays[name] = np.asarray(value, order="C")
        return {ARRAY_KEY: name}
    value = value.item() if isinstance(value, np.generic) else value
    if value is not None and not isinstance(value, str | int | float):
        raise ArgumentError(
            f"save: {path.removeprefix('/')} is a {type(value).__name__}, which a file cannot keep;"
            " write numbers, text, arrays, or lists and dicts of them"
        )
    return value


# ---------------------------------------------------------------- files


def _newest(path: Path) -> tuple[Path, StateDict]:
    """The newest file that can be read: its path, and what it holds."""
    newest, *older = _names(Path(os.path.realpath(path)) if path.is_symlink() else path, 1000)
    first: FileError | None = None
    for candidate in (newest, *takewhile(Path.exists, older)):
        try:
            about = _read(candidate)
        except FileError as error:
            first = first or error
            continue
        if first is not None:
            warnings.warn(f"{first}; {candidate} is used instead", stacklevel=3)
        return candidate, about
    assert first is not None
    raise first


def _read(path: Path) -> StateDict:
    """The content of one file, whose checksums the zip format tests. Raises: FileError."""

    def with_array(entry: dict[str, Any]) -> Any:
        if set(entry) != {ARRAY_KEY}:
            return entry
        name = entry[ARRAY_KEY]
        if name not in arrays:
            raise FileError(
                f"{path} has lost the array {name!r}, which its own list names: something else "
                "than minigrad has written to it; take an older copy, or save the run anew"
            )
        return arrays[name]

    try:
        with open_regular(path) as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        about: StateDict = json.loads(arrays.pop(JSON_NAME).tobytes(), object_hook=with_array)
        known = about["minigrad"]
        if known == FILE_VERSION:
            parts = dict(about["parts"])
            about = {"step": about["step"], "note": about["note"], "parts": parts}
    except FileNotFoundError as error:
        raise FileError(f"load: no such file: {path}") from error
    except FileError as error:
        raise FileError(f"load: {error}") from None
    except Exception as error:  # of zip, zlib, NumPy or JSON: each means a damaged file
        why = f"is damaged, or no file of minigrad: {_why(error)}"
        raise FileError(f"load: {path} {why}") from error
    if known != FILE_VERSION:
        raise FileError(f"load: {path} is of version {known}; this minigrad reads {FILE_VERSION}")
    return about


def _why(error: Exception) -> str:
    """The error's text; in place of NumPy's advice to unpickle, why that is never done."""
    if "pickle" in str(error):
        return "it holds Python objects, which are never unpickled, as that could run any program"
    return f"it has no {error}" if isinstance(error, KeyError) else _said(error)


def _names(target: Path, keep: int) -> list[Path]:
    """The newest file's name and those of the older ones, newest first."""
    return [target, *(target.with_name(f"{target.name}.{i}") for i in range(1, keep))]


def _shift(names: list[Path]) -> None:
    """Rename each file to the next older name; the newest stays until it is replaced.

    Another process that saves the same run may remove or make a file in between.
    """
    for newer, older in reversed(list(pairwise(names[1:]))):
        with suppress(FileNotFoundError):
            os.replace(newer, older)
    if len(names) < 2:
        return
    with suppress(FileNotFoundError, FileExistsError):
        names[1].unlink(missing_ok=True)
        try:
            os.link(names[0], names[1])
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError:  # a file system without links
            os.replace(names[0], names[1])


def _sync_folder(folder: Path) -> None:
    """Write the new names to the disk too, where the system lets a folder be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__

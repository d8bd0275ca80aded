"""save and load: a training run in one file, whole or not at all.

The file is an `.npz` without pickle: the arrays, and one JSON text that has everything else, with
names in place of arrays. NumPy alone can open it.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias

import numpy as np

from .engine.errors import ArgumentError, FileError
from .engine.op import Array, array_of
from .optim import Optimizer

__all__ = ["load", "save"]


class HasState(Protocol):
    """A model, an optimizer, a schedule, and whatever else has a state."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state: Any, /) -> object: ...


Part: TypeAlias = HasState | np.random.Generator
PlainData: TypeAlias = Any  # numbers, text, arrays, and lists and dicts of them

FILE_VERSION = 2
JSON_NAME = "minigrad.json"  # the name of the JSON text among the arrays
ARRAY_KEY = "minigrad.array"  # stands in that text where an array is


def save(
    path: str | os.PathLike[str],
    *,
    step: PlainData = None,
    note: PlainData = None,
    **parts: Part | None,
) -> Path:
    """Write a training run into one file; a kill at any moment leaves the one before it whole.

    A run that is loaded ends in the same bits as one that was never stopped. What an optimizer
    keeps goes by the names of its parameters, where their model is saved and loaded with it.

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
    kept = {name: part for name, part in parts.items() if part is not None}
    paths = _paths(kept)
    states = {name: _state_of(part, paths, "save") for name, part in kept.items()}
    arrays: dict[str, Array] = {}
    about = {
        "minigrad": FILE_VERSION,
        "step": _without_arrays(step, "step", arrays),
        "note": _without_arrays(note, "note", arrays),
        "parts": _without_arrays(states, "", arrays),
    }
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    path = Path(path)
    with suppress(OSError, ValueError):  # then `writing` says why
        path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path, "save", sync=True) as file:
        np.savez(file, **{JSON_NAME: text}, **arrays)  # type: ignore[arg-type]
    return path


def load(path: str | os.PathLike[str], **parts: Part | None) -> dict[str, Any]:
    """Put a saved run back into the parts given by name; all of it fits, or nothing is changed.

    Returns: "step" and "note" as they were saved, and the states of parts that were not asked for.
    Raises: FileError if the file cannot be read; ArgumentError that lists all that does not fit.
    """
    about = _read(Path(path))
    states = about["parts"]
    wanted = {name: part for name, part in parts.items() if part is not None}
    paths = _paths(wanted)
    before = {name: _state_of(part, paths, "load") for name, part in wanted.items()}
    wrong = [f"{name}: not in the file" for name in wanted if name not in states]
    for name in wanted.keys() & states:
        try:
            _restore(wanted[name], states[name], paths)
        except Exception as error:  # whatever a part of a user's own raises
            wrong.append(f"{name}: {error or type(error).__name__}")
    if wrong:
        for name, part in wanted.items():
            with suppress(Exception):  # listed above
                _restore(part, before[name], paths)
        raise ArgumentError("\n  ".join([f"load: nothing was loaded from {path}", *sorted(wrong)]))
    rest = {name: state for name, state in states.items() if name not in wanted}
    return {"step": about["step"], "note": about["note"]} | rest


# ---------------------------------------------------------------- states


def _paths(parts: Mapping[str, Part]) -> dict[int, str]:
    """By id, the path of each parameter of the models among the parts."""
    return {
        id(p): f"{name}.{path}"
        for name, part in parts.items()
        for path, p in getattr(part, "named_parameters", dict)()
    }


def _state_of(part: Part, paths: Mapping[int, str], call: str) -> dict[str, Any]:
    """The arrays and plain values of a part, nested."""
    if isinstance(part, np.random.Generator):
        return dict(deepcopy(part.bit_generator.state))
    if not hasattr(part, "state_dict"):
        raise ArgumentError(
            f"{call}: a {type(part).__name__} has no state_dict; give the model itself, and plain "
            "values as step= or note="
        )
    state = {"state": part.state_dict()}
    if isinstance(part, Optimizer):
        state["paths"] = [paths.get(id(p)) for p in part.parameters]
    if generators := _generators(part):
        state["generators"] = {k: _state_of(x, paths, call) for k, x in generators.items()}
    return state


def _restore(part: Part, state: dict[str, Any], paths: Mapping[int, str]) -> None:
    if isinstance(part, np.random.Generator):
        part.bit_generator.state = state
        return
    generators = _generators(part)
    saved = state.get("generators", {})
    if set(generators) != set(saved):
        raise ArgumentError(f"generators: {sorted(generators)} here, {sorted(saved)} in the file")
    own = state["state"]
    if isinstance(part, Optimizer):
        own = _in_order(own, state.get("paths", []), [paths.get(id(p)) for p in part.parameters])
    part.load_state_dict(own)
    for path, generator in generators.items():
        _restore(generator, saved[path], paths)


def _in_order(
    state: dict[str, Any], saved: list[str | None], here: list[str | None]
) -> dict[str, Any]:
    """An optimizer's state with what was kept for each parameter in this order of their paths.

    Where the paths of some are not known, it is left in the order of the positions.
    """
    if None in saved or None in here or not saved:
        return state
    if set(saved) != set(here):
        names = sorted({*saved} ^ {*here})  # type: ignore[type-var]
        raise ArgumentError(f"parameters: only here, or only in the file: {names}")
    records = dict(zip(saved, state["parameters"], strict=True))
    return state | {"parameters": [records[path] for path in here]}


def _generators(part: Part) -> dict[str, np.random.Generator]:
    """The generators that a model's layers draw from, by path; of a shared one, its first path."""
    by_id: dict[int, tuple[str, np.random.Generator]] = {}
    for path, module in getattr(part, "named_modules", dict)():
        for name, value in vars(module).items():
            if isinstance(value, np.random.Generator):
                by_id.setdefault(id(value), (f"{path}.{name}".lstrip("."), value))
    return dict(by_id.values())


def _without_arrays(value: PlainData, path: str, arrays: dict[str, Array]) -> PlainData:
    """Nested plain values for JSON; each array goes into `arrays`, and its name stands for it."""
    name = path.removeprefix("/")
    if isinstance(value, Mapping):
        if len({*map(str, value)}) < len(value) or ARRAY_KEY in value:
            raise ArgumentError(
                f"save: keys of {name} are kept as text, each once and none {ARRAY_KEY!r}, got "
                f"{[*value]}"
            )
        return {str(k): _without_arrays(v, f"{path}/{k}", arrays) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_arrays(v, f"{path}/{i}", arrays) for i, v in enumerate(value)]
    value = array_of(value)  # of a Tensor in someone's state
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        if name in arrays:  # a key may have a slash in it
            name += f"~{len(arrays)}"
        arrays[name] = np.asarray(value, order="C")
        return {ARRAY_KEY: name}
    if isinstance(value, np.generic):
        value = value.item()
    if value is not None and not isinstance(value, str | int | float):
        raise ArgumentError(
            f"save: {name}: a file keeps numbers, text, arrays of them, lists and dicts, not "
            f"{value!r:.80}"
        )
    return value


def _read(path: Path) -> dict[str, Any]:
    """The content of one file, whose checksums the zip format tests. Raises: FileError."""

    def with_array(entry: dict[str, Any]) -> Any:
        return arrays[entry[ARRAY_KEY]] if ARRAY_KEY in entry else entry

    if not path.is_file():  # a pipe would be waited for
        raise FileError(f"load: no such file: {path}")
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        about: dict[str, Any] = json.loads(arrays.pop(JSON_NAME).tobytes(), object_hook=with_array)
        version, *_ = (about[name] for name in ("minigrad", "step", "note", "parts"))
    except Exception as error:  # of zip, zlib, NumPy or JSON: each means a damaged file
        why = repr(error)
        if "pickle" in why:  # in place of NumPy's advice to unpickle
            why = "Python objects are never unpickled, as that could run any program"
        raise FileError(f"load: {path} is damaged, or no file of minigrad: {why}") from error
    if version != FILE_VERSION:
        raise FileError(f"load: {path} is of version {version}; this minigrad reads {FILE_VERSION}")
    return about


# ---------------------------------------------------------------- the one writer of files


def target_of(path: str | os.PathLike[str], call: str) -> Path:
    """Where a write to `path` goes: where a symbolic link points, else the path itself.

    Raises: ArgumentError, naming the call, for a folder, a device or a pipe, where there is no
        folder to write into, and for a name that no file can have.
    """
    try:
        target = Path(os.path.realpath(path))
        is_other = target.exists() and not target.is_file()
    except (OSError, ValueError) as error:  # too long, a NUL, no permission
        raise ArgumentError(f"{call}: no file can be {str(path)!r:.80}: {error!r:.80}") from None
    if is_other:
        raise ArgumentError(f"{call}: {str(path)!r} is a folder, device or pipe; name a file")
    if not target.parent.is_dir():
        raise ArgumentError(f"{call}: there is no folder {str(Path(path).parent)!r}")
    return target


@contextmanager
def writing(path: str | os.PathLike[str], call: str, *, sync: bool = False) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of `path`, with its mode, once all is written.

    Each writer has an unfinished file of its own, so that two of one path never share one.

    Args: sync: write it to the disk before it takes the place.
    Raises: as `target_of`; OSError, as of a full disk.
    """
    target = target_of(path, call)
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    unfinished = target.with_name(f".{target.name[:40]}.{secrets.token_hex(8)}.unfinished")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(unfinished, flags, 0o666 if mode is None else mode), "wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if mode is not None:
            unfinished.chmod(mode)
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


def write(path: str | os.PathLike[str], content: str | bytes, call: str = "draw") -> Path:
    """Write a file so that it is there whole or not at all. Returns: the path.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write(f"{folder}/notes.md", "Q = X W_Q").read_text()
    'Q = X W_Q'
    """
    with writing(path, call) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return Path(path)

"""The folder of a checkpoint: its JSON, and its tensors, mapped into memory and not yet read."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigrad.errors import FileError, MissingDependencyError
from minigrad.files import make_folder, move_into_place, open_regular, write

__all__ = ["Folder", "Stored", "cast_back", "imported", "open_folder", "upcast", "write_folder"]

KEPT = (
    "config.json generation_config.json model.safetensors.index.json modules.json "
    "config_sentence_transformers.json "
    "sentence_bert_config.json special_tokens_map.json tokenizer.json tokenizer_config.json "
    "vocab.txt vocab.json merges.txt 1_Pooling/config.json"
).split()
"""Small files that are read with a model, and written with it again."""
MOST_BYTES_OF_TEXT = 10**8  # bytes of such a file; the largest tokenizers have a third of it
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4"}
DTYPES |= {"U8": "|u1", "I8": "|i1", "BOOL": "|b1"}
DTYPE_NAMES = {kind: np.dtype(dtype).name for kind, dtype in DTYPES.items()} | {"BF16": "bfloat16"}


class Stored(NamedTuple):
    """One tensor of a file: the file's name, the format's dtype, and the entries as stored.

    The array of a bfloat16 tensor, a dtype that NumPy lacks, holds the bits. It is None once a
    parameter has it.
    """

    file: str
    kind: str
    array: Any


@dataclass
class Folder:
    """What a checkpoint's folder holds: small files whole, and tensors by name."""

    path: Path
    files: dict[str, bytes] = field(default_factory=dict)
    tensors: dict[str, Stored] = field(default_factory=dict)

    def json(self, name: str) -> Any:
        """A small file's JSON, which must be an object (or, in modules.json, a list)."""
        try:
            found = json.loads(self.files[name])
        except (ValueError, RecursionError) as error:
            raise FileError(f"{self.path / name} is not JSON: {error}") from error
        if not isinstance(found, dict | list):
            raise FileError(f"{self.path / name} must hold a JSON object, got {found!r:.40}")
        return found

    def __deepcopy__(self, memo: object) -> Folder:
        """Copies of a model share it: its tensors may be larger than memory."""
        return self

    @property
    def n_entries(self) -> int:
        """How many entries all tensors have."""
        return sum(stored.array.size for stored in self.tensors.values())


def open_folder(path: str | os.PathLike[str]) -> Folder:
    """The folder's small files, and its tensors, mapped: pages are read when they are used.

    Raises: FileError for what is missing, damaged, or of another format.
    """
    folder = Folder(Path(path))
    if not folder.path.is_dir():
        raise FileError(f"load_pretrained: no such folder: {folder.path}")
    for name in KEPT:
        if (folder.path / name).is_file():
            if (folder.path / name).stat().st_size > MOST_BYTES_OF_TEXT:
                raise FileError(
                    f"load_pretrained: {folder.path / name} has over {MOST_BYTES_OF_TEXT:,} bytes"
                )
            folder.files[name] = (folder.path / name).read_bytes()
    if "config.json" not in folder.files:
        raise FileError(f"load_pretrained: {folder.path} has no config.json")
    for file, expected in _shards(folder).items():
        tensors = _mapped(folder.path / file)
        if expected is not None and (differ := expected ^ tensors.keys()):
            raise FileError(
                f"{folder.path / file}: the index and the file disagree about {_some(differ)}"
            )
        folder.tensors |= tensors
    return folder


def _shards(folder: Folder) -> dict[str, set[str] | None]:
    """The files that hold tensors, and what the index says is in each; None without an index."""
    if "model.safetensors.index.json" in folder.files:
        index = folder.json("model.safetensors.index.json")
        found: dict[str, set[str] | None] = {}
        weights = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(weights, dict) or not weights:
            raise FileError(f"{folder.path}: model.safetensors.index.json has no weight_map")
        for name, file in weights.items():
            if not isinstance(file, str) or Path(file).name != file:
                raise FileError(f"{folder.path}: the index names a file outside: {file!r}")
            found.setdefault(file, set()).add(name)  # type: ignore[union-attr]
        return found
    names = sorted(file.name for file in folder.path.glob("*.safetensors"))
    if "model.safetensors" in names or len(names) == 1:
        return {"model.safetensors" if "model.safetensors" in names else names[0]: None}
    pickled = [file.name for file in folder.path.glob("*.bin")]
    why = f" ({pickled[0]} is pickled, and never read)" if pickled else ""
    what = "several .safetensors and no index" if names else f"no .safetensors file{why}"
    raise FileError(f"load_pretrained: {folder.path} has {what}")


def _mapped(path: Path) -> dict[str, Stored]:
    """The tensors of one file; the safetensors library checks its header first."""
    safetensors = imported("safetensors")
    try:
        open_regular(path).close()  # the library would wait for a pipe
        with safetensors.safe_open(path, "np"):
            pass
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
    except FileNotFoundError as error:
        raise FileError(f"load_pretrained: no such file: {path}") from error
    except FileError as error:
        raise FileError(f"load_pretrained: {error}") from None
    except (safetensors.SafetensorError, OSError, ValueError, RecursionError) as error:
        raise FileError(f"load_pretrained: {path} is damaged: {error}") from error
    header.pop("__metadata__", None)
    with open(path, "rb") as file:  # entries that are written are this process's own
        whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    found = {}
    for name, entry in header.items():
        if entry["dtype"] not in DTYPES:
            raise FileError(f"load_pretrained: {path}: {name} is {entry['dtype']}: not supported")
        begin, end = (8 + length + at for at in entry["data_offsets"])
        # Each tensor is an array of its own, so that np.shares_memory tells them apart.
        array: NDArray[Any] = np.frombuffer(whole, np.uint8, end - begin, begin)
        array = array.view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
        found[name] = Stored(path.name, entry["dtype"], array)
    return found


def write_folder(
    path: str | os.PathLike[str], files: dict[str, bytes], tensors: dict[str, Stored]
) -> None:
    """Write tensors and small files; a file that is there stays whole until its new one is."""
    safetensors, folder = imported("safetensors"), Path(path)
    make_folder(folder, "save")
    shards: dict[str, dict[str, Any]] = {}
    kept = {name: np.array(stored.array, order="C", copy=None) for name, stored in tensors.items()}
    for name, stored in tensors.items():
        array = kept[name]
        shards.setdefault(stored.file, {})[name] = safetensors.TensorSpec(
            dtype=DTYPE_NAMES[stored.kind],
            shape=array.shape,
            data_ptr=array.ctypes.data,
            data_len=array.nbytes,
        )
    for file, specs in shards.items():
        with TemporaryDirectory(dir=folder, prefix=".unfinished-") as beside:
            safetensors.serialize_file(specs, Path(beside, file), metadata={"format": "pt"})
            move_into_place(Path(beside, file), folder / file, "save")
    for name, text in files.items():
        make_folder((folder / name).parent, "save")
        write(folder / name, text, "save")


def upcast(stored: Stored, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The entries in this dtype: the mapped array itself where it is of that dtype already."""
    array = stored.array
    if stored.kind == "BF16":
        bits = array.astype(np.uint32)
        bits <<= 16
        array = bits.view(np.float32)
    aligned = array if array.flags.aligned else array.copy()
    return np.asarray(aligned.astype(dtype, copy=False))


def cast_back(array: NDArray[Any], kind: str) -> NDArray[Any]:
    """An array in a dtype of the format, rounded to the nearest."""
    if kind != "BF16":
        return array.astype(DTYPES[kind], copy=False)
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    even = bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)  # a tie goes to the even one
    return (np.where(np.isnan(array), bits, even) >> 16).astype(np.uint16)


def imported(name: str) -> ModuleType:
    """An optional library. Raises: MissingDependencyError that says what to install."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise MissingDependencyError(
            f'load_pretrained needs {name}: pip install "minigrad[models]"'
        ) from error


def _some(names: Collection[str]) -> str:
    return ", ".join(sorted(names)[:5])

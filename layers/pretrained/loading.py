"""From a checkpoint's folder to layers, and back."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, explained

from ..module import Module
from ..parameters import own_array
from .config import FALLBACK, Config
from .encoders import TextEncoder
from .families import FAMILIES
from .family import Family, TensorSource, numbered
from .files import Folder, Stored, open_folder, upcast
from .models import Pretrained, PretrainedLanguageModel
from .settings import read
from .text_to_text import TextToText

__all__ = ["listed", "load_pretrained", "load_state", "read_settings", "unfilled"]

MOST_LINES = 10  # of a message
FLOATS = ("F64", "F32", "F16", "BF16")
MODELS = {cls.__name__: cls for cls in (PretrainedLanguageModel, TextEncoder, TextToText)}


@explained
def load_pretrained(folder: str | os.PathLike[str], dtype: DTypeLike = np.float32) -> Pretrained:
    """A model of Hugging Face's format, in this project's layers: config.json and safetensors.

    Families: GPT-2, Llama, Mistral, Qwen 2 and 3, Gemma 2, BERT, RoBERTa, XLM-RoBERTa, DistilBERT,
    T5; of any other, see load_state. Tensors are mapped into memory; those of `dtype` already share
    the file's pages, others are upcast or rounded.

    Returns: a PretrainedLanguageModel, or a TextEncoder where it has no output layer; of BERT a
             TextEncoder; of T5 a TextToText, or a TextEncoder of its encoder alone; in eval mode,
             with `tokenizer`, `unused` and `save(folder)`.
    Raises:  FileError for a file that is missing or damaged; ArgumentError that lists every tensor
             that is missing, unexpected or of another shape, or names a key of the config that is
             not understood; MissingDependencyError that says what to install.
    """
    opened, dtype = open_folder(folder), np.dtype(dtype)
    if dtype.kind != "f":
        raise ArgumentError(f"load_pretrained: dtype must be floating, got {dtype}")
    model, wrong = unfilled(opened, dtype)
    if wrong:
        raise ArgumentError(listed(f"load_pretrained: {opened.path}", wrong))
    _fill(model, dtype)
    return model.eval()


def unfilled(
    opened: Folder, dtype: np.dtype[Any], compare: bool = True
) -> tuple[Pretrained, list[str]]:
    """A folder's model, whose parameters have no memory yet; and which tensors do not fit it.

    compare: whether a tied weight's two copies are read, and compared.
    """
    family, settings = read_settings(opened)
    _check_blocks(opened, family, settings)
    try:
        model: Pretrained = MODELS[family.model](**settings, rng=_Weightless(), dtype=dtype)
    except ArgumentError as error:
        raise ArgumentError(f"load_pretrained: {opened.path}/config.json: {error}") from error
    model.folder = opened
    return model, _find_sources(model, family, compare)


def read_settings(opened: Folder) -> tuple[Family, dict[str, Any]]:
    """A folder's family, and the keywords of its model: what is known before any tensor is read."""
    entries = opened.json("config.json")
    kind = entries.get("model_type") if isinstance(entries, dict) else None
    if not isinstance(kind, str) or kind not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ArgumentError(
            f"load_pretrained: {opened.path}: model_type must be one of {known}, got {kind!r}; "
            f"of another, {FALLBACK}"
        )
    family = FAMILIES[kind]
    config = Config(entries, opened, [*family.kinds])
    family, settings = read(family, config)
    config.check_all_read()
    if _least(settings) > opened.n_entries:
        raise ArgumentError(
            f"load_pretrained: {opened.path}: config.json describes at least "
            f"{_least(settings):,} entries, the files hold {opened.n_entries:,}"
        )
    return family, settings


def listed(title: str, wrong: Sequence[str]) -> str:
    """A message with a line for each thing that is wrong, the first ten of many.

    >>> listed("load_pretrained: here", ["W: missing", "b: missing"]).splitlines()[1:]
    ['  W: missing', '  b: missing']
    """
    more = [f"and {len(wrong) - MOST_LINES:,} more"] if len(wrong) > MOST_LINES else []
    return "\n  ".join([title, *wrong[:MOST_LINES], *more])


def _check_blocks(opened: Folder, family: Family, settings: Mapping[str, Any]) -> None:
    """Raise ArgumentError for blocks of which no file holds a tensor, before any block is made."""
    stems: dict[str, int] = {}
    for row in family.rows():
        is_decoder = row.ours.startswith("decoder.") and family.model != "PretrainedLanguageModel"
        count = settings.get("n_decoder_layers" if is_decoder else "n_layers", 0)
        for stem, star, _ in (name.partition("*") for name in row.theirs):
            stems |= {_prefix(opened, family) + stem: count} if star else {}
    for stem, count in stems.items():
        pattern = re.compile(rf"{re.escape(stem)}(\d+)\.")
        there = {int(m[1]) for name in opened.tensors if (m := pattern.match(name))}
        if absent := [k for k in range(count) if k not in there]:
            raise ArgumentError(
                f"load_pretrained: {opened.path}: config.json says {count:,} blocks; of "
                f"{len(absent):,} of them no tensor is there, the first {stem}{absent[0]}"
            )


def _prefix(opened: Folder, family: Family) -> str:
    """What stands before the names in the files, if it does."""
    return family.prefix if any(n.startswith(family.prefix) for n in opened.tensors) else ""


def _least(s: Mapping[str, Any]) -> int:
    """Fewer entries than a model of these settings has."""
    per_block = s["d_model"] * (2 * s["d_ff"] + s["n_heads"] * s.get("d_k", 1))
    rows = s["n_tokens"] + s.get("max_len", 0)
    return int(rows * s["d_model"] + s["n_layers"] * per_block)


class _Weightless(np.random.Generator):
    """Draws zeros that take no memory: the entries come from the file."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def normal(self, loc: Any = 0, scale: Any = 1, size: Any = None) -> Any:
        return np.broadcast_to(np.zeros(()), size).view(_Zeros)


class _Zeros(np.ndarray[Any, Any]):
    """One zero, broadcast; it stays one in another dtype."""

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> NDArray[Any]:
        return np.broadcast_to(np.zeros((), dtype), self.shape)


def _find_sources(model: Pretrained, family: Family, compare: bool) -> list[str]:
    """Note where each parameter lies in the file; returns what is missing, misshapen, or extra."""
    stored = model.folder.tensors
    prefix = _prefix(model.folder, family)
    model.sources = _usual_sources(model, family, prefix)
    used = {source.name for source in model.sources.values()}
    for name, path in family.tied.items():  # a file may have a tied weight by its other name only
        usual = model.sources.get(path, TensorSource(name))
        if name in stored.keys() - used and usual.name not in stored:
            model.sources[path] = TensorSource(name)
    wrong = _misfits(
        dict(model.named_parameters()),
        model.sources,
        {name: tensor.array for name, tensor in stored.items()},
    )
    wrong += [
        f"{source.name} must be of floats, is {stored[source.name].kind}"
        for source in model.sources.values()
        if source.name in stored and stored[source.name].kind not in FLOATS
    ]
    for name in model.unused:
        tied = model.sources.get(family.tied.get(name, ""))
        if tied and tied.name in stored and _alike(stored[name], stored[tied.name], compare):
            model.copies = {**model.copies, name: family.tied[name]}
        elif not re.fullmatch(family.ignored, name.removeprefix(prefix)):
            wrong.append(f"{name}: unexpected")
    return wrong


def _usual_sources(model: Pretrained, family: Family, prefix: str) -> dict[str, TensorSource]:
    """For each parameter the first of its row's names that the file has, else the last of them."""
    rows = {row.ours: row for row in family.rows()}
    sources = {}
    for path, _ in model.named_parameters():
        row = rows[re.sub(r"\.\d+\.", ".*.", path)]
        names = [numbered(name, path) for name in row.theirs]
        names = [name[1:] if name[0] == "/" else prefix + name for name in names]
        old = [
            name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")
            for name in names
        ]
        found = next((name for name in [*old, *names] if name in model.folder.tensors), names[-1])
        sources[path] = TensorSource(found, row.how)
    return sources


def _fill(model: Pretrained, dtype: np.dtype[Any]) -> None:
    """Let the parameters be the file's tensors."""
    stored = model.folder.tensors
    modules = dict(model.named_modules())
    for path, source in model.sources.items():
        owner, _, attribute = path.rpartition(".")
        parameter = mg.Tensor(source.take(upcast(stored[source.name], dtype)))
        parameter.requires_grad = True
        setattr(modules[owner], attribute, parameter)
    for source in model.sources.values():  # from here on the entries are the parameters' own
        stored[source.name] = stored[source.name]._replace(array=None)


def _misfits(
    leaves: Mapping[str, mg.Tensor],
    sources: Mapping[str, TensorSource],
    arrays: Mapping[str, NDArray[Any]],
) -> list[str]:
    """What is missing, or of another shape, for each parameter."""
    wrong = []
    for path, parameter in leaves.items():
        source = sources[path]
        name, shape = source.name, source.shape(parameter.shape)
        if name not in arrays:
            wrong.append(f"{path}: {name} is missing")
        elif arrays[name].shape != shape:
            wrong.append(f"{path}: {name} must be {shape}, got {arrays[name].shape}")
    return wrong


def _alike(tensor: Stored, tied: Stored, compare: bool) -> bool:
    if tensor.kind != tied.kind or tensor.array.shape != tied.array.shape:
        return False
    return not compare or tensor.array.tobytes() == tied.array.tobytes()


@explained
def load_state(
    model: Module,
    arrays: Mapping[str, ArrayLike],
    rename: Mapping[str, str] | Callable[[str], str] | None = None,
) -> None:
    """Write arrays of other names into a model's parameters and buffers; all fit, or none is.

    Args:
        arrays: by name, as `np.load("gpt.npz")` gives them; cast to each parameter's dtype.
        rename: for a parameter's path the array's name; behind a space T, which transposes, or
            0/3, the first of three parts of the last axis, or T 0/3, that of the transpose. In a
            mapping `*` is a block's number. A path that it does not have is the name.
    Raises: ArgumentError that lists what is missing, unexpected, or of another shape or kind.

    >>> from layers import Linear
    >>> layer = Linear(3, 2)
    >>> load_state(layer, {"w": np.ones((2, 3)), "b": np.zeros(2)}, {"W": "w T"})
    >>> layer.W.shape, layer.W.numpy().sum().item()
    ((3, 2), 6.0)

    A checkpoint of a format of its own: build the model that it describes, take its arrays
    (`safetensors.numpy.load_file("model.safetensors")`), call this without `rename`, and let the
    message list both sides' names. Here Q, K and V lie in one tensor, turned as PyTorch's are:

    >>> from layers import LanguageModel, RMSNorm
    >>> model = LanguageModel(7, 4, 2, n_layers=2, d_ff=5, use_bias=False, norm=RMSNorm)
    >>> shapes = {"qkv": (12, 4), "out": (4, 4), "up": (5, 4), "down": (4, 5), "n1": 4, "n2": 4}
    >>> arrays = {f"h.{k}.{name}": np.ones(n) for k in range(2) for name, n in shapes.items()}
    >>> arrays |= {"wte": np.ones((7, 4)), "norm": np.ones(4)}
    >>> block = {
    ...     "norm_1.weight": "n1",
    ...     "attention.W_Q": "qkv T 0/3",
    ...     "attention.W_K": "qkv T 1/3",
    ...     "attention.W_V": "qkv T 2/3",
    ...     "attention.W_O": "out T",
    ...     "norm_2.weight": "n2",
    ...     "feed_forward.W_1": "up T",
    ...     "feed_forward.W_2": "down T",
    ... }
    >>> rename = {f"decoder.blocks.*.{path}": f"h.*.{name}" for path, name in block.items()}
    >>> load_state(model, arrays, rename | {"embedding.W": "wte", "decoder.norm.weight": "norm"})
    >>> all((p.numpy() == 1).all() for p in model.parameters())
    True
    """
    named = {name: own_array(arrays[name]) for name in arrays}
    leaves = (*model.named_parameters(), *model.named_buffers())
    write_named("load_state", model, named, {p: _renamed(p, rename or {}) for p, _ in leaves})


def write_named(
    call: str,
    model: Module,
    arrays: Mapping[str, NDArray[Any]],
    sources: Mapping[str, TensorSource],
    wrong: Sequence[str] = (),
) -> None:
    """Write to each parameter and buffer what its source takes; all fits, or nothing is written."""
    leaves = dict((*model.named_parameters(), *model.named_buffers()))
    used = {source.name for source in sources.values()}
    wrong = [*wrong, *_misfits(leaves, sources, arrays)]
    wrong += [f"{name}: unexpected" for name in arrays if name not in used]
    wrong += [
        f"{name} must be of real numbers, is {arrays[name].dtype}"
        for name in arrays
        if name in used and arrays[name].dtype.kind not in "fiu"
    ]
    if wrong:
        kind = type(model).__name__
        raise ArgumentError(listed(f"{call}: nothing was written, for {kind}", wrong))
    for path, leaf in leaves.items():
        source = sources[path]
        leaf.assign_(source.take(arrays[source.name]).astype(leaf.dtype))


def _renamed(path: str, rename: Mapping[str, str] | Callable[[str], str]) -> TensorSource:
    """The array's name for a path, and what is done to it."""
    if callable(rename):
        name, *how = rename(path).split()
    else:
        pattern = path if path in rename else re.sub(r"\.\d+\.", ".*.", path)
        name, *how = rename.get(pattern, path).split()
        name = numbered(name, path)
    steps = "".join(how)
    known = re.fullmatch(r"T?((\d+)/(\d+))?", steps)
    if known is None or (known[1] and int(known[2]) >= int(known[3])):
        raise ArgumentError(
            f"load_state: {path}: behind the name {name} may stand T, a part such as 0/3, or both, "
            f"got {' '.join(how)!r}"
        )
    return TensorSource(name, steps)

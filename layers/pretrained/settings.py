"""Reads a config.json by the family's table into the keywords of a model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from minigrad.errors import MinigradError

from ..module import Module
from ..norm import LayerNorm, RMSNorm
from ..rotary import Rotary
from .config import Config
from .encoders import POOLING
from .family import Family

__all__ = ["read"]

Reader = Callable[..., Any]
"""Reads a key of a Config, with a default; what it returns is a keyword's value."""
ROPE_NUMBERS = (
    "factor original_max_position_embeddings low_freq_factor high_freq_factor beta_fast beta_slow "
    "attention_factor mscale mscale_all_dim"
).split()
DECODER_KEYWORDS = "tied scaled_outputs start n_decoder_layers output_softcap".split()
"""Keywords of models with a decoder, which an encoder of the same family does not take."""


def read(family: Family, config: Config) -> tuple[Family, dict[str, Any]]:
    """The keywords of the model that this config describes; and its family, whose model is a
    TextEncoder where the checkpoint has no output layer.

    Raises: ArgumentError naming a key that cannot be followed.
    """
    settings = config.settings
    for line in filter(str.strip, family.settings.splitlines()):
        ours, theirs, *rest = line.split()
        how, *default = rest or ["size"]
        reader = READERS.get(how) or getattr(Config, how)
        settings[ours] = reader(config, theirs, *(_default(text, settings) for text in default))
    settings |= family.options
    config.only(**family.only)
    for key in family.neutral.split():
        config.get(key, None)
    kind, parts = _parts(family, config)
    if family.model == "TextToText" and "decoder" in parts:
        config.only(is_encoder_decoder=True)
        return family, settings
    if family.model == "PretrainedLanguageModel" and (settings["tied"] or "head" in parts):
        return family, settings
    settings = {key: x for key, x in settings.items() if key not in DECODER_KEYWORDS}
    if family.model == "TextEncoder":
        of_sentence = kind.endswith("ForSequenceClassification")
        return family, settings | {"heads": parts, "of_sentence": of_sentence}
    names = family.names
    if family.model == "PretrainedLanguageModel":
        names = names.replace("decoder.", "encoder.")
        settings["is_causal"] = True
    return family._replace(model="TextEncoder", names=names), {"norm_order": "pre"} | settings


def _parts(family: Family, config: Config) -> tuple[str, set[str]]:
    """The class that wrote a checkpoint, and the parts that it has.

    A checkpoint of sentence vectors often names the class that it was trained from, whose head it
    no longer has: then no optional part is required.
    """
    optional = set(family.optional.split())
    stored = {part for part in ("decoder", *optional) if _has(family, config, part)}
    kinds = family.kinds
    kind = config.kind or next(k for k in kinds if "decoder" in stored or kinds[k] != "decoder")
    required = set(kinds[kind].split())
    if POOLING in config.folder.files:
        required -= optional
    return kind, required | (stored & optional)


def _has(family: Family, config: Config, part: str) -> bool:
    rows = [row for row in family.rows() if row.ours.startswith(f"{part}.")]
    names = {name.replace("*", "0").lstrip("/") for row in rows for name in row.theirs}
    stored = config.folder.tensors
    return any(name in stored or family.prefix + name in stored for name in names)


def _default(text: str, settings: dict[str, Any]) -> Any:
    """JSON; or a setting, a multiple of one, a setting divided by another; or text.

    >>> [_default(text, {"d": 6, "h": 2}) for text in ("null", "4*d", "d/h", "d", "gelu")]
    [None, 24, 3, 6, 'gelu']
    """
    try:
        return json.loads(text)
    except ValueError:
        pass
    times, name, by = re.fullmatch(r"(?:(\d+)\*)?(\w+)(?:/(\w+))?", text).groups()  # type: ignore[union-attr]
    if name not in settings:
        return name
    return int(times or 1) * settings[name] // (settings[by] if by else 1)


# ---------------------------------------------------------------- how a key is read


def _norm(kind: Callable[..., Module]) -> Reader:
    """A norm by its ε; where the family has no key for it, the table's line has a dash."""
    return lambda config, key, default: partial(
        kind, eps=default if key == "-" else config.number(key, default)
    )


def _rotary(config: Config, key: str, _: None) -> Rotary:
    """Base and scaling of the angles, as newer files (rope_parameters) and older ones have them."""
    rope, d_k = config.nested(key, "rope_scaling"), config.settings["d_k"]
    base = rope.number("rope_theta", config.number("rope_theta", 10000.0))
    config.only(rope_interleaved=False, use_mrope=False)
    kind = rope.get("rope_type", rope.get("type", "default"))
    scaling = {name: rope.number(name, None) for name in ROPE_NUMBERS}
    scaling |= {name: rope.numbers(name, d_k // 2) for name in ("short_factor", "long_factor")}
    scaling |= {"rope_type": kind, "truncate": rope.flag("truncate", True)}
    trained = "original_max_position_embeddings"  # beside the scaling, it counts more than in it
    scaling[trained] = config.number(trained, scaling[trained])
    rope.only(partial_rotary_factor=1.0, type=kind)
    rope.check_all_read()
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    if kind == "llama3" and not (low or 0) < (high or 1):
        raise rope.error("low_freq_factor must be less than high_freq_factor")
    default = [] if kind in ("dynamic", "longrope", "yarn") else [2048]  # those need the number
    scaling["max_position_embeddings"] = config.number("max_position_embeddings", *default)
    try:
        return Rotary(d_k, base, scaling=None if kind == "default" else scaling)
    except MinigradError as error:
        raise rope.error(str(error)) from error


def _late_windows(config: Config, key: str, default: int) -> list[int | None]:
    """Blocks from max_window_layers on have the window, if use_sliding_window."""
    first, window = config.size("max_window_layers", 28, 0), config.number_or_null(key, default)
    window = window if config.flag("use_sliding_window", False) else None
    return _windows(config, window, lambda k: k >= first)


def _even_windows(config: Config, key: str, default: int) -> list[int | None]:
    """The first block has the window, the second none, and so on."""
    return _windows(config, config.number_or_null(key, default), lambda k: k % 2 == 0)


def _windows(config: Config, window: int | None, usual: Callable[[int], bool]) -> list[int | None]:
    """The window of each block: layer_types says which have one, else the family's usual ones."""
    known = {"sliding_attention": window, "full_attention": None}
    blocks = range(config.settings["n_layers"])
    names = ["sliding_attention" if usual(k) else "full_attention" for k in blocks]
    kinds = config.get("layer_types", names)
    if kinds.__class__ is not list or len(kinds) != len(names):
        raise config.error(f"layer_types must name the kind of each block, got {kinds!r:.60}")
    if not known.keys() >= set(map(str, kinds)):
        raise config.error(f"layer_types must name only {' and '.join(known)}, got {kinds!r:.60}")
    return [known[kind] for kind in kinds]


def _is_gated(config: Config, key: str, default: str) -> bool:
    gated = str(config.get(key, default)).startswith("gated-")
    config.only(is_gated_act=gated)
    return gated


def _gate(config: Config, key: str, default: str) -> str:
    """gated-gelu means gelu_new, and gelu itself."""
    setting = str(config.get(key, default))
    name = "gelu_new" if setting == "gated-gelu" else setting.removeprefix("gated-")
    config.only(dense_act_fn=name)
    return config.activation("dense_act_fn", name)


def _scaled_if_tied(config: Config, key: str, default: bool) -> bool:
    """Older files have no such key, and scale if tied; null is false for `transformers`."""
    return config.flag(key, config.flag("tie_word_embeddings", default) and not config.is_null(key))


def _tied_unless_stored(config: Config, key: str, default: bool) -> bool:
    """Newer files call every output layer tied, even one that they have."""
    stored = any(name.endswith("lm_head.weight") for name in config.folder.tensors)
    return config.flag(key, default) and (config.settings["scaled_outputs"] or not stored)


def _counted_from(config: Config, key: str, default: int) -> int:
    """The padding token: positions are counted from the number after it, so there are fewer."""
    pad = config.size(key, default, 0)
    config.settings["max_len"] -= pad + 1
    if config.settings["max_len"] < 1:
        raise config.error(f"{key} = {pad} leaves no position, for they are counted from the next")
    return pad


READERS: dict[str, Reader] = {
    "LayerNorm": _norm(LayerNorm),
    "RMSNorm": _norm(RMSNorm),
    "RMSNorm_of_1_plus_w": _norm(partial(RMSNorm, plus_one=True)),
    "counted_from": _counted_from,
    "even_windows": _even_windows,
    "gate": _gate,
    "inverse_root": lambda config, key, default: config.number(key, default) ** -0.5,
    "is_gated": _is_gated,
    "labels": lambda config, key, default: config.size(
        key, len(config.nested("id2label").entries) or default
    ),
    "late_windows": _late_windows,
    "rotary": _rotary,
    "scaled_if_tied": _scaled_if_tied,
    "start": lambda config, key, default: config.size(
        key, config.size("pad_token_id", default, 0), 0
    ),
    "tied_unless_stored": _tied_unless_stored,
}
"""By their names in a family's table; other names there are methods of Config."""

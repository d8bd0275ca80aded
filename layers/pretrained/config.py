"""A config.json that records which of its keys are read, so that none is ignored unnoticed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from math import inf
from typing import Any

from minigrad.errors import ArgumentError

from .files import Folder

__all__ = ["FALLBACK", "Config"]

NEUTRAL = (
    "model_type transformers_version torch_dtype dtype _name_or_path name_or_path "
    "auto_map initializer_* use_cache *_token_id *dropout* *pdrop* summary_* task_specific_params "
    "gradient_checkpointing output_* return_dict id2label label2id problem_type *num_labels "
    "*attn_implementation* unsloth_* cache_implementation pretraining_tp n_ctx "
    "chunk_size_feed_forward reorder_and_upcast_attn pooler_* is_llama_config "
    "transformers.js_config torchscript use_bfloat16 xla_device finetuning_task tokenizer_class "
    "max_length min_length do_sample early_stopping num_beams* temperature top_k top_p typical_p "
    "*_penalty *ngram_size num_return_sequences bad_words_ids prefix remove_invalid_values "
    "sbert_* sentence_transformers"
).split()
"""Keys that change nothing a loaded model computes; its layers drop nothing out."""
NEUTRAL_VALUES = {
    "is_encoder_decoder": False,
    "add_cross_attention": False,
    "tie_encoder_decoder": False,
    "is_decoder": False,
    "attention_bias": False,
    "mlp_bias": False,
    "pruned_heads": {},
    "directionality": "bidi",
}
"""Keys that change nothing while they have this value, whatever the family."""
ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
FALLBACK = "build the layers yourself and fill them by load_state(model, arrays, rename)"
"""The remedy where a checkpoint's model is none that is known here."""
_REQUIRED = object()


class Config:
    """A checkpoint's settings; an ArgumentError names a key that cannot be followed.

    Attributes: kind: the class that wrote it, one of `kinds`; "" where none is named.
        settings: the values read so far, by the model's keywords.
    """

    def __init__(self, entries: Mapping[str, Any], folder: Folder, kinds: Sequence[str]) -> None:
        self.entries = entries
        self.folder = folder
        self.name = "config.json"
        self.keys_read: set[str] = set()
        self.settings: dict[str, Any] = {}
        names = self.get("architectures", [""])
        if not isinstance(names, list) or len(names) != 1 or names[0] not in ("", *kinds):
            raise self.error(
                f"architectures = {names!r:.80} must be one of {', '.join(kinds)}; save the model "
                f"as one of them, or {FALLBACK}"
            )
        self.kind = str(names[0])

    def error(self, why: str) -> ArgumentError:
        return ArgumentError(f"load_pretrained: {self.folder.path}/{self.name}: {why}")

    def nested(self, *keys: str) -> Config:
        """The mapping under the first of these keys that has one; an empty one if none has."""
        entries: Any = next(filter(None, (self.get(key, None) for key in keys)), {})
        if not isinstance(entries, dict):
            raise self.error(f"{keys[0]} must be a mapping, got {entries!r:.40}")
        nested = Config(entries, self.folder, [])
        nested.name = f"{self.name}: {keys[0]}"
        return nested

    def get(self, key: str, default: Any = _REQUIRED) -> Any:
        """The value of a key; the default where it is missing or null."""
        self.keys_read.add(key)
        value = self.entries.get(key)
        if value is None and default is _REQUIRED:
            raise self.error(f"{key} is missing; add it, as the model was made with it")
        return default if value is None else value

    def is_null(self, key: str) -> bool:
        return key in self.entries and self.entries[key] is None

    def size(self, key: str, default: Any = _REQUIRED, least: int = 1) -> int:
        """An integer of at least 1 or 0, no larger than the files hold entries."""
        value = self.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            kind = "a positive integer" if least else "an integer of at least 0"
            raise self.error(f"{key} must be {kind}, got {value!r}")
        if value > self.folder.n_entries:
            raise self.error(
                f"{key} = {value} is more than all entries of the files, {self.folder.n_entries}; "
                "the config is another model's, or a file is missing"
            )
        return value

    def number(self, key: str, default: Any = _REQUIRED) -> Any:
        """A positive number, or the default."""
        value = self.get(key, default)
        if value is default:
            return value
        if not _is_positive(value):
            raise self.error(f"{key} must be a positive number, got {value!r}")
        return value

    def number_or_null(self, key: str, default: Any) -> Any:
        """A positive number; None where it is null, and the default only where it is missing.

        It must be an integer where the default is one.
        """
        if self.is_null(key):
            return None
        value = self.number(key, default)
        if isinstance(default, int) and not isinstance(value, int):
            raise self.error(f"{key} must be an integer, got {value!r}")
        return value

    def numbers(self, key: str, count: int) -> list[float] | None:
        """A list of `count` positive numbers, or None."""
        value = self.get(key, None)
        fits = isinstance(value, list) and len(value) == count
        if value is not None and not (fits and all(map(_is_positive, value))):
            raise self.error(f"{key} must be {count} positive numbers, got {value!r:.60}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.error(f"{key} must be true or false, got {value!r}")
        return value

    def only(self, **allowed: Any) -> None:
        """Refuse other values of these keys: what they would change is not understood."""
        for key, value in allowed.items():
            if self.get(key, value) != value:
                raise self.error(
                    f"{key} = {self.entries[key]!r} is not understood, only {value!r}; {FALLBACK}"
                )

    def activation(self, key: str, default: str) -> str:
        name = self.get(key, default)
        if not isinstance(name, str) or name not in ACTIVATION_NAMES:
            known = ", ".join(ACTIVATION_NAMES)
            raise self.error(f"{key} = {name!r} is not one of {known}; {FALLBACK}")
        return ACTIVATION_NAMES[name]

    def check_all_read(self) -> None:
        """Refuse keys that were not read, unless they are null or change nothing."""
        unknown = [
            f"{key} = {value!r:.40}"
            for key, value in self.entries.items()
            if value is not None
            and key not in self.keys_read
            and NEUTRAL_VALUES.get(key) != value
            and not any(fnmatchcase(key, pattern) for pattern in NEUTRAL)
        ]
        if unknown:
            raise self.error(
                f"{', '.join(unknown)}: not understood, and may change what the model computes; "
                f"take out of the file what does not, else {FALLBACK}"
            )


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf

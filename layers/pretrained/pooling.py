"""One vector of each text, as the files of the library sentence-transformers say."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, FileError

from .files import Folder

__all__ = ["Pooling"]

FILE = "1_Pooling/config.json"
MODES = {"cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
MODES |= {"mean": "pooling_mode_mean_tokens"}


class Pooling(NamedTuple):
    """What becomes of the vectors of a text's tokens.

    mode: "cls" is the first, "mean" and "max" are over the real ones.  unit: divide by the length.
    """

    mode: str
    unit: bool

    @classmethod
    def of(cls, folder: Folder) -> Pooling:
        """Raises: FileError without 1_Pooling; ArgumentError for what is not understood there."""
        if FILE not in folder.files:
            raise FileError(f"sentence: {folder.path} has no {FILE}, so none is defined")
        given = folder.json(FILE)
        entries = given.items() if isinstance(given, dict) else [("mode", given)]
        said = [x if key == "pooling_mode" else key for key, x in entries if x and "mode" in key]
        modes = [mode for mode, name in MODES.items() if said in ([mode], [name])]
        if not modes:
            names = ", ".join(MODES.values())
            raise ArgumentError(f"sentence: {FILE} must have one of {names}, got {said}")
        listed = folder.json("modules.json") if "modules.json" in folder.files else []
        kinds = [str(m.get("type")) if isinstance(m, dict) else repr(m) for m in listed]
        kinds = [kind.rpartition(".")[2] for kind in kinds]
        if unknown := set(kinds) - {"Transformer", "Pooling", "Normalize"}:
            raise ArgumentError(f"sentence: modules.json: {sorted(unknown)} is not understood")
        return cls(modes[0], "Normalize" in kinds)

    def __call__(self, X: Any, real: NDArray[np.bool_]) -> Any:
        """Shapes: X (B, n, d_model), real (B, n) → (B, d_model)"""
        if self.mode == "cls":
            s = X[:, 0]
        elif self.mode == "max":
            s = mg.max(mg.where(real[..., None], X, -np.inf), axis=1)
        else:
            weights = (real / real.sum(axis=-1, keepdims=True)).astype(X.dtype)
            s = mg.squeeze(mg.matmul(weights[:, None], X), 1)
        if self.unit:
            s = s / mg.sqrt(mg.sum(s * s, axis=-1, keepdims=True))
        return s.named("sentence")

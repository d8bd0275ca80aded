"""What is done to a program once all of it is known, and what its views show."""

from __future__ import annotations

from typing import Any

import numpy as np

from .program import EFFECTS, Program, Step

__all__ = ["drop_dead", "is_transpose", "looked_at"]


def drop_dead(program: Program) -> None:
    """Drop calls whose results nobody reads, but for those that do more than compute."""
    needed = {id(v) for v in program.kept()}
    alive = []
    for step in reversed(program.steps):
        draws = any(isinstance(a, np.random.Generator) for a in step.args)  # and moves that on
        stays = draws or step.kind in (*EFFECTS, "check", "effect")
        if stays or any(id(out) in needed for out in step.outs):
            alive.append(step)
            needed.update(map(id, step.reads()))
    program.steps[:] = reversed(alive)


def is_transpose(step: Step) -> bool:
    """Whether a view exchanges the last two axes and does nothing else."""
    ndim = len(step.args[0].shape)
    if step.text == "swapaxes":
        return {a % ndim for a in step.args[1:]} == {ndim - 1, ndim - 2}
    return step.text == "transpose" and ndim == 2


def looked_at(step: Step, source: Any) -> Any:
    """What a view shows of an array that lies as what it is a view of does."""
    if step.text == "getitem":
        return source[step.args[1]]
    return getattr(np, step.text)(source, *step.args[1:], **step.kwargs)

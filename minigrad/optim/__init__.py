"""Training: optimizers, learning rate schedules, clipping of gradients, averages of weights.

optimizer   SGD, Adam, AdamW; parameter groups; what they keep, saved and loaded
clip        clip_grad_norm, clip_grad_value
schedule    constant, linear, cosine, step, one_cycle: each sets `optimizer.lr`
average     MovingAverage: the exponential moving average of weights
loss_scale  LossScale: training in float16
"""

from typing import Any

from ..lazy_imports import missing_name
from . import schedule
from .average import MovingAverage
from .clip import clip_grad_norm, clip_grad_value
from .loss_scale import LossScale
from .optimizer import SGD, Adam, AdamW, Group, Optimizer

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Group",
    "LossScale",
    "MovingAverage",
    "Optimizer",
    "clip_grad_norm",
    "clip_grad_value",
    "schedule",
]


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name)

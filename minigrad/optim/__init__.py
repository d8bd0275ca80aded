"""Training: optimizers, learning rate schedules, clipping of gradients, averages of weights.

algorithms  SGD, RMSprop, Adam, AdamW
optimizer   what they share: parameter groups, weight decay; what they keep, saved and loaded
clip        clip_grad_norm, clip_grad_value
schedule    constant, linear, cosine, step, exponential, one_cycle, plateau: set `optimizer.lr`
average     MovingAverage: the exponential moving average of weights
loss_scale  LossScale: training in float16
"""

from typing import Any

from ..lazy_imports import missing_name
from . import schedule
from .algorithms import SGD, Adam, AdamW, RMSprop
from .average import MovingAverage
from .clip import clip_grad_norm, clip_grad_value
from .loss_scale import LossScale
from .optimizer import Group, Optimizer

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Group",
    "LossScale",
    "MovingAverage",
    "Optimizer",
    "RMSprop",
    "clip_grad_norm",
    "clip_grad_value",
    "schedule",
]


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name)

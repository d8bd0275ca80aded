"""Training: optimizers, schedules of the learning rate, clipping of gradients, float16.

optimizer   parameter groups, what is kept for each parameter, and the step
algorithms  SGD, RMSprop, Adam, AdamW
clip        clip_grad_norm
schedule    cosine, linear, step: set `optimizer.lr`
loss_scale  LossScale: training in float16
"""

from typing import NoReturn

from ..engine.errors import MissingNameError
from ..habits import missing
from . import schedule as schedule
from .algorithms import SGD as SGD, Adam as Adam, AdamW as AdamW, RMSprop as RMSprop
from .clip import clip_grad_norm as clip_grad_norm
from .loss_scale import LossScale as LossScale
from .optimizer import Optimizer as Optimizer


def __getattr__(name: str) -> NoReturn:
    raise MissingNameError(missing("module 'minigrad.optim'", name))

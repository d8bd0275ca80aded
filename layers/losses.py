"""The losses as layers, for models that are put together from them: `MSELoss()(out, target)`."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, ClassVar

import minigrad as mg
from minigrad.errors import ArgumentError

from .loss import cross_entropy_loss
from .module import Module

__all__ = [
    "BCEWithLogitsLoss",
    "CrossEntropyLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "NLLLoss",
    "SmoothL1Loss",
]


class _Loss(Module):
    """A function of outputs and targets with its settings.

    Raises: ArgumentError for a setting that the function has not.
    """

    function: ClassVar[Callable[..., Any]]

    def __init__(self, **settings: Any) -> None:
        known = [*signature(type(self).function).parameters][2:]
        if unknown := sorted(set(settings) - set(known)):
            call, names = type(self).__name__, ", ".join(known)
            raise ArgumentError(f"{call}: settings are {names}, got {', '.join(unknown)}")
        self.settings = settings

    def forward(self, x: mg.Tensor, target: Any) -> Any:
        return type(self).function(x, target, **self.settings)


class MSELoss(_Loss):
    """mg.mse_loss as a layer, with its settings.

    >>> import numpy as np
    >>> MSELoss(reduction="sum")(np.array([1.0, 2.0]), np.zeros(2)).item()
    5.0
    """

    function = mg.mse_loss


class L1Loss(_Loss):
    """mg.l1_loss as a layer, with its settings.

    >>> import numpy as np
    >>> L1Loss()(np.array([1.0, 2.0]), np.zeros(2)).item()
    1.5
    """

    function = mg.l1_loss


class SmoothL1Loss(_Loss):
    """mg.smooth_l1_loss as a layer, with its settings.

    >>> import numpy as np
    >>> SmoothL1Loss(beta=2.0)(np.array([3.0]), np.zeros(1)).item()
    2.0
    """

    function = mg.smooth_l1_loss


class HuberLoss(_Loss):
    """mg.huber_loss as a layer, with its settings.

    >>> import numpy as np
    >>> HuberLoss(delta=1.0)(np.array([3.0]), np.zeros(1)).item()
    2.5
    """

    function = mg.huber_loss


class NLLLoss(_Loss):
    """mg.nll_loss as a layer, with its settings.

    >>> import numpy as np
    >>> NLLLoss()(np.array([[-1.0, -2.0]]), np.array([1])).item()
    2.0
    """

    function = mg.nll_loss


class CrossEntropyLoss(_Loss):
    """cross_entropy_loss as a layer, with its settings: weight, ignore_index, label_smoothing …

    >>> import numpy as np
    >>> round(CrossEntropyLoss()(np.zeros((1, 4)), np.array([1])).item(), 4)
    1.3863
    """

    function = cross_entropy_loss


class BCEWithLogitsLoss(_Loss):
    """mg.binary_cross_entropy_with_logits as a layer, with its settings: reduction, pos_weight.

    >>> import numpy as np
    >>> round(BCEWithLogitsLoss()(np.zeros(2), np.ones(2)).item(), 4)
    0.6931
    """

    function = mg.binary_cross_entropy_with_logits


class KLDivLoss(_Loss):
    """mg.kl_div as a layer, with its settings.

    >>> import numpy as np
    >>> KLDivLoss(log_target=True)(np.zeros(2), np.zeros(2)).item()
    0.0
    """

    function = mg.kl_div

"""What each op is in ONNX, in files that mirror minigrad/ops."""

from . import (
    comparisons,
    convolution,
    elementwise,
    losses,
    norms,
    products,
    recurrent,
    reductions,
    select,
    shapes,
)

__all__ = [
    "comparisons",
    "convolution",
    "elementwise",
    "losses",
    "norms",
    "products",
    "recurrent",
    "reductions",
    "select",
    "shapes",
]

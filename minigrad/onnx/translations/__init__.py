"""What each op is in ONNX, in files that mirror minigrad/ops."""

from . import convolution, elementwise, norms, products, recurrent, reductions, select, shapes

__all__ = [
    "convolution",
    "elementwise",
    "norms",
    "products",
    "recurrent",
    "reductions",
    "select",
    "shapes",
]

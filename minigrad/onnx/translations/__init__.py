"""What each op is in ONNX: files of families of ops, each declared when it is imported."""

from . import convolution, elementwise, recurrent, reductions, select, shapes

__all__ = ["convolution", "elementwise", "recurrent", "reductions", "select", "shapes"]

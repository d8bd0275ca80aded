r"""Convolution and pooling over one, two or more axes, in PyTorch's layout (N, C, length, …).

`windows` copies the windows of an input into the columns of a matrix, so that a convolution is one
product of matrices and pooling a reduction; `add_windows` adds columns up where the windows were.
Each is the rule of the other. The batch is the last axis, so that long runs of memory are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from operator import index as as_integer
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..engine.errors import ArgumentError, ShapeError
from ..engine.op import array_of, is_tensor, op
from .dtypes import as_array, cast_back, floating, masked, widen_half
from .norms import statistics_axes, sum_by_channel
from .notation import Formula
from .samples import Samples, each_of_x, no_flops, of_shapes
from .select import scatter_add

__all__ = ["avg_pool", "conv1d", "conv2d", "max_pool"]


PerAxis: TypeAlias = int | Sequence[int]  # a setting of all axes, or of each

# ---------------------------------------------------------------- positions of windows


def per_axis(value: Any, n: int, name: str) -> tuple[int, ...]:
    """A setting as one integer an axis. Raises: ArgumentError for anything else."""
    try:
        values = tuple(map(as_integer, (value,) * n if np.ndim(value) == 0 else value))
    except TypeError:
        values = ()
    if len(values) != n:
        raise ArgumentError(
            f"{name} must be an integer, or one for each of {n} axes, got {value!r}"
        )
    return values


def paddings(
    padding: PerAxis | str, size: tuple[int, ...], stride: PerAxis, dilation: PerAxis
) -> list[tuple[int, int]]:
    """Before and after each axis; "same" keeps lengths where the stride is 1."""
    n = len(size)
    if padding != "same":
        return [(p, p) for p in per_axis(padding, n, "padding")]
    if set(per_axis(stride, n, "stride")) != {1}:
        raise ArgumentError('padding="same" takes stride=1')
    totals = [d * (k - 1) for k, d in zip(size, per_axis(dilation, n, "dilation"), strict=True)]
    return [(total // 2, total - total // 2) for total in totals]


class WindowPlaces(NamedTuple):
    """Positions of the windows in an input with its padding, as (C, length, …, N)."""

    padded: tuple[int, ...]  # the input's lengths
    inside: tuple[slice, ...]  # the input without its padding
    out: tuple[int, ...]  # the result's lengths
    slices: list[tuple[slice, ...]]  # an entry of a window, in all windows


def places_of(shape, size, stride=1, padding=0, dilation=1) -> WindowPlaces:
    """The positions of windows, side by side if the stride is None; computed once for each call."""
    settings = (shape, size, size if stride is None else stride, padding, dilation)
    return _places(*[tuple(v) if isinstance(v, list) else v for v in settings])


@lru_cache(256, typed=True)  # 2.0, which is refused, equals 2
def _places(shape, size, stride, padding, dilation):
    n = len(shape) - 2
    if n < 1:
        raise ShapeError(f"the input must be (N, C, length, …), got {tuple(shape)}")
    size = per_axis(size, n, "size")
    steps = per_axis(stride, n, "stride")
    gaps = per_axis(dilation, n, "dilation")
    if min(size + steps + gaps) < 1:
        raise ArgumentError("size, stride and dilation must be at least 1")
    pads = paddings(padding, size, stride, dilation)
    padded = tuple(a + m + b for m, (a, b) in zip(shape[2:], pads, strict=True))
    inside = [slice(a, a + m) for m, (a, _) in zip(shape[2:], pads, strict=True)]
    spans = tuple(d * (k - 1) + 1 for k, d in zip(size, gaps, strict=True))
    out = tuple((m - span) // s + 1 for m, span, s in zip(padded, spans, steps, strict=True))
    if min(out) < 1:
        raise ShapeError(f"windows of {spans} do not fit into {padded}, padding in")
    slices = []
    for at in np.ndindex(size):
        axes = zip(at, gaps, out, steps, strict=True)
        slices.append((slice(None), *(slice(i * d, i * d + m * s, s) for i, d, m, s in axes)))
    return WindowPlaces(padded, (slice(None), *inside), out, slices)


def padded(x, places, fill=0.0):
    """The array with its padding, its batch last in memory: (C, length, …, N)."""
    turned = np.moveaxis(x, 0, -1)
    shape = (x.shape[1], *places.padded, len(x))
    if turned.shape == shape:
        return np.ascontiguousarray(turned)
    whole = np.full(shape, fill, x.dtype)
    whole[places.inside] = turned
    return whole


# ---------------------------------------------------------------- windows


SETTINGS = "s=<stride>,p=<padding>,d=<dilation>"


@op(
    tex=rf"\operatorname{{windows}}_{{k=<size>,{SETTINGS}}}(<x>)",
    vjp_tex={"x": rf"\operatorname{{addwindows}}_{{k=<size>,{SETTINGS}}}(<g>)"},
    flops=no_flops,
    samples=of_shapes(
        ([2, 3, 5, 7], (2, 3)),
        ([2, 1, 5, 7], 3, (2, 1), 1, (1, 2)),
        ([3, 5, 7], 2, 1, "same"),
        ([0, 3, 5], 2),
    ),
)
def windows(x, size, stride=1, padding=0, dilation=1):
    """Lays out all windows of a size, each as a column: (N, C, length, …) → (C, K, L, N).

    Args:
        size: how long a window is along each axis, K entries in all.
        stride: from one window to the next, L in all.
        padding: zeros on both sides, or "same".
        dilation: from one entry of a window to the next.
    Raises: ShapeError where none fits; ArgumentError for a setting below 1.

    >>> windows(np.arange(4.0).reshape(1, 1, 4), 3)[0, :, :, 0]
    array([[0., 1.],
           [1., 2.],
           [2., 3.]])
    """
    x = as_array(x)
    places = places_of(x.shape, size, stride, padding, dilation)
    N, C = x.shape[:2]
    whole = padded(x, places)
    shape = C, len(places.slices), prod(places.out), N
    if len(places.slices) == 1 and places.out == places.padded:  # each of one entry
        return whole.reshape(shape)
    columns = np.empty((C, len(places.slices), *places.out, N), x.dtype)
    for k, at in enumerate(places.slices):
        columns[:, k] = whole[at]
    return columns.reshape(shape)


@windows.vjp("x")
def _(g, x_shape, size, stride, padding, dilation):
    """The gradients of all windows are added up where the windows overlap."""
    return add_windows(g, x_shape, size, stride, padding, dilation)


@op(
    tex=rf"\operatorname{{addwindows}}_{{k=<size>,{SETTINGS}}}(<x>)",
    vjp_tex={"x": rf"\operatorname{{windows}}_{{k=<size>,{SETTINGS}}}(<g>)"},
    flops=each_of_x(1),
    samples=of_shapes(
        ([3, 6, 20, 2], (2, 3, 5, 7), (2, 3)),
        ([3, 3, 4, 2], (2, 3, 7), 3, 2, 1),
        ([3, 2, 4, 0], (0, 3, 5), 2),
    ),
)
def add_windows(x, shape, size, stride=1, padding=0, dilation=1):
    """Adds up windows at their places in an array, each a column as `windows` gives it.

    >>> add_windows(np.ones((1, 3, 2, 1)), (1, 1, 4), 3)[0, 0]
    array([1., 2., 2., 1.])
    """
    x = as_array(x)
    places = places_of(shape, size, stride, padding, dilation)
    N, C = shape[:2]
    total = np.zeros((C, *places.padded, N), widen_half(x).dtype)
    for column, at in zip(np.moveaxis(x, 1, 0), places.slices, strict=True):
        total[at] += column.reshape(C, *places.out, N)
    return cast_back(np.moveaxis(total[places.inside], -1, 0), x)


@add_windows.vjp("x")
def _(g, size, stride, padding, dilation):
    """The gradient is laid out in the same windows."""
    return windows(g, size, stride, padding, dilation)


# ---------------------------------------------------------------- convolution


def _grouped(weight, groups):
    """(O, C / G, …) → (G, O / G, C / G · K): for each group, one row for each channel it makes."""
    return weight.reshape((groups, weight.shape[0] // groups, prod(weight.shape[1:])))


def by_rows(g, groups):
    """(N, O, length, …) → (G, O / G, L · N)."""
    turned = np.transpose(g, (*range(1, g.ndim), 0))
    return turned.reshape((groups, g.shape[1] // groups, prod(g.shape[2:]) * g.shape[0]))


def _columns(x, size, stride, padding, dilation, groups):
    """The windows of each group: (G, C / G · K, L · N)."""
    columns = windows(x, size, stride, padding, dilation)
    C, K, *places = columns.shape
    return columns.reshape((groups, C * K // groups, prod(places)))


def convolved(n, x, weight, bias, stride, padding, dilation, groups):
    """The result over n axes."""
    x = floating(x)
    weight = floating(weight)
    check_shapes(n, x, weight, bias, groups)
    stride = per_axis(stride, n, "stride")
    out = places_of(x.shape, weight.shape[2:], stride, padding, dilation).out
    columns = _columns(x, weight.shape[2:], stride, padding, dilation, groups)
    y = np.matmul(_grouped(weight, groups), columns)
    y = y.reshape((len(weight), *out, len(x)))
    if bias is not None:
        y = y + np.reshape(bias, (-1, *[1] * (n + 1)))
    return np.moveaxis(y, -1, 0)  # (N, O, length, …)


def check_shapes(n, x, weight, bias, groups):
    """Raise ShapeError unless the input, the weights and the bias fit together over n axes."""
    if x.ndim != n + 2 or weight.ndim != n + 2:
        raise ShapeError(
            f"x must be (N, C, …) and weight (O, C / groups, …), both of {n + 2} axes, got "
            f"{x.shape} and {weight.shape}"
        )
    O = len(weight)
    C = x.shape[1]
    if groups < 1 or C % groups or O % groups or weight.shape[1] != C // groups:
        raise ShapeError(
            f"weight must be (O, C / groups, …) with groups dividing both, got {weight.shape}, "
            f"C = {C} and groups = {groups}"
        )
    if bias is not None and np.shape(bias) != (O,):
        raise ShapeError(f"bias must be ({O},), got {np.shape(bias)}")


def _flops(weight, bias, out):
    """Multiplications and additions of a product with the weights, and of the bias."""
    return 2 * out.size * prod(weight.shape[1:]) + (0 if bias is None else out.size)


def _samples(n: int) -> Samples:
    x = [2, 4, 5, 7][: n + 2]
    size = [2, 3][:n]
    return of_shapes(
        (x, [6, 4, *size], [6]), (x, [6, 2, *size], None, 2, 1, 2, 2),
        (x, [4, 1, *size], None, 1, "same", 1, 4), ([0, *x[1:]], [6, 4, *size], [6]),
    )  # fmt: skip


_CONVOLUTION: dict[str, Any] = {  # of matrices, one for each group
    "tex": rf"<weight> \operatorname{{windows}}_{{{SETTINGS}}}(<x>) + <bias>",
    "vjp_tex": {
        "x": rf"\operatorname{{addwindows}}_{{{SETTINGS}}}(<weight>^\top <g>)",
        "weight": rf"<g> \operatorname{{windows}}_{{{SETTINGS}}}(<x>)^\top",
        "bias": sum_by_channel,
    },
    "flops": _flops,
}


@op(**_CONVOLUTION, samples=_samples(1))
def conv1d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups: int = 1):
    """Slides filters along a signal and sums the products at each place.

        y_{n,o,i} = Σ_{c,k} w_{o,c,k} x_{n,c,i+k} + b_o.

    Args, errors: as conv2d.  Shapes: x (N, C, length), weight (O, C / groups, K), bias (O,).

    >>> conv1d(np.array([[[1.0, 2.0, 4.0]]]), np.array([[[-1.0, 1.0]]]))
    array([[[1., 2.]]])
    """
    return convolved(1, x, weight, bias, stride, padding, dilation, groups)


@op(**_CONVOLUTION, samples=_samples(2))
def conv2d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups: int = 1):
    """Slides filters over an image and sums the products at each place.

        y_{n,o,i,j} = Σ_{c,k,l} w_{o,c,k,l} x_{n,c,i+k,j+l} + b_o.

    Args: stride: from one window to the next; dilation: between the entries of a window; padding:
        zeros on both sides, or "same"; each an integer or one an axis. groups: channels are split
        into so many, each with weights of its own.
    Shapes: x (N, C, height, width), weight (O, C / groups, K, L), bias (O,) or None →
        (N, O, height', width').
    Raises: ShapeError where these do not fit; ArgumentError for a setting that is no integer.
    Source: as torch.nn.functional.conv2d.

    >>> conv2d(np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2)), padding=1)[0, 0]
    array([[1., 2., 2., 1.],
           [2., 4., 4., 2.],
           [2., 4., 4., 2.],
           [1., 2., 2., 1.]])
    """
    return convolved(2, x, weight, bias, stride, padding, dilation, groups)


@conv1d.vjp("x")
@conv2d.vjp("x")
def spread_products(g, x_shape, weight, stride, padding, dilation, groups):
    """Each gradient goes back through the filter to the window it came from; overlaps add up."""
    turned = np.swapaxes(_grouped(weight, groups), 1, 2)
    columns = np.matmul(turned, by_rows(g, groups))
    shape = (x_shape[1], prod(weight.shape[2:]), prod(g.shape[2:]), x_shape[0])
    return add_windows(columns.reshape(shape), x_shape, weight.shape[2:], stride, padding, dilation)


@conv1d.vjp("weight")
@conv2d.vjp("weight")
def window_products(g, x, weight_shape, stride, padding, dilation, groups):
    """The gradient is multiplied by what lay under the filter, and summed over all places."""
    columns = _columns(x, weight_shape[2:], stride, padding, dilation, groups)
    turned = np.swapaxes(columns, 1, 2)
    return np.matmul(by_rows(g, groups), turned).reshape(weight_shape)


@conv1d.vjp("bias")
@conv2d.vjp("bias")
def _(g):
    """The gradient of each channel is summed over the batch and all places."""
    return widen_half(g).sum(axis=statistics_axes(g))


# ---------------------------------------------------------------- pooling


def entries_of(x, size, stride, padding, fill=0.0):
    """Each entry of a window, in all windows: K views (N, C, length', …)."""
    places = places_of(x.shape, size, stride, padding)
    if places.padded != x.shape[2:]:
        x = np.moveaxis(padded(x, places, fill), -1, 0)
    return [x[:, *at] for at in places.slices]


def combined(function, arrays):
    """All arrays of a list, by a function of two."""
    total = np.array(arrays[0])
    for array in arrays[1:]:
        function(total, array, out=total)
    return total


def add_entries(parts, x_shape, size, stride, padding):
    """Adds up one array for each entry of a window, where these entries lie in all windows."""
    places = places_of(x_shape, size, stride, padding)
    shape = (*x_shape[:2], *places.padded)
    pairs = zip(parts, places.slices, strict=True)
    if is_tensor(parts[0]):  # which is to be differentiated too
        total = sum([scatter_add(part, (slice(None), *at), shape) for part, at in pairs])
    else:
        total = np.zeros_like(parts[0], shape=shape)
        for part, at in pairs:
            total[:, *at] += part
    return total[:, *places.inside]


POOLS = of_shapes(
    ([2, 3, 5, 7], 2), ([1, 3, 5, 7], (3, 2), 1, (1, 0)), ([3, 5, 7], 2), ([0, 3, 5], 2)
)


def _window_entries(x, out, size):
    return out.size * prod(per_axis(size, x.ndim - 2, "size"))


def _by_pools(formula: str) -> Formula:
    """A formula in which @ stands for the settings; windows do not overlap without a stride."""

    def tex(size: Any, stride: Any, padding: Any) -> str:
        return formula.replace("@", f"_{{k={size},s={stride or size},p={padding}}}")

    return tex


@op(
    tex=_by_pools(r"\operatorname{max}_k(\operatorname{windows}@(<x>))"),
    vjp_tex={
        "x": _by_pools(
            r"\operatorname{addwindows}@(<g> \odot \operatorname{first}_k([w = <out>])),"
            r" \quad w = \operatorname{windows}@(<x>)"
        )
    },
    flops=_window_entries,
    samples=POOLS,
    analytic=False,
)
def max_pool(x, size, stride=None, padding=0):
    """Takes the largest entry of each window; of equal ones the first gets the gradient.

    Where a window holds NaN that is the result, and the first NaN gets the gradient.
    Args: size: of a window, along each axis behind (N, C). stride: the size unless given.
        padding: of -inf, on both sides, smaller than a window.
    Shapes: x (N, C, length, …) → (N, C, length', …)
    Raises: ShapeError where no window fits; ArgumentError for a larger padding.
    Source: as torch.nn.functional.max_pool2d.

    >>> max_pool(np.array([[[1.0, 5.0, 2.0, 3.0]]]), 2)
    array([[[5., 3.]]])
    """
    check_padding(np.ndim(x) - 2, size, padding)
    return combined(np.maximum, entries_of(floating(x), size, stride, padding, -np.inf))


def check_padding(n, size, padding):
    """Raise ArgumentError if a window may lie in the padding alone, where no entry is."""
    pairs = zip(per_axis(size, n, "size"), paddings(padding, (1,) * n, 1, 1), strict=True)
    if any(pad >= length for length, (pad, _) in pairs):
        raise ArgumentError(f"padding must be smaller than a window of {size}, got {padding}")


@max_pool.vjp("x")
def _(g, x, out, size, stride, padding):
    """The gradient goes to the largest entry of each window, to the first of equal ones."""
    x = array_of(x)  # where it is stays the same
    largest = array_of(out)
    g = widen_half(g)
    has_nan = np.isnan(largest).any()  # which differs from itself
    wanted = True  # windows of which it has not come yet
    parts = []
    for entry in entries_of(x, size, stride, padding, -np.inf):
        is_it = (entry == largest) | (entry != entry) if has_nan else entry == largest
        is_first = is_it & wanted
        wanted ^= is_first
        parts.append(masked(g, is_first))
    return add_entries(parts, x.shape, size, stride, padding)


@op(
    tex=_by_pools(r"\operatorname{mean}_k(\operatorname{windows}@(<x>))"),
    vjp_tex={
        "x": _by_pools(
            r"\operatorname{addwindows}@(\tfrac1K \operatorname{each}_k(<g>)),"
            r" \quad K = \prod <size>"
        )
    },
    flops=_window_entries,
    samples=POOLS,
)
def avg_pool(x, size, stride=None, padding=0):
    """Averages each window, padding of zeros included.

    Args, shapes, errors: as max_pool.  Source: as torch.nn.functional.avg_pool2d.

    >>> avg_pool(np.array([[[1.0, 5.0, 2.0, 3.0]]]), 2)
    array([[[3. , 2.5]]])
    """
    check_padding(np.ndim(x) - 2, size, padding)
    x = floating(x)
    entries = entries_of(widen_half(x), size, stride, padding)
    return cast_back(combined(np.add, entries) / len(entries), x)


@avg_pool.vjp("x")
def _(g, x_shape, size, stride, padding):
    """The gradient is shared out evenly over each window, and adds up where windows overlap."""
    K = prod(per_axis(size, len(x_shape) - 2, "size"))
    return add_entries([widen_half(g) / K] * K, x_shape, size, stride, padding)

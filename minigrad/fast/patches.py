"""The windows of a few images at a time, as rows of a matrix that stays in cache.

Images are channels-last, (N, H, W, C). Nothing is padded as a whole: each block of images is copied
into a buffer with zeros around it, and its windows are read from there.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import NamedTuple

from numpy.lib.stride_tricks import as_strided

from ..engine.op import Array, DType
from .limits import LIMITS
from .threads import Scratch, is_inside, one_threaded_blas, run

__all__ = ["Axis", "WindowBlock", "Windows", "as_matrix", "each_block"]

SUM_COUNT = 4  # gradients of weights, each of some blocks, so that the order of sums is fixed


class Axis(NamedTuple):
    """The windows along one axis: entry k of window i lies at `begin + i step + k gap`."""

    begin: int  # below 0 where there is padding
    step: int
    gap: int
    size: int
    length: int

    def reach(self, first: int, last: int) -> tuple[int, int]:
        """Where the windows first, …, last - 1 begin, and where they end."""
        begin = self.begin + first * self.step
        return begin, begin + (last - first - 1) * self.step + (self.size - 1) * self.gap + 1


class WindowBlock(NamedTuple):
    """Some images, and some rows of their windows."""

    images: slice
    rows: slice


class Windows:
    """The windows of images (N, H, W, C)."""

    def __init__(self, images: Array, rows: Axis, columns: Axis) -> None:
        self.images = images
        self.rows = rows
        self.columns = columns
        self.size = rows.size * columns.size * images.shape[3]  # entries of one window

    def blocks(self) -> list[WindowBlock]:
        """Blocks whose windows fit the cache: several small images, or some rows of a large one."""
        N, height = len(self.images), self.rows.length
        fit = max(1, LIMITS.patch_entries // max(1, self.columns.length * self.size))
        images, rows = max(1, fit // height), min(fit, height)
        return [
            WindowBlock(slice(n, min(n + images, N)), slice(r, min(r + rows, height)))
            for n in range(0, N, images)
            for r in range(0, height, rows)
        ]

    def view(self, block: WindowBlock, scratch: Scratch) -> Array:
        """The windows of a block, (n, rows, columns, K, L, C): a view of its images."""
        shape, own, inside = self._place(block)
        images = self.images[own]
        if images.shape != shape or images.strides[3] != images.itemsize:
            buffer = _buffer(shape, images.dtype, scratch)
            if images.shape != shape:
                buffer.fill(0)
            buffer[inside] = images
            images = buffer
        return self._windows_of(images, block)

    def add(self, block: WindowBlock, spread: Callable[[Array], None], scratch: Scratch) -> None:
        """Add up what `spread(view)` adds to the windows of a block."""
        shape, own, inside = self._place(block)
        buffer = _buffer(shape, self.images.dtype, scratch)
        buffer.fill(0)
        spread(self._windows_of(buffer, block))
        self.images[own] += buffer[inside]

    def _place(
        self, block: WindowBlock
    ) -> tuple[tuple[int, ...], tuple[slice, ...], tuple[slice, ...]]:
        """The shape of a block's images with their border, where they are, and where within it."""
        rows, columns = self.rows, self.columns
        reach = [rows.reach(block.rows.start, block.rows.stop), columns.reach(0, columns.length)]
        own, inside = [block.images], [slice(None)]
        for (begin, end), length in zip(reach, self.images.shape[1:3], strict=True):
            first = min(max(0, begin), length)
            last = max(first, min(length, end))  # first, where all is border
            own.append(slice(first, last))
            inside.append(slice(first - begin, last - begin))
        count = block.images.stop - block.images.start
        shape = (count, *[end - begin for begin, end in reach], self.images.shape[3])
        return shape, tuple(own), tuple(inside)

    def _windows_of(self, images: Array, block: WindowBlock) -> Array:
        rows, columns = self.rows, self.columns
        count = block.rows.stop - block.rows.start
        n, h, w, c = images.strides
        return as_strided(
            images,
            (len(images), count, columns.length, rows.size, columns.size, images.shape[3]),
            (n, h * rows.step, w * columns.step, h * rows.gap, w * columns.gap, c),
        )


def _buffer(shape: tuple[int, ...], dtype: DType, scratch: Scratch) -> Array:
    """An array of images; where channels are few, each is stored in one piece."""
    if shape[3] >= FEW_CHANNELS:
        return scratch.array("images", shape, dtype)
    n, h, w, c = shape
    return scratch.array("images", (c, n, h, w), dtype).transpose(1, 2, 3, 0)


FEW_CHANNELS = 8  # with fewer, the pieces to copy would be too short


def as_matrix(view: Array, scratch: Scratch) -> Array:
    """Windows (n, rows, columns, K, L, C) as rows, (n rows columns, K L C)."""
    L, entries = prod(view.shape[:3]), prod(view.shape[3:])
    if view.flags.c_contiguous:
        return view.reshape(L, entries)
    if view.shape[5] < FEW_CHANNELS:  # copied along an image's rows
        laid_out = scratch.array("windows", view.shape[3:] + view.shape[:3], view.dtype)
        laid_out[...] = view.transpose(3, 4, 5, 0, 1, 2)
        return laid_out.reshape(entries, L).T
    laid_out = scratch.array("windows", view.shape, view.dtype)
    laid_out[...] = view
    return laid_out.reshape(L, entries)


def each_block(
    windows: Windows,
    work: Callable[[int, WindowBlock, Scratch], None],
    macs: int,
    whole: bool = False,
) -> None:
    """Call `work(part, block, scratch)` for every block, each part's in order, on BLAS's threads.

    macs: multiplications in all; few of them stay on one thread. whole: blocks of one image belong
    to one part.
    """
    blocks = windows.blocks()
    edges = [part * len(blocks) // SUM_COUNT for part in range(SUM_COUNT + 1)]
    if whole:
        edges = [_at_image(blocks, edge) for edge in edges]
    parts = [(part, blocks[slice(*ends)]) for part, ends in enumerate(pairwise(edges))]

    def work_on(item: tuple[int, list[WindowBlock]], scratch: Scratch) -> None:
        part, own = item
        for block in own:
            work(part, block, scratch)

    with one_threaded_blas as threads:
        alone = is_inside() or macs <= LIMITS.threaded_macs
        run(work_on, parts, 1 if alone else threads)


def _at_image(blocks: list[WindowBlock], edge: int) -> int:
    """The edge, or the next one before which an image ends."""
    while edge < len(blocks) and blocks[edge].rows.start:
        edge += 1
    return edge

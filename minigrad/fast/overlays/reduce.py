"""Ops along the last axis, a few rows at a time on both cores."""

from ...ops.rearrange import sort
from ...ops.reduce import cumsum, max, min
from ..by_blocks import by_rows

by_rows(cumsum, max, min, sort)

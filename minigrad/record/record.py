"""Record: a forward pass and the last backward as plain data, which is all that views read.

A record has entries (leaves and the results of ops, numbered as they were made), and edges (each
use of one by an op). A `Recorder` fills it while ops run; `finish` then finds, once, what the
numbers mean. A `Trace` is a record with a method for each view.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, prod, sqrt
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..check import Comparison
from ..engine.op import Array

__all__ = [
    "Array", "Check", "Checks", "Edge", "Entry", "Expectation", "Facts", "Record", "Scopes",
    "ThroughTime", "Way",
    "ends_with", "measure", "rms", "show", "unmarked",
]  # fmt: skip

Scopes: TypeAlias = dict[tuple[int, ...], tuple[tuple[int, ...], str, int]]  # see `RunCalls`

AT_ONCE = 8192  # entries that BLAS adds up without waking its threads


class Facts(NamedTuple):
    """What views say of an array's entries."""

    rms: float  # of those that a mask has not set to -inf
    low: float | None  # None for no entries
    high: float | None
    finite: bool  # neither NaN nor +inf among them; -inf may be a mask's


def measure(array: Array | None) -> Facts | None:
    """The facts of an array; None if it holds no real numbers, or is none.

    >>> measure(np.array([3.0, -np.inf, -4.0]))
    Facts(rms=3.5355339059327378, low=-inf, high=3.0, finite=True)
    """
    if array is None or array.dtype.kind not in "fiub":
        return None
    flat = array.ravel(order="K")  # in the order of memory: a transposed array is not copied
    if flat.size == 0:
        return Facts(0.0, None, None, True)
    with np.errstate(all="ignore"):
        size = rms(flat)
        low, high = float(flat.min()), float(flat.max())
    return Facts(size, low, high, high < np.inf and isfinite(size))


def rms(array: Any) -> float:
    """Root of the mean square, of what no mask has set to -inf; not finite where an entry is not.

    >>> rms([3.0, -4.0, -np.inf]), rms(np.float32([1e30, -1e30])), rms([])
    (3.5355339059327378, 1.0000000150474662e+30, 0.0)
    """
    flat = np.asarray(array).ravel(order="K")
    if flat.dtype.char not in "fd":
        flat = flat.astype(np.float64)
    squares = 0.0
    for i in range(0, flat.size, AT_ONCE):
        part = flat[i : i + AT_ONCE]
        squares += float(np.vdot(part, part))  # which warns of nothing
    small, large = (1e-30, 1e30) if flat.dtype.itemsize < 8 else (1e-140, 1e280)
    if small < squares < large:
        return sqrt(squares / flat.size)
    flat = flat[flat != -np.inf].astype(np.float64)
    top = float(np.abs(flat).max(initial=0.0))
    return top * sqrt(np.mean((flat / top) ** 2)) if 0 < top < np.inf else top


@dataclass(slots=True, eq=False, repr=False)
class Entry:
    """One value of the run: a leaf, or the result of an op.

    Attributes:
        kind: "op", "buffer update" (of an op too), "parameter" (a layer or an optimizer holds it),
            "buffer" (a layer holds it and does not train it), "input" (what a layer was called
            with, or a Tensor that needs no gradient), "leaf" (any other that needs one),
            "constant".
        calls: for each scope around it the number of its call; of a parameter none, which is one
            thing in all of them.
        value, gradient: arrays; the gradient is that of the last backward.
        inputs: of its op, by name, in order.  numbers: those of them that are plain numbers.
        settings: of its op, as they were given; arrays among them have edges as inputs have.
        copy_of: the entry of which a constant is a detached copy.
        made_at: file and line that made it.
        seconds, backward_seconds: what its op and its rules took.
        saved_bytes: of arrays that its op saved for backward, and no earlier one.
        needs: whether it requires a gradient.
        takes: what its op used, in the order of its inputs.  uses: where it is used, in order.

        state: "ok", "vanishing", "exploding", "zero", "zero in theory", "not finite", "wrong"; or
            "none" for no gradient. `why` gives the reason of none and of zero in theory.
        reach: the norm of its gradient over that of the loss.
        checks: of its op's rules, and of its gradient.  note: what is odd about its values.

        tex, vjp_tex: formulas of its op and of its rules, with <slots>.  says: what it does.
        flops: of the forward.
        symbol, slope: LaTeX of it and of its gradient.  number: LaTeX of a constant number.
        equation, where: the formula with symbols in its slots, and what defines its signs.
    """

    id: int
    kind: str
    op: str = ""
    name: str = ""
    scope: str = ""
    calls: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    dtype: str = "float64"
    value: Array | None = None
    gradient: Array | None = None
    inputs: Sequence[str] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    copy_of: int | None = None
    made_at: Any = ""  # decoded only when it is shown: see `place`
    saved_bytes: int = 0
    seconds: float = 0.0
    backward_seconds: float = 0.0
    needs: bool = False
    takes: list[Edge] = field(default_factory=list)
    uses: list[Edge] = field(default_factory=list)

    value_facts: Facts | None = None
    gradient_facts: Facts | None = None
    state: str = "none"
    why: str = ""
    reach: float | None = None
    checks: Sequence[Check] = ()
    note: str = ""

    tex: str = ""
    vjp_tex: dict[str, str] = field(default_factory=dict)
    says: str = ""
    flops: int | None = None
    symbol: str = ""
    slope: str = ""
    number: str = ""
    equation: str = ""
    where: Sequence[str] = ()

    def __repr__(self) -> str:
        facts = self.gradient_facts
        size = "no gradient" if facts is None else f"∂L rms {facts.rms:.3g}"
        origin = self.op or self.kind
        return f"Entry {self.id} {self.path}: {origin}, {self.shape} {self.dtype}, {size}"

    @property
    def label(self) -> str:
        return self.name or self.op or f"{self.kind} {self.id}"

    @property
    def path(self) -> str:
        return f"{self.scope}/{self.label}" if self.scope else self.label

    @property
    def place(self) -> str:
        """File and line that made it."""
        return str(self.made_at)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def learns(self) -> bool:
        """Whether it is a leaf with a gradient that is no input."""
        return self.needs and self.kind in ("parameter", "leaf")

    @property
    def gradient_rms(self) -> float | None:
        return None if self.gradient_facts is None else self.gradient_facts.rms

    @property
    def norm(self) -> float:
        """Of the gradient; 0 if there is none."""
        return (self.gradient_rms or 0.0) * sqrt(self.size)

    @property
    def is_sum(self) -> bool:
        """Whether gradients of several uses add up to its own."""
        return sum(edge.contribution is not None for edge in self.uses) > 1

    @property
    def agreement(self) -> float | None:
        """‖Σg‖ / Σ‖g‖ where gradients add: 1 if all point one way, near 0 if they cancel."""
        total = sum(edge.norm for edge in self.uses)
        return self.norm / total if self.is_sum and total else None

    @property
    def ok(self) -> bool | None:
        """Whether all of its checks agree; None if none was measured."""
        return Checks([*self.checks]).ok


@dataclass(slots=True, eq=False)
class Edge:
    """One use of an entry by an op; `x * x` has two.

    Attributes:
        input: the op's name for it.
        contribution: the gradient that this use sent back.  facts: of it.
        gain: the rms that was sent over the rms that came.
        on_way: whether it is on the way of the loss.
        equation, where: of what it sends back, with symbols in its slots.
        says: what the rule does.
    """

    source: int
    target: int
    input: str
    contribution: Array | None = None
    facts: Facts | None = None
    gain: float | None = None
    on_way: bool = False
    equation: str = ""
    where: Sequence[str] = ()
    says: str = ""

    @property
    def norm(self) -> float:
        """Of what was sent; 0 if nothing was."""
        if self.contribution is None or self.facts is None:
            return 0.0
        return self.facts.rms * sqrt(self.contribution.size)


@dataclass(frozen=True)
class Check(Comparison):
    """One figure of the run beside what it must be: see `Comparison`.

    Attributes:
        kind: "by hand", a gradient of a layer beside a step derived by hand; or "by derivative",
            the rules of an op beside a numeric derivative of its kernel.
        entry: whose gradient it is, or whose op's rules.
        symbol: of the step; or the input whose rule differs most.
        scope: the path of the layer's call, or of the op.
        call, number, title: of the layer's call and of the step.
        forward, formula: LaTeX of the step's equation and of the gradient.
        shape, rms: of what the formula gives.
    """

    kind: str = ""
    entry: int | None = None
    symbol: str = ""
    scope: str = ""
    call: int = 0
    number: int = 0
    title: str = ""
    forward: str = ""
    formula: str = ""
    shape: tuple[int, ...] = ()
    rms: float | None = None


@dataclass(repr=False)
class Checks:
    """What a run computed beside what it must be, and what was left out.

    Attributes:
        results: see `Check`.  steps: how many backward steps ran.
        skipped: layers with derived steps that no backward ran through.
        uncovered: calls that no derived steps cover, in words.
        first_broken: which op made the first NaN or infinity, in words; or nothing.
    """

    results: list[Check] = field(default_factory=list)
    steps: int = 0
    skipped: list[str] = field(default_factory=list)
    uncovered: list[str] = field(default_factory=list)
    first_broken: str = ""

    def of(self, kind: str) -> list[Check]:
        return [check for check in self.results if check.kind == kind]

    @property
    def measured(self) -> list[Check]:
        return [check for check in self.results if check.ok is not None]

    @property
    def wrong(self) -> list[Check]:
        return [check for check in self.results if check.ok is False]

    @property
    def ok(self) -> bool | None:
        """Whether all that was measured agrees; None if nothing was."""
        return not self.wrong if self.measured else None

    def __bool__(self) -> bool:
        return bool(self.ok)

    def __len__(self) -> int:
        return len(self.results)


class Way(NamedTuple):
    """The way from the loss along which the gradient shrinks, or grows, most.

    edges: from the loss to where it ends.
    first, last: the entries whose rms is compared: the first that is no scalar, and the last, but
        for a parameter of another shape, since its gradient adds up examples.
    whole: the rms at the last over that at the first.
    op: which shrinks or grows it most, all of its steps together; "sums" where gradients add.
    times: how many of its steps are on the way.
    """

    edges: tuple[Edge, ...]
    first: Entry
    last: Entry
    whole: float
    op: str
    times: int


class ThroughTime(NamedTuple):
    """The size of a gradient at the first step in time and at the last, which is next to the loss.

    path: of what has it.  first, last: rms.  steps: how many there are.
    """

    path: str
    first: float
    last: float
    steps: int

    @property
    def change(self) -> float:
        """How many times larger that of the first step is."""
        return self.first / (self.last or inf)


class Expectation(NamedTuple):
    """What a layer said of its call: which derived steps it must equal, and what is what in them.

    steps: a function, or which calls no steps cover.  symbols: to entries.
    values: by symbol.  calls: of the layer, and of what is around it.
    """

    steps: Callable[..., Any] | str
    symbols: dict[str, Entry]
    values: dict[str, Any]
    calls: tuple[int, ...]


class Record:
    """A forward pass and the last backward. It can be copied and pickled.

    Attributes:
        forward: ops in the order they ran.  backward: in the order their rules ran, the last time.
        roots: where the last backward began.  backwards: how many ran.
        more_in_grad: leaves whose `.grad` holds more than the last backward brought.
        written: what buffers were overwritten with.
        aside: what was computed for these alone, and is no step.
        loss: the scalar that alone was differentiated last, whatever its name; its symbol is L.
        scopes: see `RunCalls`.  paths: of each call, by the numbers in `Entry.calls`, with the
            marks that tell calls apart.
        notes: sentences that each view says.
        in_time: what changes through time, the largest change first.
        asked: the query through which nearly all of the loss's gradient passes.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.edges: list[Edge] = []
        self.forward: list[int] = []
        self.backward: list[int] = []
        self.roots: list[int] = []
        self.backwards = 0
        self.more_in_grad: list[int] = []
        self.earlier: set[int] = set()  # entries that only earlier backwards reached
        self.expectations: list[Expectation] = []

        self.written: set[int] = set()
        self.aside: set[int] = set()
        self.scopes: Scopes = {}
        self.paths: dict[tuple[int, ...], str] = {}
        self.classes: dict[str, str] = {}  # of a module's calls, by their path

        self.loss: int | None = None
        self.notes: list[str] = []
        self.way: Way | None = None
        self.in_time: list[ThroughTime] = []
        self.checks = Checks()
        self.asked: int | None = None

        self.fold: object = None  # see `folded`
        self._finished: tuple[int, int, int] | None = None  # how much of it there was then

    # ------------------------------------------------------------------ entries and edges

    @property
    def ops(self) -> list[Entry]:
        """The results of ops that are steps, in order."""
        return [self.entries[i] for i in self.forward]

    def __getitem__(self, key: int | str) -> Entry:
        """An entry by its number, or the last one of a name, a path or the end of a path.

        Raises: KeyError, with the names there are.
        """
        if isinstance(key, int):
            return self.entries[key]
        for entry in reversed(self.entries):
            if key == entry.name or ends_with(entry.path, key):
                return entry
        paths = dict.fromkeys(entry.path for entry in self.entries if entry.name)
        raise KeyError(f"no entry named {key!r}; names: {', '.join(paths)}")

    def __getstate__(self) -> dict[str, Any]:
        """What is copied or pickled: places as text."""
        for entry in self.entries:
            entry.made_at = entry.place
        return vars(self)

    def add_op(self, entry: Entry, sources: dict[str, Entry]) -> None:
        """Add a step, and what it takes: entries by the name of the input."""
        self.forward.append(entry.id)
        for name, source in sources.items():
            edge = Edge(source.id, entry.id, name)
            self.edges.append(edge)
            entry.takes.append(edge)
            source.uses.append(edge)

    def part(self, edge: Edge) -> str:
        """LaTeX of what a use sends back: its source's gradient, or the part of it by this use."""
        source, target = self.entries[edge.source], self.entries[edge.target]
        if not source.is_sum:
            return source.slope
        several = sum(use.target == edge.target for use in source.uses) > 1
        by = rf",\,\mathrm{{{edge.input}}}" if several else ""  # of x * x, as a and as b
        return rf"\left.{source.slope}\right|_{{{target.symbol}{by}}}"

    @property
    def gradient_sizes(self) -> list[float]:
        """The rms of each gradient that is not zero in theory: the ends of a scale of colours."""
        return [e.gradient_rms or 0.0 for e in self.entries if e.state != "zero in theory"]


def ends_with(path: str, end: str) -> bool:
    """Whether a path is, or ends with, another; `pool` stands for each of its calls.

    >>> ends = "x", "pool/x", "pool ·2/x", "pool ·1/x", "l/x"
    >>> [ends_with("net/pool ·2/x", end) for end in ends]
    [True, True, True, False, False]
    """
    parts, wanted = path.split("/"), end.split("/")
    each = zip(reversed(wanted), reversed(parts), strict=False)
    return len(wanted) <= len(parts) and all(name in (part, unmarked(part)) for name, part in each)


def unmarked(path: str) -> str:
    """A path without the marks of calls."""
    return re.sub(r" ·\d+(?=/|$)", "", path)


def show(value: Any) -> str:
    """A setting as text: arrays by their shape, a generator as rng, other objects by a name."""
    if isinstance(value, np.ndarray):
        return f"array {value.shape}"
    if isinstance(value, np.random.Generator):
        return "rng"
    if isinstance(value, tuple | list):
        inside = ", ".join(map(show, value))
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, np.generic):
        return repr(value.item())
    if hasattr(value, "__name__"):
        return str(value.__name__)
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text

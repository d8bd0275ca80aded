"""A folded picture, unfolded from what it says, is the run's own graph, edge by edge."""

import itertools
import re
from collections import Counter

import numpy as np
import pytest

import minigrad as mg
from layers import LSTM, Linear, Sequential
from minigrad.views.dot import trace_dot
from minigrad.views.model import AnnotatedTrace

from .models import KINDS, Fields, Parallel, trained

Copies = tuple[int, ...]  # of each block around a box, from the outermost in: which copy


def clusters(text):
    """The blocks around each box as drawn: their ids, and the N of their ×N."""
    around = []
    found = {}
    for line in text.splitlines():
        if match := re.match(r"\s*subgraph cluster_(\w+)", line):
            around.append((match[1], 1))
        elif match := re.search(r"  ×(\d+)</B>|&#160; ×(\d+)</B>", line):
            if re.match(r"\s*id=", line):
                around[-1] = around[-1][0], int(match[1] or match[2])
        elif line.strip() == "}" and around:
            around.pop()
        if match := re.match(r"\s*(n\d+) \[label=", line):
            found[match[1]] = [(id, n) for id, n in around if n > 1]
    return found


def drawn_lines(text):
    """The lines between boxes: from, to, and what they say."""
    for a, b, rest in re.findall(r"^\s*(n\d+)(?:sum)? -> (n\d+) (?:\[(.*)\])?$", text, re.M):
        yield a, b, re.sub(r"<[^>]*>", " ", rest)


def unfolded(text):
    """The edges that a picture says there are, each end a box and its copy."""
    around = clusters(text)
    edges = Counter()
    for source, target, said in drawn_lines(text):
        mine, theirs = around[source], around[target]
        found = [*meanings(mine, theirs, said)]
        assert len(found) == 1, (source, target, said, found)
        edges.update(((source, a), (target, b)) for a, b in found[0])
    return edges


def meanings(mine, theirs, said):
    """What a line may mean, by the number of edges that it says it stands for.

    Where it says nothing it leads from a box to one of the same copies, out of a block from its
    last copy, into a block to its first. "to the next": copy. "from each", "to each": of all.
    """
    count = re.search(r"(\d+) times", said)
    common = 0
    while mine[common : common + 1] == theirs[common : common + 1] != []:
        common += 1
    where = range(common) if "to the next" in said else [None]
    for at in where:
        same = common if at is None else at
        out = mine[same + (at is not None) :]
        into = theirs[same + (at is not None) :]
        for modes in itertools.product([False, True], repeat=len(out) + len(into)):
            leaves, enters = modes[: len(out)], modes[len(out) :]
            edges = [*pairs(mine, theirs, same, at is not None, leaves, enters)]
            words = (
                ("from each" in said) == any(leaves),
                ("to each" in said or "own" in said) == any(enters),
            )
            if all(words) and (count is None or len(edges) == int(count[1])):
                yield edges


def pairs(mine, theirs, same, step, leaves, enters):
    shared = [range(n) for _, n in mine[:same]]
    begin = same + step
    moves = [range(mine[same][1] - 1)] if step else []
    out = [range(n) if each else [n - 1] for (_, n), each in zip(mine[begin:], leaves, strict=True)]
    into = [range(n) if each else [0] for (_, n), each in zip(theirs[begin:], enters, strict=True)]
    both = (
        [k for k, each in enumerate(leaves) if each],
        [k for k, each in enumerate(enters) if each],
    )
    for here in itertools.product(*shared, *moves, *out, *into):
        left, right = here[begin : begin + len(out)], here[begin + len(out) :]
        if any(left[a] != right[b] for a, b in zip(*both, strict=False)):
            continue  # each to the one of the same number
        before, after = here[:begin], here[:same] + tuple(k + 1 for k in here[same:begin])
        yield (*before, *left), (*after, *right)


def real(trace, model):
    def box(entry):
        return f"n{model.fold.leader(entry)}", tuple(model.fold.numbers(entry).values())

    return Counter((box(edge.source), box(edge.target)) for edge in trace.edges)


@pytest.mark.parametrize("seed", range(5 * len(KINDS)))
def test_unfolding_a_picture_gives_the_edges_of_the_run(seed):
    t = trained(seed)
    model = AnnotatedTrace(t)
    boxes = [(model.fold.leader(e.id), *model.fold.numbers(e.id).items()) for e in t.entries]
    assert len(set(boxes)) == len(t), "two entries are drawn as one"
    assert unfolded(trace_dot(t, saved=False, style="full").text) == real(t, model)


def leaf(*shape, name=None):
    data = np.random.default_rng(17).normal(size=shape) / 2
    return mg.tensor(data, requires_grad=True, name=name)


def run(model):
    x = leaf(7, 5, name="x")
    with mg.trace() as t:
        mg.mean(model(x)).backward()
    return t


def scopes_of_different_ops(x):
    for i, f in enumerate((mg.tanh, mg.exp, mg.tanh)):
        with mg.scope(f"block{i}"):
            x = f(x)
    return x


def each_shorter(x):
    while len(x) > 3:
        x = mg.tanh(x[1:])
    return x


def calls_that_share_nothing(count):
    xs = [leaf(3) for _ in range(count)]
    return lambda _: mg.stack([mg.tanh(x) for x in xs])


def some_frozen(h):
    for i in range(4):
        with mg.scope(f"block{i}"):
            h = h * mg.tensor([0.5, 1.0, 2.0, 3.0, 5.0], requires_grad=i < 2, name="w")
    return h


def one_weight(times):
    W = leaf(5, 5, name="W")

    def model(h):
        for _ in range(times):
            h = mg.tanh(h @ W + mg.tensor(np.ones((7, 5))))
        return h

    return model


def normalized(h):
    for _ in range(5):
        made = mg.exp(h)
        h = made / mg.max(made.detach(), axis=-1, keepdims=True)
    return h


def recurrent(x):
    return LSTM(5, 3, rng=0, method="steps")(mg.reshape(x, (1, 7, 5)))[0]


def activated(x):
    rng = np.random.default_rng(0)
    layers = [layer for _ in range(8) for layer in (Linear(5, 5, rng=rng), mg.sigmoid)]
    return Sequential(*layers)(x)


def two_layers_a_block(x):
    for f in [mg.tanh, mg.sigmoid] * 4:
        x = f(x @ leaf(5, 5))
    return x


def first_alone_has_a_bias(x):
    rng = np.random.default_rng(0)
    weights = [mg.tensor(rng.normal(size=(5, 5)), requires_grad=True) for _ in range(7)]
    b = mg.tensor(np.ones(5), requires_grad=True)
    for i, W in enumerate(weights):
        x = mg.linear(x, W, b if i == 0 else None)
    return x


@pytest.mark.parametrize(
    ("model", "times"),
    [
        (Fields(np.random.default_rng(0), [5, 32, 32, 1]), {}),  # of different shapes
        (Parallel(np.random.default_rng(0)), {}),  # beside one another
        (scopes_of_different_ops, {}),
        (each_shorter, {}),
        (calls_that_share_nothing(2), {}),
        (calls_that_share_nothing(20), {}),
        (some_frozen, {"block0": 4}),
        (one_weight(5), {"step[0]": 5}),  # steps, not layers, as they share it
        (one_weight(2), {}),  # two times are no loop
        (lambda x: x * x.detach(), {}),  # a leaf beside a constant copy of it
        (normalized, {"step[0]": 5}),  # each by what it made itself, detached
        (recurrent, {"lstm/cells.0/step 0": 7}),  # though each step takes another index
        (activated, {"sequential/layers.0": 8}),
        (two_layers_a_block, {"layer[0]": 4}),
        (first_alone_has_a_bias, {"layer[0]": 6}),
    ],
)
def test_what_follows_one_another_and_is_alike_is_folded(model, times):
    assert AnnotatedTrace(run(model)).fold.times == times


def test_layers_that_are_no_attributes_have_a_box_each_and_a_shared_one_has_one(tmp_path):
    first, shared, frozen = Linear(5, 3, rng=0), Linear(3, 3, rng=1), Linear(3, 2, rng=2)
    for parameter in frozen.parameters():
        parameter.requires_grad = False
    trace = run(lambda x: frozen(mg.tanh(shared(mg.relu(shared(first(x)))))))
    place = AnnotatedTrace(trace).place
    weights = [(e.shape, place[e.id]) for e in trace.entries if e.name == "W"]
    assert weights == [((5, 3), "linear"), ((3, 3), "linear (2)"), ((3, 2), "linear (3)")]
    assert [place[e.id] for e in trace if e.op == "linear"] == [
        "linear",
        "linear (2)",
        "linear (2)",
        "linear (3)",
    ]
    text = trace.derivation(tmp_path / "d.md").read_text("utf-8")
    assert re.findall("^In `(.*)`:$", text, re.M) == [
        "linear",
        "linear (2)",
        "linear (2)",
        "linear (3)",
    ]


def test_a_layer_has_one_number_in_and_out_of_a_fold_and_a_scope_entered_twice_has_none():
    read, cell = Linear(5, 2, rng=0), Linear(5, 5, rng=1)
    W, b = leaf(5, 5, name="W"), leaf(5, name="b")

    def model(x):
        with mg.scope("head"):
            x = x @ W
        total = mg.sum(read(x))
        for _ in range(4):
            x = mg.tanh(cell(x))
        with mg.scope("head"):
            return total + mg.sum(mg.exp(read(x))) + mg.sum(b)

    trace = run(model)
    fold = AnnotatedTrace(trace).fold
    assert fold.times == {"step[0]": 4}
    assert [fold.place[e.id] for e in trace if e.op == "linear"] == [
        "linear",
        *["step[0]/linear (2)"] * 4,
        "head/linear",
    ]
    assert {fold.place[e.id] for e in trace if e.scope == "head"} == {"head"}

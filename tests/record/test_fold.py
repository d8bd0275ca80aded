"""What a fold says, unfolded, is the run's own graph, edge by edge."""

import itertools
from collections import Counter

import numpy as np
import pytest

import minigrad as mg
from layers import Linear, Sequential, TransformerBlock

from .models import KINDS, trained


def unfolded(fold, link):
    """The edges that a line stands for: each end an entry that is drawn, and its copies."""
    ends = link.edges[0].source, link.edges[0].target
    drawn, (mine, theirs) = map(fold.leader, ends), (list(fold.numbers(i)) for i in ends)
    source, target = drawn
    begin = len(link.shared)
    same = begin - bool(link.step)
    times = fold.times
    axes = [range(times[b]) for b in mine[:same]]
    if link.step:
        axes.append([k for k in range(times[mine[same]]) if 0 <= k + link.step < times[mine[same]]])
    axes += [range(times[b]) if b in link.leaves else [times[b] - 1] for b in mine[begin:]]
    axes += [range(times[b]) if b in link.enters else [0] for b in theirs[begin:]]
    left = [k for k, b in enumerate(mine[begin:]) if b in link.leaves]
    right = [k for k, b in enumerate(theirs[begin:]) if b in link.enters]
    for here in itertools.product(*axes):
        out, into = here[begin : begin + len(mine) - begin], here[len(mine) :]
        if all(out[a] == into[b] for a, b in zip(left, right, strict=False)):
            after = here[:same] + tuple(k + link.step for k in here[same:begin])
            yield (source, *here[:begin], *out), (target, *after, *into)


@pytest.mark.parametrize("seed", range(6 * len(KINDS)))
def test_unfolding_gives_the_edges_of_the_run(seed):
    record = trained(seed).record
    fold = record.folded

    def box(i):
        return fold.leader(i), *fold.numbers(i).values()

    assert len({box(entry.id) for entry in record.entries}) == len(record.entries)
    said = Counter(edge for link in fold.links for edge in unfolded(fold, link))
    assert said == Counter((box(edge.source), box(edge.target)) for edge in record.edges)


def run(model, shape=(7, 5)):
    with mg.trace() as t:
        mg.mean(
            model(mg.tensor(np.random.default_rng(0).normal(size=shape), requires_grad=True))
        ).backward()
    return t.record


def test_blocks_in_a_chain_are_one_with_how_many():
    record = run(Sequential(*[TransformerBlock(6, 2, rng=seed) for seed in range(3)]), (1, 7, 6))
    fold = record.folded
    assert fold.times == {"sequential/layers.0": 3}
    assert fold.name("sequential/layers.0") == "layers.0 … layers.2"
    A = [entry.id for entry in record.entries if entry.name == "A"]
    assert fold.twins(A[1]) == A
    assert fold.path_of(A[2]) == "sequential/layers.2/attention"
    assert record.unfolded.times == {}


def blocks_of_other_shapes(x):
    return Sequential(
        *[Sequential(Linear(5, n, rng=0), mg.tanh, Linear(n, 5, rng=0)) for n in (2, 3, 4)]
    )(x)


def beside_one_another(x):
    made = [Sequential(Linear(5, 3, rng=k), Linear(3, 2, rng=k)) for k in range(4)]
    return mg.concatenate([one(x) for one in made], axis=-1)


@pytest.mark.parametrize(
    "model",
    [
        lambda x: Sequential(*[f for k in range(6) for f in (Linear(5, 5, rng=k), mg.tanh)])(
            x
        ),  # a plain MLP
        blocks_of_other_shapes,
        beside_one_another,
        lambda x: sum((mg.tanh(x * float(k)) for k in range(5)), x),  # a loop without modules
    ],
)
def test_what_is_no_chain_of_alike_modules_is_drawn_in_full(model):
    assert run(model).folded.times == {}

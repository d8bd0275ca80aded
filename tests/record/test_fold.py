"""What a fold says, unfolded, is the run's own graph, edge by edge."""

import itertools
from collections import Counter

import pytest

import minigrad as mg
from layers import Linear, Sequential, TransformerBlock
from minigrad.record.fold import folded, make_fold

from .models import DRAWN, leaf, traced, trained


def unfolded(fold, link):
    """The edges that a line stands for, by what it says of its two ends."""
    ends = link.edges[0].source, link.edges[0].target
    sources, targets = map(fold.twins, ends)
    if link.inside:
        there = dict(enumerate(targets))
        return [(x, there[k + link.step]) for k, x in enumerate(sources) if k + link.step in there]
    if link.leaves and link.enters:
        return zip(sources, targets, strict=True)
    sources = sources if link.leaves else sources[-1:]
    return itertools.product(sources, targets if link.enters else targets[:1])


@pytest.mark.parametrize("seed", range(6 * len(DRAWN)))
def test_unfolding_gives_the_edges_of_the_run(seed):
    record = trained(seed)
    fold = folded(record)
    twins = [
        i for lead in {*map(fold.leader, range(len(record.entries)))} for i in fold.twins(lead)
    ]
    assert sorted(twins) == [*range(len(record.entries))]
    edges = Counter(edge for link in fold.links for edge in unfolded(fold, link))
    assert edges == Counter((edge.source, edge.target) for edge in record.edges)


def run(model, *shape):
    return traced(lambda: mg.mean(model(leaf(*shape or (7, 5)))))


def test_blocks_in_a_chain_are_one_with_how_many():
    record = run(Sequential(*[TransformerBlock(6, 2, rng=seed) for seed in range(3)]), 1, 7, 6)
    fold = folded(record)
    assert [*fold.copies] == ["sequential/layers.0"]
    assert fold.name("sequential/layers.0") == "layers.0 … layers.2"
    A = [entry.id for entry in record.entries if entry.name == "A"]
    assert fold.twins(A[1]) == A
    assert make_fold(record, chains=False).copies == {}


def blocks_of_other_shapes(x):
    return Sequential(
        *[Sequential(Linear(5, n, rng=0), mg.tanh, Linear(n, 5, rng=0)) for n in (2, 3, 4)]
    )(x)


def blocks_of_other_settings(x):
    slopes = [lambda x, k=k: mg.leaky_relu(x, 0.1 * k) for k in range(3)]
    return Sequential(*[Sequential(Linear(5, 5, rng=0), f) for f in slopes])(x)


def beside_one_another(x):
    branches = [Sequential(Linear(5, 3, rng=k), Linear(3, 2, rng=k)) for k in range(4)]
    return mg.concatenate([branch(x) for branch in branches], axis=-1)


@pytest.mark.parametrize(
    "model",
    [
        lambda x: Sequential(*[f for k in range(6) for f in (Linear(5, 5, rng=k), mg.tanh)])(
            x
        ),  # a plain MLP
        blocks_of_other_shapes,
        blocks_of_other_settings,
        beside_one_another,
        lambda x: sum((mg.tanh(x * float(k)) for k in range(5)), x),  # a loop without modules
    ],
)
def test_what_is_no_chain_of_alike_modules_is_drawn_in_full(model):
    assert folded(run(model)).copies == {}

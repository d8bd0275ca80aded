"""Ranks seen side by side: one record of all, its picture, and the command that draws it."""

import pickle

import numpy as np
import pytest

import minigrad as mg
from layers import MultiHeadAttention
from layers.parallel import shard
from minigrad import distributed as dist


@pytest.fixture(scope="module")
def record():
    """Of attention by heads on two ranks, forward and backward."""
    layer = MultiHeadAttention(8, 4, rng=0, is_causal=True)

    def step():
        part, x = shard(layer), mg.tensor(np.eye(5, 8)[None], requires_grad=True, name="X")
        with mg.trace() as t:
            mg.sum(part(x) ** 2).named("loss").backward()
        return t.of_all_ranks()

    return dist.run(2, step)[1]


def test_a_record_of_all_ranks_holds_each_in_its_scope_and_checks_both(record):
    scopes = {entry.scope.partition("/")[0] for entry in record if entry.op}
    assert scopes == {"rank 0", "rank 1"}
    checks = record.check()
    assert checks.ok
    assert {check.scope for check in checks} == {f"rank {r}/parallel/part" for r in (0, 1)}


def test_collectives_join_the_ranks_with_their_bytes(record, tmp_path):
    """5 · 8 numbers of 8 bytes: on a ring of two, each rank sends half of them twice."""
    across = [e for e in record.edges if e.crosses]
    assert [(record[e.target].op, e.crosses) for e in across] == [
        ("copy_to_ranks", "320 bytes back"),
        ("copy_to_ranks", "320 bytes back"),
        ("all_reduce", "320 bytes"),
        ("all_reduce", "320 bytes"),
    ]
    drawn = record.draw(tmp_path / "g.dot").read_text()
    assert drawn.count("320 bytes") >= 4
    assert all(f"rank {r}" in drawn for r in (0, 1))


def test_the_derivation_says_which_sum_crosses_ranks(record, tmp_path):
    text = record.derivation(tmp_path / "d.md").read_text()
    assert r"\sum_{r}" in text
    assert r"\frac{\partial L}{\partial X^{(0)}} = \sum_{r}" in text


def test_an_array_of_a_rank_that_was_written_to_before_backward_is_blamed_and_not_the_rule():
    def step():
        w, x = mg.tensor(np.ones(2), requires_grad=True, name="w"), np.array([5.0, 7.0])
        with mg.trace() as t:
            y = mg.sum(w * x)
            x[0] = 0.0
            y.backward()
        return t.of_all_ranks().check(ops=True)

    for checks in dist.run(2, step):
        wrong = [step for step in checks.steps if not step.ok]
        assert [step.fault for step in wrong] == ["took b, which was written to after"] * 2


def test_records_that_were_sent_as_over_mpi_make_the_same_record():
    class Sending:
        def __init__(self, ranks):
            self.ranks = ranks

        def collect(self, value):
            return [pickle.loads(sent) for sent in self.ranks.collect(pickle.dumps(value))]

    def step():
        w = mg.tensor(np.ones(3), requires_grad=True, name="w")
        with mg.trace() as t:
            mg.sum(dist.all_reduce(w * 2.0) ** 2).backward()
        made = t.of_all_ranks(), t.of_all_ranks(Sending(dist.world()))
        found = [(record.to_dict(), str(record.check(ops=True))) for record in made]
        assert not any(entry.checks for entry in t.entries)  # they are noted in that record alone
        return found

    here, sent = dist.run(2, step)[0]
    assert here == sent

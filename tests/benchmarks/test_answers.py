"""All forms of a step give the same numbers, and a wrong number is not let through."""

import numpy as np
import pytest

from benchmarks.answers import WrongAnswer, answer, check, reference
from benchmarks.cases import Attention
from benchmarks.contestants import everyone
from benchmarks.peers import Unsupported

SMALL = [
    Attention("single", "", 2, 5, 7, 3),
    Attention("alone", "", 1, 67, 5, 3),
    Attention("multi", "", 2, 5, 12, 12, 3),
]
PEERS = everyone()
NAMES = [*PEERS]


@pytest.mark.parametrize("name", NAMES)
def test_every_peer_answers_every_case_it_has_as_the_reference_does(name):
    if name.startswith("torch"):
        pytest.importorskip("torch")
    peer = PEERS[name]
    assert peer.load()
    for case in SMALL:
        try:
            step = peer.step(case, case.inputs("float64"))
        except Unsupported:
            continue
        assert check(answer(step, peer), reference(case, "float64"), "float64") < 1e-13


def test_a_step_taken_again_gives_the_same_answer():
    """Buffers that are used again hold nothing of the step before."""
    for case in SMALL:
        step = PEERS["hand-best"].step(case, case.inputs("float64"))
        first = answer(step, PEERS["hand-best"])
        assert check(answer(step, PEERS["hand-best"]), first, "float64") == 0


@pytest.fixture
def right():
    return reference(SMALL[0], "float32")


def test_rounding_is_let_through(right):
    near = {name: array * (1 + 1e-6) for name, array in right.items()}
    assert 0 < check(near, right, "float32") < 1e-5


def _off(name):
    """One entry of an array is wrong by a thousandth of the largest."""

    def change(answer):
        array = answer[name].copy()
        array.flat[1] += 0.001 * np.abs(array).max()
        return answer | {name: array}

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        *((_off(name), f"{name} is off by 1.0e-03") for name in ("out", "d_X", "d_W_Q", "d_b_O")),
        (lambda a: a | {"d_W_O": np.full_like(a["d_W_O"], np.nan)}, "d_W_O is off by nan"),
        (lambda a: a | {"d_W_Q": a["d_W_Q"].T}, r"d_W_Q has shape \(3, 7\), not \(7, 3\)"),
        (lambda a: a | {"d_z": 0}, r"without \[\], with \['d_z'\]"),
        (lambda a: {k: a[k] for k in a if k != "d_b_O"}, r"without \['d_b_O'\], with \[\]"),
    ],
)
def test_a_wrong_answer_is_named(right, change, said):
    with pytest.raises(WrongAnswer, match=f"wrong answer: {said}"):
        check(change(right), right, "float32")

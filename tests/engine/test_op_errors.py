"""What a failed call says: the call, the rule it broke, shapes and paths."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import DTypeError, OutOfRangeError, ShapeError
from tests.compare import refusals


def test_a_failed_call_names_the_call_the_rule_the_shapes_and_the_paths():
    x = mg.tensor(np.ones((2, 7, 11)), requires_grad=True)
    with mg.scope("attn"):
        q = (x * 1).named("q_proj")
    with pytest.raises(ShapeError) as error:
        mg.matmul(q, np.ones((2, 13, 5), np.float32))
    assert str(error.value).splitlines() == [
        "matmul(a, b): a's last axis must equal b's second-to-last, got 11 != 13",
        "  a: (2, 7, 11) float64   attn/q_proj",
        "  b: (2, 13, 5) float32",
    ]


@pytest.mark.parametrize(
    ("f", "kind", "text"),
    [
        (
            lambda x: mg.sum(x, axis=2),
            ShapeError,
            r"sum\(x, axis, keepdims\): axis 2 is out of bounds",
        ),
        (
            lambda x: x[7],
            OutOfRangeError,
            r"getitem\(x, index\): index 7 is out of bounds for axis 0 with size 3",
        ),
        (
            lambda x: mg.reshape(x, (2, 7)),
            ShapeError,
            r"reshape\(x, shape\): cannot reshape array of size 15",
        ),
        (
            lambda x: mg.exp(x, 3),
            DTypeError,
            r"<op exp\(x\)>: exp takes 1 positional argument but 2 were given",
        ),
        (
            lambda x: mg.exp(),
            DTypeError,
            r"<op exp\(x\)>: exp missing 1 required positional argument: 'x'",
        ),
        (
            lambda x: mg.sum(x, axes=0),
            DTypeError,
            r"<op sum\(x, axis, keepdims\)>: sum got an unexpected keyword",
        ),
        (
            lambda x: mg.concatenate([x, x[0]]),
            ShapeError,
            r"concatenate\(arrays, axis\): .*\n  arrays\[0\]: \(3, 5\)",
        ),
        (lambda x: mg.add(x, "a"), DTypeError, r"add\(a, b\): "),
    ],
)
def test_every_numpy_error_becomes_ours_with_its_text(f, kind, text):
    with pytest.raises(kind, match=text) as error:
        f(mg.tensor(np.ones((3, 5)), requires_grad=True))
    assert isinstance(error.value, mg.errors.MinigradError)


@pytest.mark.parametrize("x", [np.ones(2), mg.tensor([1.0, 1.0], requires_grad=True)])
def test_lists_that_make_no_array_are_refused_by_the_call_they_went_to(x):
    with pytest.raises(DTypeError, match=r"^add\(a, b\): not an array of numbers: .*inhomogeneous"):
        mg.add(x, [[1.0, 2.0], [3.0]])


def test_no_gradient_flows_into_a_setting():
    p = mg.tensor(0.5, requires_grad=True)
    with pytest.raises(
        mg.errors.GradientError, match=r"clip: no gradient flows into low; pass low.detach\(\)"
    ):
        mg.clip(mg.tensor([1.0]), p)
    assert mg.clip(mg.tensor([0.0]), p.detach()).item() == 0.5


test_what_is_refused = refusals(
    (lambda: mg.add(np.ones(2), np.ones(3)),
     ShapeError, r"add\(a, b\): shapes must broadcast, but axis -1 has 2 and 3"),
)  # fmt: skip

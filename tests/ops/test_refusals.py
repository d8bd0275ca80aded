"""A call that cannot be made says so: our errors, with the call, the rule and the numbers."""

import re

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import (
    ArgumentError,
    DTypeError,
    GradientError,
    MinigradError,
    OutOfRangeError,
    ShapeError,
)
from tests.compare import give_wrong_values

X = mg.tensor(np.ones((2, 3, 5)))
GROWN = mg.tensor(0.5, requires_grad=True)
RNG = np.random.default_rng(0)
BROADCAST = "shapes must broadcast, but axis -1 has "
EVEN = "a's last axis must equal b's "
AXIS_3 = "axis 3 is out of bounds"
OF_TWO = (mg.add, mg.subtract, mg.multiply, mg.divide, mg.power, mg.maximum, mg.minimum)
ALONG = (mg.sum, mg.mean, mg.var, mg.max, mg.min, mg.logsumexp, mg.softmax, mg.cumsum)


def ones(*shape, dtype=float):
    return np.ones(shape, dtype)


# By the error: calls, and what it says of them.
REFUSED = {
    ShapeError: [
        *((lambda op=op: op(ones(2, 3), ones(5, 1, 2)),
           f"{op.name}(a, b): {BROADCAST}3 and 2\n  a: (2, 3)") for op in OF_TWO),
        (lambda: mg.mask_add(ones(2, 5, 5), ones(5, 3, dtype=bool)), BROADCAST + "5 and 3"),
        *((lambda op=op: op(X, axis=3), AXIS_3) for op in ALONG),
        *((lambda op=op: op(ones(0, 3), axis=0), "zero-size array") for op in (mg.max, mg.min)),
        (lambda: X.reshape(7, 2), "shape (7,2)\n  x: (2, 3, 5)"),
        (lambda: mg.transpose(X, (0, 1)), "axes don't match array"),
        (lambda: mg.transpose(X, (0, 0, 1)), "repeated axis"),
        (lambda: mg.swapaxes(X, 0, 3), "axis2: " + AXIS_3),
        (lambda: mg.expand_dims(X, 5), "axis 5 is out of bounds"),
        (lambda: mg.broadcast_to(X, (3, 5)), "more dimensions"),
        (lambda: mg.concatenate([X, X[0]]), "arrays[0]: (2, 3, 5)"),
        (lambda: mg.concatenate([]), "at least one array"),
        (lambda: mg.stack([X, X[:, :1]]), "have the same shape"),
        (lambda: mg.pad(X, -1), "negative"),
        (lambda: mg.pad(X, (1, 2, 3)), "pad(x, pad_width, constant_values)"),
        (lambda: mg.take(X, [0], axis=3), AXIS_3),
        (lambda: mg.split(X, 1, 3), AXIS_3),
        (lambda: mg.split(ones(), 1, 3), AXIS_3),
        (lambda: mg.moveaxis(X, 3, 0), AXIS_3),
        *((lambda f=f: f(X, 3), f"{f.__name__}(x, axis") for f in (mg.argmax, mg.argmin)),
        (lambda: mg.ones(-1), "negative dimensions"),
        *((lambda q=q, k=k: mg.scaled_dot_product_attention(q, k, X), "at least two axes, got ")
          for q, k in ((X[0, 0], X), (X, X[0, 0]))),
        *((lambda a=a: ones(*a) @ mg.tensor(ones(*a)).T, "write a @ b.mT")
          for a in [(2, 4, 6), (2, 4, 4), (2, 3, 5, 7)]),
        *((lambda a=a, b=b: mg.matmul(ones(*a), ones(*b)),
           f"{text}\n  a: {a} float64\n  b: {b} float64")
          for a, b, text in [
              ((2, 7, 11), (2, 13, 5), EVEN + "second-to-last, got 11 != 13"),
              ((3, 5), (7,), EVEN + "only axis, got 5 != 7"),
              ((5,), (7, 5), EVEN + "second-to-last, got 5 != 7"),
              ((2, 3, 5), (7, 5, 3), "batch axes must broadcast, but axis -3 has 2 and 7"),
              ((), (5, 7), "both need at least one axis"),
              ((5, 7), (), "both need at least one axis"),
          ]),
        (lambda: X @ 3.0, "both need at least one axis"),
        *((lambda s=s: mg.linear(*(mg.tensor(ones(*n)) for n in s)), text)
          for s, text in [
              (((3, 5), (4, 7), (7,)), "x's last axis must equal W's first, got 5 != 4"),
              (((3, 5), (5, 7), (1,)), "b must have W's last axis, got (1,) and (5, 7)"),
              (((3, 5), (2, 5, 7), (7,)), "W must have two axes, got 3"),
              (((), (5, 7), (7,)), "x's last axis must equal W's first"),
          ]),
        *((lambda x=x, shared=shared: mg.linear(x, ones(5, 7), shared=shared),
           "x's last axis must equal W's first, got none != 5")
          for x in (2.0, True, None) for shared in (False, True)),
        (lambda: mg.einsum("ij,jk->ik", ones(2, 3), ones(5, 7)), "operands[0]: (2, 3) float64"),
        (lambda: mg.einsum("ij->i", X), "einsum(subscripts, operands)"),
        (lambda: mg.einsum("ij...->i", ones(2)), "einsum(subscripts, operands)"),
        (lambda: mg.einsum("ij->k", ones(2, 3)), "einsum(subscripts, operands)"),
        (lambda: mg.layer_norm(X, ones(3), None),
         "weight must have the shape of x's last axis, (5,), got (3,)"),
        (lambda: mg.layer_norm(X, None, ones(3, 5)),
         "bias must have the shape of x's last axis, (5,), got (3, 5)"),
        (lambda: mg.layer_norm(X, 2.0, None), "last axis, (5,), got ()"),
        (lambda: mg.rms_norm(X, ones(1, 5)), "weight"),
        (lambda: mg.layer_norm(X[0, 0, 0], None, None), "x needs at least one axis"),
        (lambda: mg.rms_norm(3.0, None), "at least one axis"),
        *((lambda s=s, t=t: mg.cross_entropy(ones(*s), t), text) for s, t, text in [
            ((3, 5), [0, 1], "targets (2,) must have logits' shape without its last axis, (3,)"),
            ((3, 5), np.eye(3, 5, dtype=int), "targets (3, 5) must have"),
            ((), 0, "logits need a last axis, one entry a class, got shape ()"),
            ((0, 5), np.zeros(0, int), "a mean over no rows; at least one must count"),
        ]),
        (lambda: mg.mse_loss(ones(3), ones(3, 1)), "one shape, got (3,)"),
        (lambda: mg.mse_loss(ones(0), ones(0)), "a mean over nothing"),
        (lambda: mg.conv1d(ones(4, 8, 30, 30), ones(8, 8, 3, 3)), "x must be (N, C, length)"),
    ],
    DTypeError: [
        (lambda: mg.tensor(X, dtype=2.5), "Cannot interpret '2.5' as a data type"),
        (lambda: mg.rnn(ones(1, 2, 1), ones(1, 1), ones(1, 1), None, ones(2, 1), [[True, True]]),
         "mask must be boolean, got list"),
        (lambda: mg.add(X, "a"), "add(a, b)"),
        (lambda: mg.add(ones(2), [[1.0, 2.0], [3.0]]), "inhomogeneous"),
        (lambda: mg.exp(X, 3), "takes 1 positional argument but 2 were given"),
        (lambda: mg.exp(), "missing 1 required positional argument: 'x'"),
        (lambda: mg.sum(X, axes=0),
         "got an unexpected keyword argument 'axes'; the nearest is axis="),
        (lambda: X.astype("floating"), "astype(x, dtype)"),
        *((lambda g=g: mg.dropout(X, 0.5, g), "rng must be a np.random.Generator, got")
          for g in (None, 0, np.random)),
        (lambda: mg.dropout(X, 0.5), "pass rng=np.random.default_rng(seed)"),
        (lambda: mg.pad(X, 1.5), "pad_width must be integers, got float64"),
        (lambda: mg.take(X, [0.5], axis=0), "indices must be integers, got float64"),
        (lambda: mg.take(X, [True], axis=0), "indices must be integers, got bool"),
        (lambda: mg.cross_entropy(ones(1, 5), [0.0]), "targets must be integers, got float64"),
        (lambda: mg.cross_entropy(ones(1, 5), [True]), "targets must be integers, got bool"),
        (lambda: mg.mask_add(ones(3, 3), np.tri(3, dtype=int)), "floats to add, got int64"),
    ],
    ArgumentError: [
        (lambda: mg.batch_norm(X, None, None, ones(3)), "go together"),
        (lambda: mg.batch_norm(X, None, None, var=ones(3)), "go together"),
        (lambda: mg.gelu(X, approximate="erf"),
         "approximate must be \"none\" or \"tanh\", got 'erf'"),
        *((lambda p=p: mg.dropout(X, p, RNG), "p must lie in [0, 1], got")
          for p in (-0.1, 1.1, np.nan)),
        (lambda: mg.var(X[0, 0, :1], ddof=1),
         "n - ddof must be above 0, got n = 1 and ddof = 1"),
        (lambda: mg.pad(X, 1, (1.0, 2.0)), "constant_values must be one number"),
        *((lambda n=n: mg.split(X, n, axis=1), "axis 1 has 3 entries, not a multiple of")
          for n in (0, -1, 4)),
        (lambda: mg.norm(X[0], 2), "ord must be None, or 2 along one axis"),
        (lambda: np.linalg.norm(X[0], 1), "got 1"),
        (lambda: mg.einsum("ij,jk->ik", ones(2, 3)), "'ij,jk->ik' name 2 operands, got 1"),
        (lambda: mg.einsum("i->ii", ones(3)), "'i->ii': the output repeats a label"),
        (lambda: mg.einsum([0, 1], X), "subscripts must be a string, got list"),
        (lambda: mg.scale(X, ones(2)), "factor must be one number, got shape (2,)"),
        *((lambda dtype=dtype: mg.mask_add(ones(2, 3, 3), np.tri(3, dtype=dtype)),
           "0 and 1 hide nothing; use a boolean mask (mask == 1), or 0 and -inf")
          for dtype in (np.float64, np.float32)),
        *((lambda m=m: mg.mask_add(ones(3, 3), np.array([0.0, m, -np.inf])),
           "mask holds NaN or +inf") for m in (np.nan, np.inf)),
        (lambda: mg.scaled_dot_product_attention(X, X, X, method="flash"), "'flash'"),
        (lambda: mg.huber_loss(X, X, delta=0.0), "delta must be above 0"),
    ],
    OutOfRangeError: [
        *((lambda i=i: X[i], "is out of bounds for axis")
          for i in (7, -4, (0, 5), [0, 3], (slice(None), [5]))),
        *((lambda i=i: X[i], "getitem(x, index)")
          for i in ("a", 1.5, np.array([0.5]), (0, 0, 0, 0), np.array([True]))),
        (lambda: mg.take(X, [0, 3], axis=0), "index 3 is out of bounds for axis 0"),
        (lambda: mg.take(X, [2, -1], 1, negative=False),
         "indices must lie in [0, 3), got -1 to 2"),
        (lambda: mg.take_along_axis(X, np.array([[[9]]]), 2), "out of bounds"),
        (lambda: mg.cross_entropy(ones(3, 5), [0, 5, 1]), "targets must lie in [0, 5), got 5"),
        (lambda: mg.cross_entropy(ones(3, 5), [0, -1, 9]), "targets must lie in [0, 5), got -1"),
    ],
    GradientError: [
        (lambda: mg.clip(X, GROWN), "no gradient flows into low; pass low.detach()"),
        (lambda: mg.clip(X, high=GROWN), "no gradient flows into high"),
        (lambda: mg.scale(X, GROWN), "no gradient flows into factor"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [(call, error, text) for error, rows in REFUSED.items() for call, text in rows],
)
def test_an_error_says_the_call_the_rule_and_the_numbers(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
    assert isinstance(caught.value, MinigradError)
    called = re.match(r"\w+", str(caught.value))[0]
    if error is not GradientError and called in mg.registry:
        assert f"<op {str(caught.value).partition(': ')[0]}>" == repr(mg.registry[called])
    assert called in mg.__all__ or called == "getitem"


HUGE = 2**70
CALLS = [
    lambda x: mg.sum(x, axis=HUGE), lambda x: mg.softmax(x, axis=HUGE),
    lambda x: mg.log_softmax(x, axis=-3), lambda x: mg.mean(x, axis="rows"),
    lambda x: mg.var(x, axis=1.5), lambda x: mg.max(x, axis=(0, 0)),
    lambda x: mg.cumsum(x, axis=HUGE), lambda x: mg.take(x, [HUGE], axis=0),
    lambda x: mg.take(x, [0], axis=HUGE), lambda x: mg.take(x, HUGE), lambda x: x[HUGE],
    lambda x: mg.reshape(x, (HUGE, -1)), lambda x: mg.broadcast_to(x, (HUGE, 3, 4)),
    lambda x: mg.expand_dims(x, HUGE), lambda x: mg.squeeze(x, HUGE),
    lambda x: mg.swapaxes(x, 0, HUGE), lambda x: mg.transpose(x, (0, HUGE)),
    lambda x: mg.concatenate([x, x], axis=HUGE), lambda x: mg.stack([x, x], axis=HUGE),
    lambda x: mg.pad(x, HUGE), lambda x: mg.split(x, HUGE), lambda x: mg.split(x, 2.0),
    lambda x: mg.split(x, None), lambda x: mg.split(x, "2"), lambda x: mg.split(x, [1, 2.5]),
    lambda x: mg.split(x, 3, axis="rows"), lambda x: mg.split(x, 3, axis=HUGE),
    lambda x: mg.cross_entropy(x, [HUGE] * 3), lambda x: mg.cross_entropy(x, None),
    lambda x: mg.cross_entropy(x[0, 0], 0), lambda x: mg.cross_entropy(3.0, 0),
    lambda x: mg.clip(x, "a"), lambda x: mg.dropout(x, "a", RNG),
    lambda x: mg.add(np.ones(3, int), HUGE), lambda x: mg.layer_norm(x, "w", None),
    lambda x: mg.layer_norm(x, None, None, eps="small"),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("recorded", [False, True])
def test_no_bare_error_of_python_or_numpy_comes_through(call, recorded):
    with pytest.raises(MinigradError):
        call(mg.tensor(np.ones((3, 4)), requires_grad=recorded))


COMPOSED = {
    mg.ravel: (X,),
    mg.argmax: (X, 1, True),
    mg.argmin: (X, 1, True),

    mg.scaled_dot_product_attention: (X, X, X, np.eye(3) > 0),
    mg.tensor: (X, False, "x", float), mg.ones: (2, 3), mg.zeros: ((2, 3),),
    mg.vjp: (mg.sum, (X,), 1.0), mg.jacobian: (mg.exp, (X[0, 0],)),
}  # fmt: skip
FIRST_SAMPLES = {
    op: next(iter(op.samples(np.random.default_rng(0))), None) for op in mg.registry.values()
}


@pytest.mark.parametrize(
    ("function", "args", "settings"),
    [(op, [*sample.args], sample.kwargs) for op, sample in FIRST_SAMPLES.items()
     if sample is not None and op.name in mg.__all__]
    + [(function, [*args], {}) for function, args in COMPOSED.items()],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_whatever_a_call_is_given_what_it_raises_is_an_error_of_ours(function, args, settings):
    give_wrong_values(function, args, settings)


def test_an_error_of_a_function_that_is_called_for_its_user_stays_as_it_is():
    def fails(x):
        raise ValueError("mine")

    for call in (mg.vjp, mg.jacobian):
        with pytest.raises(ValueError, match="mine") as caught:
            call(fails, [ones(2)])
        assert caught.type is ValueError


def test_lists_are_taken_for_arrays():
    q = [[1.0, 2.0], [3.0, 4.0]]
    for function, rest in [(mg.scaled_dot_product_attention, (q, q))]:
        expected = function(np.array(q), *map(np.asarray, rest))
        np.testing.assert_array_equal(function(q, *rest), expected)
    assert mg.dropout(2.5, 0.0, RNG) == 2.5


def test_a_failed_call_names_shapes_dtypes_and_paths():
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


def test_complex_outputs_get_no_real_gradient():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    for y in (x * 1j, mg.abs(x * (1 + 2j)), mg.exp(x * 1j).sum()):
        with pytest.raises(MinigradError, match="complex"):
            y.backward(np.ones(y.shape))

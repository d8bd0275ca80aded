"""A call that cannot be made says so: our errors, with the call, the rule and the numbers."""

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

X = mg.tensor(np.ones((2, 3, 5)))
GROWN = mg.tensor(0.5, requires_grad=True)
RNG = np.random.default_rng(0)
BROADCAST = "shapes must broadcast, but axis -1 has "
EVEN = "a's last axis must equal b's "


def ones(*shape, dtype=float):
    return np.ones(shape, dtype)


# The call as an error names it, calls that are refused, the error, and what it says of them.
TABLE = [
    *((f"{op.name}(a, b)", [lambda op=op: op(ones(2, 3), ones(5, 1, 2))],
       ShapeError, BROADCAST + "3 and 2\n  a: (2, 3)")
      for op in (mg.add, mg.subtract, mg.multiply, mg.divide, mg.power, mg.maximum, mg.minimum)),
    ("add(a, b)", [lambda: mg.add(X, "a")], DTypeError, ""),
    ("add(a, b)", [lambda: mg.add(ones(2), [[1.0, 2.0], [3.0]])], DTypeError, "inhomogeneous"),
    ("exp(x)", [lambda: mg.exp(X, 3)], DTypeError,
     "takes 1 positional argument but 2 were given"),
    ("exp(x)", [lambda: mg.exp()], DTypeError, "missing 1 required positional argument: 'x'"),
    ("sum(x, axis, keepdims)", [lambda: mg.sum(X, axes=0)], DTypeError,
     "got an unexpected keyword argument 'axes'; the nearest is axis="),
    ("batch_norm(x, weight, bias, mean, var, eps)",
     [lambda: mg.batch_norm(X, None, None, ones(3)),
      lambda: mg.batch_norm(X, None, None, var=ones(3))], ArgumentError, "go together"),
    ("clip", [lambda: mg.clip(X, GROWN)], GradientError,
     "no gradient flows into low; pass low.detach()"),
    ("clip", [lambda: mg.clip(X, high=GROWN)], GradientError, "no gradient flows into high"),
    ("astype(x, dtype)", [lambda: X.astype("floating")], DTypeError, ""),
    ("gelu(x, approximate)", [lambda: mg.gelu(X, approximate="erf")], ArgumentError,
     "approximate must be \"none\" or \"tanh\", got 'erf'"),
    ("dropout(x, p, rng)", [lambda p=p: mg.dropout(X, p, RNG) for p in (-0.1, 1.1, np.nan)],
     ArgumentError, "p must lie in [0, 1], got"),
    ("dropout(x, p, rng)", [lambda g=g: mg.dropout(X, 0.5, g) for g in (None, 0, np.random)],
     DTypeError, "rng must be a np.random.Generator, got"),
    ("dropout(x, p, rng)", [lambda: mg.dropout(X, 0.5)], DTypeError,
     "pass rng=np.random.default_rng(seed)"),
    # ---- reductions, and what goes along an axis
    *((f"{name}(x, axis", [lambda name=name: getattr(mg, name)(X, axis=3)],
       ShapeError, "axis 3 is out of bounds")
      for name in ("sum", "mean", "var", "max", "min", "logsumexp", "softmax", "log_softmax",
                   "cumsum")),
    *((f"{name}(x, axis, keepdims)", [lambda name=name: getattr(mg, name)(ones(0, 3), axis=0)],
       ShapeError, "zero-size array") for name in ("max", "min")),
    ("var(x, axis, ddof, keepdims)", [lambda: mg.var(X[0, 0, :1], ddof=1)], ArgumentError,
     "n - ddof must be above 0, got n = 1 and ddof = 1"),
    # ---- shapes
    ("reshape(x, shape)", [lambda: X.reshape(7, 2)], ShapeError, "shape (7,2)\n  x: (2, 3, 5)"),
    ("transpose(x, axes)", [lambda: mg.transpose(X, (0, 1))], ShapeError, "axes don't match array"),
    ("transpose(x, axes)", [lambda: mg.transpose(X, (0, 0, 1))], ShapeError, "repeated axis"),
    ("swapaxes(x, axis1, axis2)", [lambda: mg.swapaxes(X, 0, 3)], ShapeError,
     "axis2: axis 3 is out of bounds"),
    ("expand_dims(x, axis)", [lambda: mg.expand_dims(X, 5)], ShapeError, "axis 5 is out of bounds"),
    ("squeeze(x, axis)", [lambda: mg.squeeze(X, 0)], ShapeError, "cannot select an axis"),
    ("broadcast_to(x, shape)", [lambda: mg.broadcast_to(X, (3, 5))], ShapeError, "more dimensions"),
    ("concatenate(arrays, axis)", [lambda: mg.concatenate([X, X[0]])], ShapeError,
     "arrays[0]: (2, 3, 5)"),
    ("concatenate(arrays, axis)", [lambda: mg.concatenate([])], ShapeError, "at least one array"),
    ("stack(arrays, axis)", [lambda: mg.stack([X, X[:, :1]])], ShapeError, "have the same shape"),
    ("pad(x, pad_width, constant_values, mode)", [lambda: mg.pad(X, -1)], ShapeError, "negative"),
    ("pad(x, pad_width, constant_values, mode)", [lambda: mg.pad(X, (1, 2, 3))], ShapeError, ""),
    ("pad(x, pad_width, constant_values, mode)", [lambda: mg.pad(X, 1.5)], DTypeError,
     "pad_width must be integers, got float64"),
    ("pad(x, pad_width, constant_values, mode)", [lambda: mg.pad(X, 1, (1.0, 2.0))], ArgumentError,
     "constant_values must be one number"),
    # ---- picking entries
    ("getitem(x, index)", [lambda i=i: X[i] for i in (7, -4, (0, 5), [0, 3], (slice(None), [5]))],
     OutOfRangeError, "is out of bounds for axis"),
    ("getitem(x, index)",
     [lambda i=i: X[i] for i in ("a", 1.5, np.array([0.5]), (0, 0, 0, 0), np.array([True]))],
     OutOfRangeError, ""),
    ("take(x, indices, axis, negative)", [lambda: mg.take(X, [0, 3], axis=0)], OutOfRangeError,
     "index 3 is out of bounds for axis 0"),
    ("take(x, indices, axis, negative)", [lambda: mg.take(X, [0.5], axis=0)], DTypeError,
     "indices must be integers, got float64"),
    ("take(x, indices, axis, negative)", [lambda: mg.take(X, [True], axis=0)], DTypeError,
     "indices must be integers, got bool"),
    ("take(x, indices, axis, negative)", [lambda: mg.take(X, [0], axis=3)], ShapeError,
     "axis 3 is out of bounds"),
    ("take(x, indices, axis, negative)", [lambda: mg.take(X, [2, -1], 1, negative=False)],
     OutOfRangeError, "indices must lie in [0, 3), got -1 to 2"),
    ("split(x, sections)", [lambda n=n: mg.split(X, n, axis=1) for n in (0, -1, 4)], ArgumentError,
     "axis 1 has 3 entries, not a multiple of"),
    ("split(x, sections)", [lambda: mg.split(X, 1, 3), lambda: mg.split(ones(), 1, 3)], ShapeError,
     "axis 3 is out of bounds for shape"),
    # ---- products
    *(("matmul(a, b)", [lambda a=a: ones(*a) @ mg.tensor(ones(*a)).T], ShapeError, "write a @ b.mT")
      for a in [(2, 4, 6), (2, 4, 4), (2, 3, 5, 7)]),
    *(("matmul(a, b)", [lambda a=a, b=b: mg.matmul(ones(*a), ones(*b))], ShapeError,
       f"{text}\n  a: {a} float64\n  b: {b} float64")
      for a, b, text in [
          ((2, 7, 11), (2, 13, 5), EVEN + "second-to-last, got 11 != 13"),
          ((3, 5), (7,), EVEN + "only axis, got 5 != 7"),
          ((5,), (7, 5), EVEN + "second-to-last, got 5 != 7"),
          ((2, 3, 5), (7, 5, 3), "batch axes must broadcast, but axis -3 has 2 and 7"),
          ((), (5, 7), "both need at least one axis"), ((5, 7), (), "both need at least one axis"),
      ]),
    ("matmul(a, b)", [lambda: 3.0 @ X, lambda: X @ 3.0], ShapeError, "both need at least one axis"),
    *(("linear(x, W, b, shared)", [lambda s=s: mg.linear(*(mg.tensor(ones(*n)) for n in s))],
       ShapeError, text)
      for s, text in [
          (((3, 5), (4, 7), (7,)), "x's last axis must equal W's first, got 5 != 4"),
          (((3, 5), (5, 7), (1,)), "b must have W's last axis, got (1,) and (5, 7)"),
          (((3, 5), (2, 5, 7), (7,)), "W must have two axes, got 3"),
          (((), (5, 7), (7,)), "x's last axis must equal W's first"),
      ]),
    ("linear(x, W, b, shared)",
     [lambda x=x, shared=shared: mg.linear(x, ones(5, 7), shared=shared)
      for x in (2.0, True, None) for shared in (False, True)],
     ShapeError, "x's last axis must equal W's first, got none != 5"),
    ("einsum(subscripts, operands)", [lambda: mg.einsum("ij,jk->ik", ones(2, 3))], ArgumentError,
     "'ij,jk->ik' name 2 operands, got 1"),
    ("einsum(subscripts, operands)", [lambda: mg.einsum("i->ii", ones(3))], ArgumentError,
     "'i->ii': the output repeats a label"),
    ("einsum(subscripts, operands)", [lambda: mg.einsum("ij,jk->ik", ones(2, 3), ones(5, 7))],
     ShapeError, "operands[0]: (2, 3) float64"),
    ("einsum(subscripts, operands)",
     [lambda: mg.einsum("ij->i", X), lambda: mg.einsum("ij...->i", ones(2)),
      lambda: mg.einsum("ij->k", ones(2, 3))], ShapeError, ""),
    ("einsum(subscripts, operands)", [lambda: mg.einsum([0, 1], X)], ArgumentError,
     "subscripts must be a string, got list"),
    # ---- norms, losses, attention
    ("layer_norm(x, weight, bias, eps)", [lambda: mg.layer_norm(X, ones(3), None)], ShapeError,
     "weight must have the shape of x's last axis, (5,), got (3,)"),
    ("layer_norm(x, weight, bias, eps)", [lambda: mg.layer_norm(X, None, ones(3, 5))], ShapeError,
     "bias must have the shape of x's last axis, (5,), got (3, 5)"),
    ("rms_norm(x, weight, eps)", [lambda: mg.rms_norm(X, ones(1, 5))], ShapeError, "weight"),
    ("layer_norm(x, weight, bias, eps)", [lambda: mg.layer_norm(X, 2.0, None)], ShapeError,
     "weight must have the shape of x's last axis, (5,), got ()"),
    ("layer_norm(x, weight, bias, eps)", [lambda: mg.layer_norm(X[0, 0, 0], None, None)],
     ShapeError, "x needs at least one axis"),
    ("rms_norm(x, weight, eps)", [lambda: mg.rms_norm(3.0, None)], ShapeError, "at least one axis"),
    *(("cross_entropy(logits, targets)",
       [lambda s=shape, t=targets: mg.cross_entropy(ones(*s), t)], error, text)
      for shape, targets, error, text in [
          ((3, 5), [0, 1], ShapeError,
           "targets (2,) must have logits' shape without its last axis, (3,)"),
          ((3, 5), np.eye(3, 5), ShapeError, "targets (3, 5) must have"),
          ((), 0, ShapeError, "logits need a last axis, one entry a class, got shape ()"),
          ((3, 5), [0.0, 1.0, 2.0], DTypeError, "targets must be integers, got float64"),
          ((3, 5), [True, False, True], DTypeError, "targets must be integers, got bool"),
          ((3, 5), [0, 5, 1], OutOfRangeError, "targets must lie in [0, 5), got 5"),
          ((3, 5), [0, -1, 9], OutOfRangeError, "targets must lie in [0, 5), got -1"),
          ((0, 5), np.zeros(0, int), ShapeError, "a mean over no rows; logits need at least one"),
      ]),
    ("scale(x, factor)", [lambda: mg.scale(X, ones(2))], ArgumentError,
     "factor must be one number, got shape (2,)"),
    ("scale", [lambda: mg.scale(X, GROWN)], GradientError, "no gradient flows into factor"),
    ("mask_add(scores, mask)", [lambda: mg.mask_add(ones(3, 3), np.tri(3, dtype=int))], DTypeError,
     "floats to add, got int64"),
    ("mask_add(scores, mask)", [lambda: mg.mask_add(ones(2, 5, 5), ones(5, 3, dtype=bool))],
     ShapeError, BROADCAST + "5 and 3"),
    ("mask_add(scores, mask)",
     [lambda m=m: mg.mask_add(ones(2, 3, 3), m) for m in (np.tri(3), np.tri(3, dtype=np.float32))],
     ArgumentError, "0 and 1 hide nothing; use a boolean mask (mask == 1), or 0 and -inf"),
    ("mask_add(scores, mask)",
     [lambda m=m: mg.mask_add(ones(3, 3), np.array([0.0, m, -np.inf])) for m in (np.nan, np.inf)],
     ArgumentError, "mask holds NaN or +inf"),
    ("scaled_dot_product_attention",
     [lambda: mg.scaled_dot_product_attention(X, X, X, method="flash")], ArgumentError, "'flash'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "calls", "error", "text"), TABLE)
def test_an_error_says_the_call_the_rule_and_the_numbers(name, calls, error, text):
    for call in calls:
        with pytest.raises(error) as caught:
            call()
        assert str(caught.value).startswith(name)
        assert text in str(caught.value)
        assert isinstance(caught.value, MinigradError)


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

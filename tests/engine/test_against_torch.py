"""Calls with many forms against PyTorch in float64: results, gradients, second derivatives.

The others are in random programs, and in tests/ops.
"""

import numpy as np
import pytest

import minigrad as mg

torch = pytest.importorskip("torch")
F = torch.nn.functional


def _draw(shape, low=-2.0, high=2.0, seed=0):
    return np.asarray(np.random.default_rng(seed + 17).uniform(low, high, shape))


def check(call_id, ours, theirs, *arrays):
    return pytest.param(ours, theirs, arrays, id=call_id)


def _neural():
    logits, targets = _draw((2, 3, 5)), np.array([[0, 4, 2], [1, 1, 3]])
    for scale in (1, 800):
        yield check(
            f"cross_entropy-{scale}",
            lambda x: mg.cross_entropy(x, targets),
            lambda t: F.cross_entropy(t.reshape(-1, 5), torch.tensor(targets).reshape(-1)),
            logits * scale,
        )
    x, w, b = _draw((2, 3, 5)), _draw((5,), 0.5, 1.5, 1), _draw((5,), seed=2)
    yield check(
        "layer_norm", mg.layer_norm, lambda x, w, b: F.layer_norm(x, (5,), w, b, 1e-5), x, w, b
    )
    yield check(
        "layer_norm-plain",
        lambda x: mg.layer_norm(x, None, None),
        lambda x: F.layer_norm(x, (5,)),
        x,
    )
    yield check("rms_norm", mg.rms_norm, lambda x, w: F.rms_norm(x, (5,), w, 1e-5), x, w)
    yield check(
        "rms_norm-plain",
        lambda x: mg.rms_norm(x, None, 0.1),
        lambda x: F.rms_norm(x, (5,), eps=0.1),
        x,
    )
    q, k, v = _draw((2, 3, 5, 7)), _draw((2, 3, 5, 7), seed=1), _draw((2, 3, 5, 2), seed=2)
    mask = np.tri(5, 5, 1, dtype=bool)
    sdpa = F.scaled_dot_product_attention
    for name, ours, theirs in [
        ("plain", {}, {}), ("causal", {"is_causal": True}, {"is_causal": True}),
        ("scale", {"scale": 0.3}, {"scale": 0.3}),
        ("mask", {"mask": mask}, {"attn_mask": torch.tensor(mask)}),
        ("bias", {"mask": x[0, :1]}, {"attn_mask": torch.tensor(x[0, :1])}),
    ]:  # fmt: skip
        yield check(
            f"attention-{name}",
            lambda q, k, v, o=ours: mg.scaled_dot_product_attention(q, k, v, **o),
            lambda q, k, v, o=theirs: sdpa(q, k, v, **o),
            *(q, k, v),
        )


CALLS = [*_neural()]


@pytest.mark.parametrize(("ours", "theirs", "arrays"), CALLS)
def test_a_call_agrees_with_pytorch(ours, theirs, arrays, agree_with_torch):
    agree_with_torch(ours, theirs, arrays)


@pytest.mark.parametrize(
    ("ours", "theirs", "arrays"), [c for c in CALLS if "attention" not in c.id]
)
def test_a_second_derivative_agrees_with_pytorch(ours, theirs, arrays, agree_with_torch):
    agree_with_torch(ours, theirs, arrays, second=True)

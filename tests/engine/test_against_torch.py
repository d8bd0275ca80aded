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


def _products():
    shapes = [
        ((3, 5), (5, 7)), ((2, 3, 5), (5, 7)), ((2, 3, 5), (2, 5, 7)), ((3, 5), (2, 5, 7)),
        ((5,), (5,)),
        ((3, 5), (5,)), ((5,), (5, 7)), ((5,), (2, 5, 7)), ((2, 3, 5), (5,)),
        ((2, 1, 3, 5), (7, 5, 2)),
        ((2, 1, 3, 5), (1, 7, 5, 2)), ((3, 0), (0, 7)), ((0, 3, 5), (5, 2)), ((1, 1), (1, 1)),
        ((1, 3, 5), (2, 5, 1)),
    ]  # fmt: skip
    for n, (a, b) in enumerate(shapes):
        yield check(f"matmul-{n}", mg.matmul, torch.matmul, _draw(a, seed=n), _draw(b, seed=n + 50))
    for subscripts, *sizes in [
        ("ij,jk->ik", (2, 3), (3, 5)), ("ij,jk", (2, 3), (3, 5)),
        ("bnd,bnk->dk", (2, 3, 5), (2, 3, 7)), ("ii", (3, 3)),
        ("ii->i", (3, 3)), ("iij,j->i", (3, 3, 2), (2,)), ("i,j->", (2,), (3,)),
        ("i,i", (3,), (3,)),
        ("...ij,...jk->...ik", (7, 2, 3), (3, 5)), ("i...,i->...", (3, 2, 5), (3,)),
        ("bhqd,bhkd->bhqk", (2, 3, 5, 7),
        (2, 3, 2, 7)), ("ij,jk,kl->il", (2, 3), (3, 5), (5, 2)), ("ij->", (2, 3)), ("ba",
        (2, 3)), ("iii->i", (3, 3, 3)),
        ("...i->...", (2, 3, 5)), ("...,...->...", (2, 1), (3,)),
        ("...i,i...->...", (2, 3), (3, 2)), ("ij->ji", (2, 3)),
    ]:  # fmt: skip
        yield check(
            f"einsum-{subscripts}",
            lambda *xs, s=subscripts: mg.einsum(s, *xs),
            lambda *ts, s=subscripts: torch.einsum(s, *ts),
            *(_draw(s, seed=n) for n, s in enumerate(sizes)),
        )


def _moves():
    x = _draw((3, 5, 7))
    indices = {
        "int": 1, "negative": -1, "slice": slice(1, 3), "step": (slice(None, None, 2), Ellipsis, 2),
        "new": (None, 1, ..., None), "array": [0, 2, 0, -1], "pair": ([0, 0, 2], [1, 1, 3]),
        "gap": ([0, 0, 2], slice(None), [1, 1, 3]), "grid": ([[0], [2]], [1, 4]),
        "empty": slice(0, 0),
        "rows": [True, False, True], "slice then array": (slice(1, 3), [4, 4, 0]),
        "array then int": ([0, 2, 0], 1),
    }  # fmt: skip
    for name, index in indices.items():
        yield check(f"getitem-{name}", lambda x, i=index: x[i], lambda t, i=index: t[i], x)
    inside = x > 0.3
    yield check("getitem-mask", lambda x: x[inside], lambda t: t[torch.tensor(inside)], x)
    yield check(
        "reversed", lambda x: x[::-1, 1:, ::-2], lambda t: t.flip(0)[:, 1:].flip(2)[..., ::2], x
    )
    yield check("take", lambda x: mg.take(x, [1, 0, 1], axis=1), lambda t: t[:, [1, 0, 1]], x)
    grid = [[1, 0], [1, 4]]
    yield check("take-grid", lambda x: mg.take(x, grid, axis=1), lambda t: t[:, grid], x)
    yield check("take-flat", lambda x: mg.take(x, [0, -1, 9]), lambda t: t.flatten()[[0, -1, 9]], x)
    yield check("reshape", lambda x: x.reshape(5, -1, 3), lambda t: t.reshape(5, -1, 3), x)
    yield check("transpose", lambda x: x.transpose(2, 0, 1), lambda t: t.permute(2, 0, 1), x)
    yield check("T", lambda x: x.T, lambda t: t.permute(2, 1, 0), x)
    yield check("mT", lambda x: x.mT, lambda t: t.mT, x)
    yield check("swapaxes", lambda x: mg.swapaxes(x, 0, -1), lambda t: t.swapaxes(0, -1), x)
    yield check("expand", lambda x: mg.expand_dims(x, (0, 2)), lambda t: t[None, :, None], x)
    yield check("squeeze", mg.squeeze, torch.squeeze, _draw((1, 3, 1)))
    yield check(
        "broadcast",
        lambda x: mg.broadcast_to(x, (2, 3, 5)),
        lambda t: t.expand(2, 3, 5),
        _draw((3, 1)),
    )
    yield check("pad", lambda x: mg.pad(x, ((1, 0), (0, 2), (3, 1)), 2.5),
                lambda t: F.pad(t, (3, 1, 0, 2, 1, 0), value=2.5), x)  # fmt: skip
    parts = [_draw((2, 3), seed=1), _draw((2, 5), seed=2), _draw((2, 1), seed=3)]
    yield check(
        "concatenate", lambda *xs: mg.concatenate(xs, axis=1), lambda *ts: torch.cat(ts, 1), *parts
    )
    same = [_draw((2, 3), seed=n) for n in range(3)]
    yield check("stack", lambda *xs: mg.stack(xs, axis=-1), lambda *ts: torch.stack(ts, -1), *same)
    for axis in (0, 1):
        yield check(
            f"split-{axis}",
            lambda x, a=axis: sum(
                (n + 1) * p.sum(axis=a) for n, p in enumerate(mg.split(x, [1, 2], axis=a))
            ),
            lambda t, a=axis: sum(
                (n + 1) * p.sum(a) for n, p in enumerate(torch.tensor_split(t, [1, 2], a))
            ),
            x,
        )
    c = torch.tensor(chosen := _draw((3, 5)) > 0)
    pair = _draw((3, 5)), _draw((5,), seed=4)
    yield check(
        "where", lambda a, b: mg.where(chosen, a, b), lambda a, b: torch.where(c, a, b), *pair
    )
    yield check("clip", lambda x: mg.clip(x, -1, 0.5), lambda t: t.clamp(-1, 0.5), x)


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


CALLS = [*_products(), *_moves(), *_neural()]


@pytest.mark.parametrize(("ours", "theirs", "arrays"), CALLS)
def test_a_call_agrees_with_pytorch(ours, theirs, arrays, agree_with_torch):
    agree_with_torch(ours, theirs, arrays)


@pytest.mark.parametrize(
    ("ours", "theirs", "arrays"), [c for c in CALLS if "attention" not in c.id]
)
def test_a_second_derivative_agrees_with_pytorch(ours, theirs, arrays, agree_with_torch):
    agree_with_torch(ours, theirs, arrays, second=True)

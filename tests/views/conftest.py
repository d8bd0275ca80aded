"""Traces that the views' tests draw."""

import numpy as np
import pytest

import minigrad as mg
from layers import LanguageModel, MultiHeadAttention, SelfAttention, create_causal_mask

HOSTILE = 'a</script> "q" & <b>\'\n\u202eשלום\x00\\N'
HOSTILE_NAMES = [
    HOSTILE,
    "</script><img src=x onerror=alert(1)>",
    "a\u2028b",
    "{{data}}",
    "a_b*c_d",
    "$x$ `y`",
    "a|b",
    "50% #1 & {x}",
    "\\frac",
    "x\n```\ny",
    "X" * 10_000,
]


def attention(kind="self"):
    """Self-attention or causal multi-head attention, forward and backward."""
    rng = np.random.default_rng(11)
    x = mg.tensor(rng.normal(size=(2, 7, 15)), requires_grad=True, name="X")
    with mg.trace() as t:
        if kind == "self":
            out = SelfAttention(15, 2, 3, rng=rng)(x)
        else:
            out = MultiHeadAttention(15, 3, rng=rng)(x, create_causal_mask(7))
        mg.mean(out * out).named("loss").backward()
    return t


def chain(blocks, scale=0.4):
    """Residual blocks of one shape, named block0, block1 and so on."""
    rng = np.random.default_rng(13)
    x = mg.tensor(rng.normal(size=(3, 5)), requires_grad=True, name="X")
    arrays = [scale * rng.normal(size=(5, 5)) for _ in range(blocks)]
    weights = [mg.tensor(array, requires_grad=True, name="W") for array in arrays]
    with mg.trace() as t:
        h = x
        for i, W in enumerate(weights):
            with mg.scope(f"block{i}"):
                with mg.scope("mlp"):
                    y = mg.relu(h @ W)
                h = (h + y).named("h")
        mg.mean(h * h).named("loss").backward()
    return t


def transformer():
    """A language model of three blocks."""
    rng = np.random.default_rng(5)
    model = LanguageModel(11, 8, 2, 3, max_len=5, rng=rng)
    with mg.trace() as t:
        mg.mean(model(rng.integers(0, 11, (2, 5))) ** 2).backward()
    return t


def unfolded(count):
    """As many ops one after the other, written without a loop, so that nothing folds."""
    y = mg.tensor(np.ones(3), requires_grad=True, name="y")
    with mg.trace() as t:
        exec("y = mg.tanh(y)\n" * count + "mg.sum(y).backward()", {"mg": mg, "y": y})
    return t


def states():
    """A graph whose leaves are in every state and lack a gradient for every reason."""
    leaf = {name: mg.tensor(1.0, requires_grad=True, name=name) for name in ("ok", "zero")}
    leaf["vanishing"] = mg.tensor(1.0, requires_grad=True, name="vanishing")
    leaf["exploding"] = mg.tensor(1.0, requires_grad=True, name="exploding")
    leaf["non-finite"] = mg.tensor(0.0, requires_grad=True, name="non-finite")
    leaf["unreached"] = mg.tensor(1.0, requires_grad=True, name="unreached")
    frozen = mg.tensor(2.0, name="frozen")
    with mg.trace() as t, np.errstate(all="ignore"):
        total = leaf["ok"] * frozen + leaf["zero"] * mg.tensor(0.0, name="nought")
        total = total + leaf["vanishing"] * np.array(1e-12) + leaf["exploding"] * np.array(1e9)
        total = total + mg.sqrt(leaf["non-finite"]) + mg.tanh(leaf["ok"]).detach() * leaf["ok"]
        mg.exp(leaf["unreached"])
        total.named("loss").backward()
    return t


def hostile():
    x = mg.tensor([1.0, 2.0], requires_grad=True, name=HOSTILE)
    with mg.trace() as t, mg.scope('<scope> & "s" \\G\n'):
        mg.sum(x * x).named("]]> --> <!--").backward()
    return t


@pytest.fixture
def single():
    return attention()


@pytest.fixture
def multi():
    return attention("multi")

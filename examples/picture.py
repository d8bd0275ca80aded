"""The README's pictures: causal self-attention, a small MLP, and four transformer blocks in one.

    python examples/picture.py examples/

Without a folder it draws into a temporary one. Asserts that each picture shows what was measured:
the steps derived by hand agree with the engine, and each node carries the size of its gradient.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import minigrad as mg
from layers import Encoder, SelfAttention, create_causal_mask


def self_attention(path: Path) -> int:
    """Each of the six steps derived by hand is a node; dark or light as the reader's page is."""
    rng = np.random.default_rng(0)
    layer = SelfAttention(d_model=8, d_k=4, d_v=4, use_bias=False, rng=rng)
    X = mg.tensor(rng.normal(size=(1, 5, 8)), requires_grad=True, name="X")
    with mg.trace() as t:
        out = layer(X, mask=create_causal_mask(5))
        mg.mean(out * out).named("loss").backward()
    assert t.check().ok
    return drawn(t, path, expected=17)


def mlp(path: Path) -> int:
    """Nothing but ops and named arrays; light in any page."""
    rng = np.random.default_rng(0)

    def parameter(name: str, *shape: int) -> mg.Tensor:
        return mg.tensor(rng.normal(0, 0.5, shape), requires_grad=True, name=name)

    W_1, b_1, W_2, b_2 = (
        parameter(name, *shape)
        for name, shape in {"W_1": (7, 16), "b_1": (16,), "W_2": (16, 3), "b_2": (3,)}.items()
    )
    weight, bias = parameter("weight", 16), parameter("bias", 16)
    x, targets = mg.tensor(rng.normal(size=(11, 7)), name="x"), rng.integers(3, size=11)
    with mg.trace() as t:
        h = mg.relu(mg.layer_norm(x @ W_1 + b_1, weight, bias)).named("h")  # (11, 16)
        logits = (h @ W_2 + b_2).named("logits")  # (11, 3)
        mg.cross_entropy(logits, targets).named("loss").backward()
    return drawn(t, path, expected=13, theme="light")


def folded(path: Path) -> int:
    """Blocks that repeat are drawn once, with the smallest and the largest of their gradients."""
    rng = np.random.default_rng(0)
    encoder = Encoder(n_layers=4, d_model=8, n_heads=2, use_bias=False, rng=rng)
    X = mg.tensor(rng.normal(size=(1, 5, 8)), requires_grad=True, name="X")
    target = mg.tensor(rng.normal(size=(1, 5, 8)), name="target")
    with mg.trace() as t:
        error = encoder(X, create_causal_mask(5)) - target
        mg.mean(error * error).named("loss").backward()
    t.draw(path, depth=2, saved=False)
    assert "×4" in path.read_text(encoding="utf-8")
    return sum(entry.gradient is not None for entry in t.entries)


def drawn(t: mg.Trace, path: Path, expected: int, theme: str = "auto") -> int:
    """Draw all of it; every gradient's size must stand in the picture."""
    text = t.draw(path, theme=theme, saved=False).read_text(encoding="utf-8")
    sizes = [f"{entry.gradient_rms:#.2g}" for entry in t.entries if entry.gradient is not None]
    assert len(sizes) == expected, len(sizes)
    assert all(size in text for size in sizes)
    return expected


PICTURES = {"self_attention": self_attention, "mlp": mlp, "folded": folded}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in PICTURES.items():
        path = folder / f"{name}.svg"
        print(f"{picture(path):3} gradients in {path.name}, {path.stat().st_size / 1000:.0f} kB")
        assert path.stat().st_size < 60_000


def asked() -> str | None:
    """FOLDER of `python examples/picture.py FOLDER`; sys.argv may be of a program around it."""
    script, *rest = sys.orig_argv[1:] or [""]
    return rest[0] if rest and Path(script).resolve() == Path(__file__).resolve() else None


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(asked() or scratch))

"""The README's picture: causal self-attention of five tokens, forward and backward.

    python examples/picture.py examples/self_attention.svg

Without an argument it draws into a temporary folder. Asserts that the picture shows what was
measured: the six steps derived by hand agree with the engine, and each node carries its gradient.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import minigrad as mg
from layers import SelfAttention, create_causal_mask


def main(path: Path) -> None:
    rng = np.random.default_rng(0)
    layer = SelfAttention(d_model=8, d_k=4, d_v=4, use_bias=False, rng=rng)
    X = mg.tensor(rng.normal(size=(1, 5, 8)), requires_grad=True, name="X")
    with mg.trace() as t:
        out = layer(X, mask=create_causal_mask(5))
        mg.mean(out * out).named("loss").backward()
    assert t.check().ok
    drawn = t.draw(path, saved=False).read_text(encoding="utf-8")
    sizes = [f"{entry.gradient_rms:.2g}" for entry in t.entries if entry.gradient is not None]
    assert len(sizes) == 17
    assert all(size in drawn for size in sizes)
    print(f"{len(sizes)} gradients in {path.name}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder) / "self_attention.svg")

"""The pictures of the README and the guide, each drawn from a run.

    python examples/picture.py examples/pictures/

Without a folder it draws into a temporary one. Asserts that each picture shows what was measured:
the steps derived by hand agree with the engine, and each node carries the size of its gradient.
"""

import argparse
import runpy
import tempfile
from html import escape
from pathlib import Path

import numpy as np

import minigrad as mg
from layers import (
    Encoder,
    Linear,
    SelfAttention,
    Sequential,
    create_causal_mask,
)
from minigrad.optim import SGD


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


def first_model(path: Path) -> int:
    """The model of the guide's first pages: two layers and the loss."""
    rng = np.random.default_rng(0)
    model = Sequential(Linear(1, 32, rng=rng), mg.tanh, Linear(32, 1, rng=rng))
    x = rng.uniform(-3, 3, (20, 1))
    with mg.trace() as t:
        mg.mse_loss(model(mg.tensor(x, name="x")), np.sin(x)).named("loss").backward()
    return drawn(t, path, expected=8)


def your_own_op(path: Path) -> int:
    """The op that the guide declares."""

    @mg.op(
        tex=r"<x> \cdot \sigma(<beta> <x>)",
        vjp_tex={
            "x": r"<g> \odot (s + <beta> <x> \odot s \odot (1 - s)), \quad s = \sigma(<beta> <x>)"
        },
    )
    def swish(x, beta=1.0):
        return x / (1 + np.exp(-beta * x))

    @swish.vjp("x")
    def _(g, x, beta):
        s = 1 / (1 + np.exp(-beta * x))
        return g * (s + beta * x * s * (1 - s))

    x = mg.tensor([0.0, 1.0, -2.0], requires_grad=True, name="x")
    try:
        with mg.trace() as t:
            mg.sum(swish(x, beta=1.7).named("y")).named("loss").backward()
        return drawn(t, path, expected=3)
    finally:
        del mg.registry["swish"]


def training(path: Path) -> int:
    """Eight layers of sigmoids over training: the gradient fades towards the first."""
    rng = np.random.default_rng(0)
    hidden = [part for _ in range(8) for part in (Linear(8, 8, rng=rng), mg.sigmoid)]
    model = Sequential(*hidden, Linear(8, 1, rng=rng))
    optimizer = SGD(model.parameters(), lr=0.1)
    with mg.watch(model, every=10) as flow:
        for _ in range(60):
            x = rng.normal(size=(32, 8))
            optimizer.zero_grad()
            loss = mg.mse_loss(model(x), np.tanh(x[:, :1] * x[:, 1:2]))
            loss.backward()
            optimizer.step()
            flow.log(loss=loss)
    assert flow.diagnose().kinds == ["vanishing"]
    flow.draw(path)
    return path.read_text(encoding="utf-8").count("/W<")


# ------------------------------------------------ what "it" stands for

LETTER, SENTENCE = 8.4, 150  # width of a letter; height of a sentence


def pronoun(path: Path) -> int:
    """What "it" reads and where it points, in both sentences of examples/pronoun.py."""
    example = runpy.run_path(str(EXAMPLES / "pronoun.py"))
    seen = [example["Seen"](function) for function in (example["tired"], example["wide"])]
    it, lines = example["IT"], []
    for number, text in enumerate(seen):
        y = number * SENTENCE + 85
        starts = 20 + LETTER * np.cumsum([0, *(len(word) + 1 for word in text.words)])
        middle = (starts[:-1] + starts[1:] - LETTER) / 2
        for j, word in enumerate(text.words):
            bold = ' class="it"' if j == it else ""
            lines.append(f'<text x="{middle[j]:.0f}" y="{y}"{bold}>{escape(word)}</text>')
            if text.read[it, j] >= 0.05:
                adds = text.read[it, j] * text.slope[it, j]
                label = f"reads {text.read[it, j]:.2f}, adds {adds:.1f} to the loss"
                label = label.replace("-", "−")
                lines += arc("reads", text.read[it, j], label, middle[[it, j]], y - 18, y - 70)
            if text.point[it, j] >= 0.05:
                label = f"points {text.point[it, j]:.2f}"
                lines += arc("points", text.point[it, j], label, middle[[it, j]], y + 8, y + 60)
    assert len(lines) == 2 * (11 + 2 + 2)  # eleven words, and in each layer "it" looks at one
    size = {"width": f"{starts[-1] + 70:.0f}", "height": len(seen) * SENTENCE + 10}
    path.write_text(SENTENCES.format(**size, lines="\n".join(lines)), encoding="utf-8")
    return sum(text.slope[it].any() for text in seen)


def arc(
    kind: str, weight: float, label: str, ends: np.ndarray, near: float, far: float
) -> list[str]:
    """A curve from one word to another, as wide as its weight, and what it says."""
    start, end = ends
    curve = f"M {start:.0f} {near} C {start:.0f} {far} {end:.0f} {far} {end:.0f} {near}"
    x, y = (start + end) / 2, near + 0.75 * (far - near) + (-6 if far < near else 16)
    return [
        f'<path class="{kind}" d="{curve}" stroke-width="{4 * weight:.1f}"/>',
        f'<text class="{kind} said" x="{x:.0f}" y="{y:.0f}">{label}</text>',
    ]


SENTENCES = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" \
viewBox="0 0 {width} {height}" role="img">
<title>What "it" reads and where it points, in two sentences</title>
<style>
text {{ font: 14px ui-monospace, Menlo, Consolas, monospace; text-anchor: middle; fill: #1f2328 }}
.it {{ font-weight: bold }}
.said {{ font-size: 12px }}
path {{ fill: none; stroke-linecap: round }}
path.reads {{ stroke: #0969da }}
text.reads {{ fill: #0969da }}
path.points {{ stroke: #bc4c00 }}
text.points {{ fill: #bc4c00 }}
@media (prefers-color-scheme: dark) {{
  text {{ fill: #e6edf3 }}
  path.reads {{ stroke: #58a6ff }}
  text.reads {{ fill: #58a6ff }}
  path.points {{ stroke: #f0883e }}
  text.points {{ fill: #f0883e }}
}}
</style>
{lines}
</svg>
"""


def one_page(path: Path) -> int:
    """The graph of two heads, as the hundred lines of examples/one_page.py draw it."""
    example = runpy.run_path(str(EXAMPLES / "one_page.py"))
    rng = np.random.default_rng(0)
    shapes = {"X": (2, 5, 8)}
    for symbol in "QKVO":
        shapes |= {f"W_{symbol}": (8, 8), f"b_{symbol}": (8,)}
    p = {name: example["Tensor"](rng.normal(size=n), name=name) for name, n in shapes.items()}
    out = example["multi_head_attention"](p["X"], p, create_causal_mask(5), heads=2)
    example["backward"](out, rng.normal(size=(2, 5, 8)))
    example["draw"](out, path)
    return path.read_text(encoding="utf-8").count("gradient ")


# ------------------------------------------------ all of them

EXAMPLES = Path(__file__).parent
PICTURES = {
    "pronoun": pronoun,
    "self_attention": self_attention,
    "mlp": mlp,
    "folded": folded,
    "one_page": one_page,
    "first_model": first_model,
    "your_own_op": your_own_op,
    "training": training,
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in PICTURES.items():
        path = folder / f"{name}.svg"
        print(f"{picture(path):3} gradients in {path.name}, {path.stat().st_size / 1000:.0f} kB")
        assert path.stat().st_size < 64_000


def folder_of_arguments() -> str | None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", help="where to draw; a temporary folder unless given")
    parser.add_argument("--quick", action="store_true", help="changes nothing: it takes a second")
    return parser.parse_args().folder


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(folder_of_arguments() or scratch))

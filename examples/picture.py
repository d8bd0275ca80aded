"""The pictures of the README and the guide, each drawn from a run: `examples/pictures/`.

    python examples/picture.py examples/pictures/

Without a folder it draws into a temporary one. Asserts that the pictures show what was measured:
the steps derived by hand agree with the engine, and the size of each gradient stands in its box.
"""

import runpy
import sys
import tempfile
from html import escape
from pathlib import Path

import numpy as np

import minigrad as mg
from layers import Encoder, Linear, SelfAttention, Sequential, create_causal_mask
from minigrad.optim import SGD

EXAMPLES = Path(__file__).parent
N, D = 5, 8


def tokens(seed: int = 0) -> mg.Tensor:
    X = np.random.default_rng(seed).normal(size=(1, N, D))
    return mg.tensor(X, requires_grad=True, name="X")


def self_attention(path: Path):
    """Each of the six steps derived by hand is a node."""
    layer = SelfAttention(d_model=D, d_k=4, d_v=4, use_bias=False, rng=0)
    with mg.trace() as t:
        out = layer(tokens(), mask=create_causal_mask(N))
        mg.mean(out * out).named("loss").backward()
    assert t.check().ok
    text = t.draw(path).read_text(encoding="utf-8")
    for name in ("A", "O", "S"):
        assert f"{np.sqrt(np.mean(t[name].gradient ** 2)):#.2g}" in text


def folded(path: Path):
    """Blocks that repeat are drawn once, with the smallest and the largest of their gradients."""
    encoder = Encoder(n_layers=4, d_model=D, n_heads=2, use_bias=False, rng=0)
    with mg.trace() as t:
        error = encoder(tokens(), create_causal_mask(N)) - tokens(1).detach().named("target")
        mg.mean(error * error).named("loss").backward()
    assert "×4" in t.draw(path, depth=1).read_text(encoding="utf-8")


def first_model(path: Path):
    """The model of the guide's first pages: two layers and the loss."""
    rng = np.random.default_rng(0)
    model = Sequential(Linear(1, 32, rng=rng), mg.tanh, Linear(32, 1, rng=rng))
    x = rng.uniform(-3, 3, (20, 1))
    with mg.trace() as t:
        mg.mse_loss(model(mg.tensor(x, name="x")), np.sin(x)).named("loss").backward()
    t.draw(path)


def training(path: Path):
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


# ------------------------------------------------ what "it" stands for

LETTER, SENTENCE = 8.4, 150  # width of a letter; height of a sentence


def pronoun(path: Path):
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


def one_page(path: Path):
    """The graph of two heads, as the hundred lines of examples/one_page.py draw it."""
    runpy.run_path(str(EXAMPLES / "one_page.py"))["main"](path)


# ------------------------------------------------ all of them

PICTURES = (pronoun, self_attention, folded, one_page, first_model, training)


def main(folder: Path):
    folder.mkdir(parents=True, exist_ok=True)
    for picture in PICTURES:
        path = folder / f"{picture.__name__}.svg"
        picture(path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
        assert path.stat().st_size < 64_000


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1] if sys.argv[1:] else scratch))

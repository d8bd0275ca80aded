"""A GPT of characters learns the text of Python's own help, writes some, and can be taken up again.

    python examples/char_gpt.py --watch flow.svg       train, write, show the gradient over training
    python examples/char_gpt.py --run gpt.npz          keep the run there; again: go on from there

The text ships with Python (`pydoc_data.topics`, half a million characters). The loss is the mean
-log p of the next character; guessing all characters alike would give log 97 = 4.6.
"""

import argparse
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
from tqdm import tqdm

import minigrad as mg
from layers import LanguageModel
from minigrad.data import batches
from minigrad.optim import AdamW, clip_grad_norm, schedule

TEXT = "\n".join(topics[name] for name in sorted(topics))
CHARACTERS = sorted(set(TEXT))
LENGTH, BATCH, STEPS, QUICK = 64, 16, 600, 60


def encode(text: str) -> np.ndarray:
    number = {c: i for i, c in enumerate(CHARACTERS)}
    return np.array([number[c] for c in text])


class Run:
    """What a training run is made of; `parts` is what goes into its file."""

    def __init__(self, steps: int) -> None:
        tokens = encode(TEXT)
        cut = len(tokens) * 9 // 10 // (LENGTH + 1) * (LENGTH + 1)
        learn, self.test = tokens[:cut].reshape(-1, LENGTH + 1), tokens[cut:]
        self.model = LanguageModel(
            len(CHARACTERS), d_model=64, n_heads=4, n_layers=2, max_len=LENGTH,
            rng=np.random.default_rng(0), dtype=np.float32,
        )  # fmt: skip
        self.optimizer = AdamW(self.model.parameters(), lr=4e-3)
        self.decay = schedule.cosine(self.optimizer, steps=steps, warmup=steps // 10, end=0.05)
        self.data = batches(learn, batch_size=BATCH, rng=np.random.default_rng(0), drop_last=True)
        self.parts = {"model": self.model, "optimizer": self.optimizer}
        self.parts |= {"decay": self.decay, "data": self.data}
        self.step = mg.compile(self._step)

    def _step(self, tokens: np.ndarray) -> mg.Tensor:
        self.optimizer.zero_grad()
        logits = self.model(tokens[:, :-1])  # (B, n, 97)
        loss = mg.cross_entropy(logits.reshape(-1, len(CHARACTERS)), tokens[:, 1:].reshape(-1))
        loss.backward()
        clip_grad_norm(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.decay.step()
        return loss

    def forever(self):
        while True:
            yield from self.data

    def train(self, steps: int, flow: mg.watch, kept: Path | None) -> None:
        following = self.forever()
        bar = tqdm(range(self.optimizer.steps, steps), "char_gpt")
        for t in bar:
            loss = self.step(next(following)).item()
            flow.log(loss=loss)
            bar.set_postfix(loss=float(loss), refresh=False)
            if kept and (t + 1) % 100 == 0:
                mg.save(kept, **self.parts, step=t + 1)

    def test_loss(self) -> float:
        """On text never seen, in windows side by side."""
        n = len(self.test) // (LENGTH + 1)
        windows = self.test[: n * (LENGTH + 1)].reshape(n, LENGTH + 1)[:200]
        with mg.no_grad():
            logits = self.model(windows[:, :-1])
            wanted = windows[:, 1:].reshape(-1)
            return mg.cross_entropy(logits.reshape(len(wanted), -1), wanted).item()

    def write(self, start: str, count: int, rng: np.random.Generator) -> str:
        """The start, continued: each character drawn by the model's probabilities, at 0.7."""
        text = start
        with mg.no_grad():
            for _ in range(count):
                window = encode(text[-LENGTH:])[None]
                logits = self.model(window).numpy()[0, -1].astype(float)
                text += CHARACTERS[rng.choice(len(logits), p=mg.softmax(logits / 0.7))]
        return text


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--quick", action="store_true", help=f"{QUICK} steps")
    arguments.add_argument("--steps", type=int, default=STEPS)
    arguments.add_argument("--run", type=Path, metavar="FILE.npz", help="keep the run here")
    arguments.add_argument("--watch", metavar="FILE.svg", help="a heat map of training")
    options = arguments.parse_args()
    steps = QUICK if options.quick else options.steps
    run = Run(steps)
    if options.run and options.run.exists():
        print(f"taken up after step {mg.load(options.run, **run.parts)['step']}")
    with mg.watch(run.model, every=10) as flow:
        run.train(steps, flow, options.run)
    if options.watch:
        print("the gradient over training:", flow.draw(options.watch))
    print(run.write("The import statement", 200, np.random.default_rng(0)))
    loss = run.test_loss()
    print(f"loss of text never seen after {steps} steps: {loss:.2f} (guessing: 4.6)")
    assert loss < (3.4 if steps < STEPS else 2.1)


if __name__ == "__main__":
    main()

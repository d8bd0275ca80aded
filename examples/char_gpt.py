"""A GPT of characters learns the text of Python's own help: 2.0 nats a character, guessing has 4.6.

    python examples/char_gpt.py gpt.npz         keep the run there; again: go on from there
    python examples/char_gpt.py --quick         60 steps, not 600

The text ships with Python (`pydoc_data.topics`, half a million characters). The loss is the mean
-log p of the next character, on text that it never saw.
"""

import sys
from itertools import chain, repeat
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np

import minigrad as mg
from layers import LanguageModel
from minigrad.data import batches
from minigrad.optim import AdamW, clip_grad_norm, schedule

TEXT = "\n".join(topics[name] for name in sorted(topics))
CHARACTERS = sorted(set(TEXT))
NUMBER = {character: i for i, character in enumerate(CHARACTERS)}
LENGTH = 64  # characters that it sees


def windows(text: str) -> np.ndarray:
    """(N, LENGTH + 1) numbers of characters, side by side."""
    n = len(text) // (LENGTH + 1)
    tokens = np.array([NUMBER[character] for character in text[: n * (LENGTH + 1)]])
    return tokens.reshape(n, LENGTH + 1)


def written(model: LanguageModel, start: str, count: int, rng: np.random.Generator) -> str:
    """The start, continued: each character drawn by the model's probabilities, at 0.7."""
    text = start
    with mg.no_grad():
        for _ in range(count):
            tokens = np.array([[NUMBER[character] for character in text[-LENGTH:]]])
            logits = model(tokens).numpy()[0, -1].astype(float)
            text += CHARACTERS[rng.choice(len(logits), p=mg.softmax(logits / 0.7))]
    return text


def main():
    quick = "--quick" in sys.argv
    steps = 60 if quick else 600
    runs = [Path(argument) for argument in sys.argv[1:] if argument != "--quick"]

    learn, test = windows(TEXT[: len(TEXT) * 9 // 10]), windows(TEXT[len(TEXT) * 9 // 10 :])
    rng = np.random.default_rng(0)
    model = LanguageModel(
        len(CHARACTERS), d_model=64, n_heads=4, n_layers=2, max_len=LENGTH, rng=rng,
        dtype=np.float32,
    )  # fmt: skip
    optimizer = AdamW(model.parameters(), lr=4e-3)
    decay = schedule.cosine(optimizer, steps=steps, warmup=steps // 10, end=0.05)
    data = batches(learn, batch_size=16, rng=rng, drop_last=True)
    parts = {"model": model, "optimizer": optimizer, "decay": decay, "data": data}
    done = 0
    for run in runs:
        if run.exists():
            done = mg.load(run, **parts)["step"]
            print(f"taken up after step {done}")

    @mg.compile
    def step(tokens):
        optimizer.zero_grad()
        loss = mg.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:])  # of (B, n, 97)
        loss.backward()
        clip_grad_norm(model.parameters(), 1.0)
        optimizer.step()
        decay.step()
        return loss

    following = chain.from_iterable(repeat(data))  # epoch after epoch
    for t in range(done + 1, steps + 1):
        loss = step(next(following)).item()
        if t % 50 == 0:
            print(f"step {t} of {steps}: loss {loss:.2f}")
        if t % 100 == 0:
            for run in runs:
                mg.save(run, **parts, step=t)
    print(written(model, "The import statement", 200, rng))
    with mg.no_grad():
        loss = mg.cross_entropy(model(test[:200, :-1]), test[:200, 1:]).item()
    print(f"loss of text never seen after {steps} steps: {loss:.2f} (guessing: 4.6)")
    assert loss < (3.4 if quick else 2.1)


if __name__ == "__main__":
    main()

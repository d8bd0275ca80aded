"""A summarizer: an encoder reads a report of many words, a decoder says who did what, in three.

Its attention is looked at then: does the decoder look at the word it is about to say? And what if
padding is not masked, or each word of the report sees only earlier ones?

    python examples/summarizer.py step.html      one step, as a page, too
"""

import sys

import numpy as np

import minigrad as mg
from layers import (
    Decoder,
    Embedding,
    Encoder,
    LearnedPosition,
    Linear,
    Module,
    combined_mask,
    create_causal_mask,
    padding_mask,
)  # fmt: skip
from minigrad.optim import Adam, clip_grad_norm, schedule

NAMES = "Ada Emmy Sofia Maryam Hedy Grace Katherine Barbara".split()
VERBS = "proved found built refuted sold mended".split()
THINGS = "a theorem,a comet,an engine,a compiler,a bridge,a proof,a telescope".split(",")
FILLERS = "yesterday as everybody knows after years of work it rained and the papers say".split()
NOT = "unlike"  # the name after it is not who did it
WORDS = ["<pad>", "<start>", NOT, *NAMES, *VERBS, *THINGS, *dict.fromkeys(FILLERS)]
NUMBER = {word: i for i, word in enumerate(WORDS)}
LONGEST, SAID = 18, 3
QUICK = "--quick" in sys.argv  # for the tests
STEPS = 25 if QUICK else 900


def report(rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """A report of 8 to 18 words, and its summary."""
    who, other = rng.choice(NAMES, 2, replace=False)
    said = [who, rng.choice(VERBS), rng.choice(THINGS)]
    words = list(said)
    for _ in range(rng.integers(3, LONGEST - SAID - 1)):
        words.insert(rng.integers(0, len(words) + 1), rng.choice(FILLERS))
    at = rng.integers(0, len(words) + 1)
    return [*words[:at], NOT, other, *words[at:]], said


def batch(n: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Reports (n, 18), filled up; lengths; what is said before each word; summaries (n, 3)."""
    pairs = [report(rng) for _ in range(n)]
    text = np.zeros((n, LONGEST), int)
    for row, (words, _) in zip(text, pairs, strict=True):
        row[: len(words)] = [NUMBER[word] for word in words]
    summary = np.array([[NUMBER[word] for word in said] for _, said in pairs])
    start = np.full((n, 1), NUMBER["<start>"])
    before = np.concatenate([start, summary[:, :-1]], axis=1)
    return text, np.array([len(words) for words, _ in pairs]), before, summary


class Summarizer(Module):
    """Masking: "padding" hides what fills a report up, "causal" later words too, "none" nothing."""

    def __init__(self, rng: np.random.Generator, masking: str, d_model: int = 48) -> None:
        settings = {"rng": rng, "dtype": np.float32}
        self.masking = masking
        self.embedding = Embedding(len(WORDS), d_model, **settings)
        self.position = LearnedPosition(LONGEST, d_model, **settings)
        self.encoder = Encoder(2, d_model, 4, 64, **settings)
        self.decoder = Decoder(1, d_model, 4, 64, **settings)
        self.out = Linear(d_model, len(WORDS), **settings)

    def forward(self, text: np.ndarray, lengths: np.ndarray, before: np.ndarray) -> mg.Tensor:
        shown = None if self.masking == "none" else padding_mask(lengths, text.shape[1])
        mask = shown
        if self.masking == "causal":
            mask = combined_mask(create_causal_mask(text.shape[1]), shown)
        context = self.encoder(self.position(self.embedding(text)), mask)  # (B, n, d)
        H = self.position(self.embedding(before))  # (B, 3, d)
        seen = create_causal_mask(before.shape[1])
        return self.out(self.decoder(H, context, seen, shown))  # (B, 3, words)


def train(masking: str) -> Summarizer:
    rng = np.random.default_rng(0)
    model = Summarizer(rng, masking)
    optimizer = Adam(model.parameters(), lr=5e-3)
    decay = schedule.cosine(optimizer, steps=STEPS, warmup=STEPS // 10)

    @mg.compile
    def step(text: np.ndarray, lengths: np.ndarray, before: np.ndarray, summary: np.ndarray):
        model.zero_grad()
        logits = model(text, lengths, before)
        loss = mg.cross_entropy(logits.reshape(-1, len(WORDS)), summary.reshape(-1))
        loss.backward()
        clip_grad_norm(model.parameters(), 1.0)
        optimizer.step()
        decay.step()
        return loss

    for _ in range(STEPS):
        loss = step(*batch(32, rng))
    print(f"last loss {loss.item():.3f}", end="   ")
    return model


def main() -> None:
    text, lengths, before, summary = batch(500, np.random.default_rng(99))
    right, looked = {}, {}
    for masking in ("padding", "causal", "none"):
        model = train(masking)
        with mg.no_grad():
            logits = model(text, lengths, before)
        right[masking] = float((logits.numpy().argmax(axis=-1) == summary).all(axis=1).mean())
        A = model.decoder.blocks[0].cross_attention.attention_weights  # (B, h, 3, n)
        there = text[:, None, None, :] == summary[:, None, :, None]  # where the word stands
        looked[masking] = float((A * there).sum(axis=-1).mean(axis=(0, 2)).max())
        print(
            f"masking {masking:8} {right[masking]:6.1%} of 500 new summaries right; the best head "
            f"has {looked[masking]:.2f} of its attention on the word that is said"
        )
    print("evenly spread over a report it would be", round(float((1 / lengths).mean()), 2))
    assert right["padding"] > (0.0 if QUICK else 0.95)
    assert looked["padding"] > 2 / LONGEST
    for path in [given for given in sys.argv[1:] if given.endswith(".html")]:
        with mg.trace() as t:
            logits = model(text[:2], lengths[:2], before[:2]).reshape(-1, len(WORDS))
            mg.cross_entropy(logits, summary[:2].reshape(-1)).backward()
        print("one step, to step through:", t.html(path))


if __name__ == "__main__":
    main()

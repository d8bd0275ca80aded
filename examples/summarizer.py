"""A summarizer: an encoder reads a report of several sentences, a decoder says who did what.

    it rained in Bonn . the bridge , which Emmy only looked at , has been mended by Ada .
    → Ada mended bridge

Reports come from templates. One sentence has the news; the others mention names and things that
did nothing. The decoder points at the words of its summary (Vinyals et al. 2015, arXiv:1506.03134),
so where it points is a map of the report. Three maskings are compared, each with several seeds:
"padding" hides what fills a report up, "causal" hides later words too, "none" hides nothing. Each
is tested on new reports, and on the same reports with four times as much padding, which costs the
model without a mask 6 to 29 of 100 summaries, and the others none.

    python examples/summarizer.py --quick      one seed and 50 steps, not 3 and 150
"""

import sys
from math import sqrt
from typing import NamedTuple

import numpy as np

import minigrad as mg
from layers import Decoder, Embedding, Encoder, Linear, Module, Rotary, causal
from minigrad.optim import Adam, clip_grad_norm, schedule

NAMES = "Ada Emmy Sofia Maryam Hedy Grace Katherine Barbara Rosalind Marie Lise Dorothy".split()
VERBS = "found built sold mended drawn lost measured painted".split()
THINGS = "bridge telescope engine compiler comet clock map tower ship garden piano lamp".split()
PLACES = "Bonn Basel Lyon Turin".split()
NEWS = (
    "after years of work {who} has {verb} the {thing}",
    "{who} , unlike {other} , has {verb} the {thing}",
    "the {thing} , which {other} only looked at , has been {verb} by {who}",
    "the {thing} has been {verb} by {who} and not by {other}",
)
ASIDES = (
    "it rained in {place}",
    "{other} has seen the {other_thing}",
    "the {other_thing} has not been {other_verb}",
    "{other} was in {place} and said nothing",
)
FIXED = [word for word in " ".join((*NEWS, *ASIDES)).split() if "{" not in word]
VOCABULARY = ["<pad>", "<start>", ".", *dict.fromkeys(FIXED), *PLACES, *NAMES, *VERBS, *THINGS]
NUMBER = {word: number for number, word in enumerate(VOCABULARY)}
PAD, START = range(2)
LONGEST, HEADS = 32, 4  # words of a report in training, filled up; heads of attention


def report(rng: np.random.Generator) -> tuple[list[str], list[int]]:
    """Words, one sentence of news among up to two others; where who, verb and thing stand."""
    who, other = rng.choice(NAMES, 2, replace=False)
    verb, other_verb = rng.choice(VERBS, 2, replace=False)
    thing, other_thing = rng.choice(THINGS, 2, replace=False)
    place = rng.choice(PLACES)
    before, after = rng.integers(0, 2, 2)  # sentences that say nothing
    forms = [*rng.choice(ASIDES, before), rng.choice(NEWS), *rng.choice(ASIDES, after)]
    filled = {"who": who, "verb": verb, "thing": thing, "place": place}
    filled |= {"other": other, "other_verb": other_verb, "other_thing": other_thing}
    sentences = [[*form.format(**filled).split(), "."] for form in forms]
    start = sum(map(len, sentences[:before]))
    where = [start + sentences[before].index(word) for word in (who, verb, thing)]
    return [word for sentence in sentences for word in sentence], where


class Batch(NamedTuple):
    text: np.ndarray  # (B, n) numbers of words, filled up with padding
    real: np.ndarray  # (B, n) True at a word, False at padding
    before: np.ndarray  # (B, 3) what was said before each word of the summary
    where: np.ndarray  # (B, 3) where each word of the summary stands


def batch(count: int, rng: np.random.Generator, n: int = LONGEST) -> Batch:
    reports = [report(rng) for _ in range(count)]
    text = np.full((count, n), PAD)
    for row, (words, _) in zip(text, reports, strict=True):
        row[: len(words)] = [NUMBER[word] for word in words]
    where = np.array([where for _, where in reports])
    summary = np.take_along_axis(text, where, axis=1)
    before = np.concatenate([np.full((count, 1), START), summary[:, :-1]], axis=1)
    return Batch(text, text != PAD, before, where)


class Summarizer(Module):
    def __init__(self, rng: np.random.Generator, masking: str, d_model: int = 48):
        settings = {"rng": rng, "dtype": np.float32}
        position, rule = Rotary(d_model // HEADS), causal if masking == "causal" else None
        self.masking, self.d_model = masking, d_model
        self.embedding = Embedding(len(VOCABULARY), d_model, **settings)
        self.encoder = Encoder(2, d_model, HEADS, 96, mask=rule, position=position, **settings)
        self.decoder = Decoder(1, d_model, HEADS, 96, position=position, **settings)
        self.query = Linear(d_model, d_model, **settings)
        self.key = Linear(d_model, d_model, **settings)

    def forward(self, text: np.ndarray, real: np.ndarray, before: np.ndarray) -> mg.Tensor:
        mask = None if self.masking == "none" else real[:, None]  # (B, 1, n)
        context = self.encoder(self.embedding(text), mask)  # (B, n, d)
        H = self.decoder(self.embedding(before), context, None, mask)  # (B, 3, d)
        S = mg.scale(self.query(H) @ self.key(context).mT, 1 / sqrt(self.d_model))  # (B, 3, n)
        return S if mask is None else mg.mask_add(S, mask)


def train(masking: str, seed: int, steps: int) -> Summarizer:
    rng = np.random.default_rng(seed)
    model = Summarizer(rng, masking)
    optimizer = Adam(model.parameters(), lr=5e-3)
    decay = schedule.cosine(optimizer, steps=steps, warmup=steps // 10)

    @mg.compile
    def step(text, real, before, where):
        optimizer.zero_grad()
        loss = mg.cross_entropy(model(text, real, before), where)
        loss.backward()
        clip_grad_norm(model.parameters(), 1.0)
        optimizer.step()
        decay.step()
        return loss

    for t in range(1, steps + 1):
        loss = step(*batch(32, rng)).item()
        if t % 200 == 0:
            print(f"{masking}, seed {seed}, step {t} of {steps}: loss {loss:.3f}")
    return model


def right(model: Summarizer, reports: Batch) -> float:
    """The share of summaries without a mistake."""
    with mg.no_grad():
        pointed = model(reports.text, reports.real, reports.before).numpy().argmax(axis=-1)
    return np.mean((pointed == reports.where).all(axis=1))


def tested(model: Summarizer, count: int) -> list[float]:
    """The share that is right; with four times as much padding; attention on padding there."""
    new = right(model, batch(count, np.random.default_rng(99)))
    padded = batch(count, np.random.default_rng(99), 4 * LONGEST)
    shares = [new, right(model, padded)]
    filled = ~padded.real  # (B, n)
    for_each = [
        (block.attention.attention_weights * filled[:, None, None]).sum(axis=-1)  # (B, h, n)
        for block in model.encoder.blocks
    ]
    of_words = [np.moveaxis(A, 1, -1)[~filled] for A in for_each]
    return [*shares, np.mean([A.mean() for A in of_words])]


def show(model: Summarizer):
    """A report, what the model says, and where it points for each word."""
    words, _ = report(np.random.default_rng(7))
    reports = batch(1, np.random.default_rng(7))
    with mg.no_grad():
        A = mg.softmax(model(reports.text, reports.real, reports.before)).numpy()[0]  # (3, n)
    summary = [words[k] for k in A.argmax(axis=-1)]
    print(f"\n{' '.join(words)}\n→ {' '.join(summary)}")
    for k, word in enumerate(words):
        if A[:, k].max() >= 0.05:
            row = "  ".join(f"{a:.2f} {'█' * round(10 * a):10}" for a in A[:, k])
            print(f"   {word:>12}  {row}".rstrip())


def main():
    quick = "--quick" in sys.argv
    seeds, steps, count = (1, 50, 60) if quick else (3, 150, 300)

    tables = {}
    for masking in ("padding", "causal", "none"):
        models = [train(masking, seed, steps) for seed in range(seeds)]
        tables[masking] = np.array([tested(model, count) for model in models])  # (seeds, 3)
        if masking == "padding":
            show(models[0])
    print(f"\nsummaries without a mistake, of {count}; lowest to highest of {seeds} seed(s)")
    print(f"{'masking':9}{'new reports':>16}{'more padding':>16}{'weight on padding':>20}")
    for masking, table in tables.items():
        ends = zip(table.min(axis=0), table.max(axis=0), strict=True)
        new, padded, weight = (f"{100 * low:.1f}–{100 * high:.1f} %" for low, high in ends)
        print(f"{masking:9}{new:>16}{padded:>16}{weight:>20}")
    assert tables["padding"][:, :2].min() > (0.5 if quick else 0.97)
    assert tables["padding"][:, 2].max() == 0.0
    assert tables["none"][:, 1].max() < tables["padding"][:, 1].min()
    assert tables["none"][:, 2].min() > 0.01


if __name__ == "__main__":
    main()

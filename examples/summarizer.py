"""A summarizer: an encoder reads a report of several sentences, a decoder says who did what.

    it rained in Bonn . the bridge , which Emmy only looked at , has been mended by Ada .
    → Ada mended bridge

Reports come from templates. One sentence has the news; the others mention names and things that
did nothing. The decoder points at the words of its summary (Vinyals et al. 2015, arXiv:1506.03134;
See et al. 2017, arXiv:1704.04368), so where it points is a map of the report, and it can say words
that it never saw: those share one number, <new>, and in training some words are replaced by it.

Three maskings are compared, each with several seeds. "padding" hides what fills a report up,
"causal" hides later words too, "none" hides nothing. Each is tested on new reports, on words never
seen, on reports longer than any in training, and on the same new reports with more padding.

    python examples/summarizer.py step.html      one step, with the padding mask, as a page, too
"""

import argparse
from math import sqrt
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

import minigrad as mg
from layers import (
    Decoder,
    Embedding,
    Encoder,
    Linear,
    Module,
    Rotary,
    combined_mask,
    create_causal_mask,
    padding_mask,
)  # fmt: skip
from minigrad.optim import Adam, clip_grad_norm, schedule

NAMES = (
    "Ada Emmy Sofia Maryam Hedy Grace Katherine Barbara Rosalind Marie Lise Dorothy Vera Jocelyn "
    "Chien Mary Caroline Florence Hypatia Maria"
).split()
VERBS = "found built sold mended drawn lost measured painted".split()
THINGS = (
    "bridge telescope engine compiler comet theorem clock map tower ship garden piano lamp mill"
).split()
NEVER_SEEN = {"name": "Ingrid Amalie Sonja".split(), "thing": "rocket violin canal".split()}
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
FIXED = " ".join((*NEWS, *ASIDES)).split()
FIXED = [word for word in dict.fromkeys(FIXED) if "{" not in word]
VOCABULARY = ["<pad>", "<start>", "<new>", ".", *FIXED, *PLACES, *NAMES, *VERBS, *THINGS]
NUMBER = {word: number for number, word in enumerate(VOCABULARY)}
PAD, START, NEW = range(3)
LONGEST = 32  # words of a report in training, filled up
MASKINGS = ("padding", "causal", "none")


class Report(NamedTuple):
    words: list[str]
    where: list[int]  # of who, verb and thing

    @property
    def summary(self) -> str:
        return " ".join(self.words[k] for k in self.where)


def report(rng: np.random.Generator, asides: int, unseen: bool = False) -> Report:
    """One sentence of news at a random place among the asides."""
    names = NEVER_SEEN["name"] if unseen else NAMES
    things = NEVER_SEEN["thing"] if unseen else THINGS
    who = rng.choice(names)
    verb, other_verb = rng.choice(VERBS, 2, replace=False)
    thing = rng.choice(things)
    sentences = []
    for form in (rng.choice(NEWS), *rng.choice(ASIDES, asides)):
        other = rng.choice([name for name in names if name != who])
        other_thing = rng.choice([one for one in things if one != thing])
        text = str(form).format(
            who=who, verb=verb, thing=thing, place=rng.choice(PLACES),
            other=other, other_thing=other_thing, other_verb=other_verb,
        )  # fmt: skip
        sentences.append([*text.split(), "."])
    news, order = sentences[0], rng.permutation(len(sentences))
    words = [word for k in order for word in sentences[k]]
    before = sum(len(sentences[k]) for k in order[: list(order).index(0)])
    return Report(words, [before + news.index(word) for word in (who, verb, thing)])


class Batch(NamedTuple):
    text: np.ndarray  # (B, n) numbers of words, filled up with padding
    lengths: np.ndarray  # (B,)
    before: np.ndarray  # (B, 3) what was said before each word of the summary
    where: np.ndarray  # (B, 3) where each word of the summary stands


def batch(reports: list[Report], rng: np.random.Generator, new: float = 0.0, n: int = 0) -> Batch:
    """Filled up to a multiple of 16, or to n. A share `new` of names and things becomes <new>."""
    lengths = np.array([len(one.words) for one in reports])
    n = n or -(-lengths.max() // 16) * 16
    text = np.full((len(reports), n), PAD)
    for row, one in zip(text, reports, strict=True):
        hidden = {word for word in {*NAMES, *THINGS} if rng.random() < new} if new else ()
        row[: len(one.words)] = [
            NEW if word in hidden else NUMBER.get(word, NEW) for word in one.words
        ]
    where = np.array([one.where for one in reports])
    said = np.take_along_axis(text, where, axis=1)
    before = np.concatenate([np.full((len(reports), 1), START), said[:, :-1]], axis=1)
    return Batch(text, lengths, before, where)


class Summarizer(Module):
    def __init__(self, rng: np.random.Generator, masking: str, d_model: int = 48) -> None:
        settings = {"rng": rng, "dtype": np.float32}
        heads = 4
        self.masking, self.d_model = masking, d_model
        self.embedding = Embedding(len(VOCABULARY), d_model, **settings)
        self.encoder = Encoder(2, d_model, heads, 96, position=Rotary(d_model // heads), **settings)
        self.decoder = Decoder(1, d_model, heads, 96, position=Rotary(d_model // heads), **settings)
        self.query = Linear(d_model, d_model, **settings)
        self.key = Linear(d_model, d_model, **settings)

    def forward(self, text: np.ndarray, lengths: np.ndarray, before: np.ndarray) -> mg.Tensor:
        hidden = None if self.masking == "none" else padding_mask(lengths, text.shape[1])
        mask = hidden
        if self.masking == "causal":
            mask = combined_mask(create_causal_mask(text.shape[1]), hidden)
        context = self.encoder(self.embedding(text), mask)  # (B, n, d)
        H = self.decoder(self.embedding(before), context, None, hidden)  # (B, 3, d)
        S = mg.scale(self.query(H) @ self.key(context).mT, 1 / sqrt(self.d_model))  # (B, 3, n)
        S = S if hidden is None else mg.mask_add(S, hidden)
        mg.softmax(S).named("A")  # the map: where each word of the summary points
        return S


def loss_of(model: Summarizer, given: Batch) -> mg.Tensor:
    S = model(given.text, given.lengths, given.before)
    return mg.cross_entropy(S.reshape(-1, S.shape[-1]), given.where.reshape(-1))


def train(masking: str, seed: int, steps: int) -> Summarizer:
    rng = np.random.default_rng(seed)
    model = Summarizer(rng, masking)
    optimizer = Adam(model.parameters(), lr=5e-3)
    decay = schedule.cosine(optimizer, steps=steps, warmup=steps // 10)

    @mg.compile
    def step(*given: np.ndarray) -> mg.Tensor:
        model.zero_grad()
        loss = loss_of(model, Batch(*given))
        loss.backward()
        clip_grad_norm(model.parameters(), 1.0)
        optimizer.step()
        decay.step()
        return loss

    bar = tqdm(range(steps), f"{masking}, seed {seed}")
    for _ in bar:
        reports = [report(rng, asides=rng.integers(0, 3)) for _ in range(32)]
        bar.set_postfix(loss=float(step(*batch(reports, rng, new=0.1))), refresh=False)
    return model


class Tested(NamedTuple):
    new: float  # shares of summaries without a mistake: of new reports,
    unseen: float  # of words never seen,
    longer: float  # of reports longer than any in training,
    padded: float  # of the new reports filled up with four times as much
    on_padding: float  # the share of the encoder's attention that padding gets there


def test(model: Summarizer, count: int) -> Tested:
    rng = np.random.default_rng(99)
    few = [report(rng, asides=rng.integers(0, 3)) for _ in range(count)]
    unseen = [report(rng, asides=rng.integers(0, 3), unseen=True) for _ in range(count)]
    longer = [report(rng, asides=4) for _ in range(count)]
    padded = batch(few, rng, n=4 * LONGEST)
    shares = [right(model, batch(reports, rng)) for reports in (few, unseen, longer)]
    with mg.capture("encoder/*/attention/A") as seen:
        shares.append(right(model, padded))
    filled = np.arange(4 * LONGEST) >= padded.lengths[:, None]  # (B, n)
    on_padding = np.mean([
        (met.value * filled[:, None, None]).sum(axis=-1).swapaxes(0, 1)[:, ~filled].mean()
        for met in seen
    ])  # fmt: skip
    return Tested(*shares, float(on_padding))


def right(model: Summarizer, given: Batch) -> float:
    with mg.no_grad():
        said = model(given.text, given.lengths, given.before).numpy().argmax(axis=-1)
    return float((said == given.where).all(axis=1).mean())


def show(model: Summarizer, one: Report) -> None:
    """A report, what the model says, and where it points for each word, as text."""
    given = batch([one], np.random.default_rng(0))
    with mg.no_grad(), mg.capture("summarizer/A") as seen:
        model(given.text, given.lengths, given.before)
    A = seen["summarizer/A"].value[0, :, : len(one.words)]  # (3, n)
    said = [one.words[k] for k in A.argmax(axis=-1)]
    print("\n" + " ".join(one.words))
    print(f"→ {' '.join(said)}   (right: {one.summary})")
    for k, word in enumerate(one.words):
        row = "  ".join(f"{a:.2f} {'█' * round(10 * a):10}" for a in A[:, k])
        if A[:, k].max() >= 0.05:
            print(f"   {word:>12}  {row}".rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", nargs="?", metavar="STEP.html", help="one step, as a page, too")
    parser.add_argument("--quick", action="store_true", help="one seed and 40 steps, not 3 and 150")
    given = parser.parse_args()
    seeds, steps, count = (1, 40, 60) if given.quick else (3, 150, 300)

    shown, found = None, {}
    for masking in MASKINGS:
        tested = []
        for seed in range(seeds):
            model = train(masking, seed, steps)
            tested.append(test(model, count))
            shown = shown or model  # the first, with the padding mask
        found[masking] = np.array(tested)  # (seeds, 5)

    rng = np.random.default_rng(7)
    show(shown, report(rng, asides=2))
    show(shown, report(rng, asides=2, unseen=True))

    print(f"\nsummaries without a mistake, of {count}; lowest to highest of {seeds} seeds")
    print(f"{'masking':9}{'new reports':>16}{'unseen words':>16}{'longer':>16}", end="")
    print(f"{'more padding':>16}{'on padding':>16}")
    for masking, table in found.items():
        ends = zip(table.min(axis=0), table.max(axis=0), strict=True)
        cells = (f"{100 * low:.1f}–{100 * high:.1f} %" for low, high in ends)
        print(f"{masking:9}" + "".join(f"{cell:>16}" for cell in cells))
    mean = {masking: table.mean(axis=0) for masking, table in found.items()}
    print("more padding: the same new reports; on padding: its share of the attention there")
    cost = 100 * (mean["padding"][3] - mean["none"][3])
    print(
        f"Without a mask {100 * mean['none'][4]:.0f} % of the attention goes to padding, ", end=""
    )
    print(f"and {cost:.1f} % more of the summaries have a mistake.")

    if given.page:
        one = batch([report(rng, asides=1), report(rng, asides=2)], rng)
        with mg.trace() as t:
            loss_of(shown, one).backward()
        print("one step, to step through:", t.html(given.page))
    worst = {masking: table.min(axis=0) for masking, table in found.items()}
    assert worst["padding"][:2].min() > (0.5 if given.quick else 0.97)
    assert found["padding"][:, 4].max() == 0.0
    assert found["none"][:, 4].min() > 0.01


if __name__ == "__main__":
    main()

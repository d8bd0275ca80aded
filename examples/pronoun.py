"""What does "it" stand for? A small model learns to say, and its attention is the answer.

The animal didn't cross the street because it was too tired: it is the animal. Let it be too wide,
and it is the street. Animals tire and streets are wide, and nothing else in the sentence tells.
The model has two layers of attention. In the first, "it" reads the adjective. In the second, "it"
looks back at the words, and the word it looks at is the answer (a pointer network: Vinyals et al.
2015, arXiv:1506.03134). The test is on pairs of nouns that never stood together in training,
"animal" with "street" among them.

    python examples/pronoun.py                      --quick trains with two seeds, not with five
    minigrad explain examples/pronoun.py:tired --out explained/        and pronoun.py:wide
    minigrad play examples/pronoun.py:tired                            then make "tired" "wide"
"""

import sys
from math import sqrt

import numpy as np

import minigrad as mg
from layers import Embedding, LearnedPosition, Linear, Module, SelfAttention
from minigrad.optim import Adam

ANIMALS = "animal dog cat horse child man woman bird".split()
STREETS = "street road river bridge path lane field canal".split()
OF_ANIMALS = "tired sleepy hungry scared lazy weak".split()
OF_STREETS = "wide long busy muddy icy deep".split()
TEMPLATES = (
    "The {animal} didn't cross the {street} because it was too {adjective}",
    "The {street} couldn't stop the {animal} because it was too {adjective}",
)
FIXED = "The the didn't couldn't cross stop because it was too".split()
VOCABULARY = [*FIXED, *ANIMALS, *STREETS, *OF_ANIMALS, *OF_STREETS]
NUMBER = {word: number for number, word in enumerate(VOCABULARY)}
LENGTH = 11  # words in a sentence
IT, ADJECTIVE = 7, 10  # their positions
WIDTH, D_K = 32, 16
TIRED = TEMPLATES[0].format(animal="animal", street="street", adjective="tired").split()
WIDE = TEMPLATES[0].format(animal="animal", street="street", adjective="wide").split()


def sentences(held_out: bool) -> tuple[np.ndarray, np.ndarray]:
    """Word numbers (N, 11) and the position of the noun that "it" stands for (N,)."""
    rows, nouns = [], []
    for i, animal in enumerate(ANIMALS):
        for j, street in enumerate(STREETS):
            if ((i + j) % 5 == 0) != held_out:
                continue
            for adjective in OF_ANIMALS + OF_STREETS:
                for template in TEMPLATES:
                    sentence = template.format(animal=animal, street=street, adjective=adjective)
                    words = sentence.split()
                    rows.append([NUMBER[word] for word in words])
                    nouns.append(words.index(animal if adjective in OF_ANIMALS else street))
    return np.array(rows), np.array(nouns)


class Pointer(Module):
    """A = softmax(S),    S = H W_Q (X W_K)ᵀ / √d_k: where each of H points among X, and no values.

    Gives S, from which the loss is computed, and A.
    """

    def __init__(self, rng: np.random.Generator):
        self.query = Linear(WIDTH, D_K, rng=rng)
        self.key = Linear(WIDTH, D_K, rng=rng)

    def forward(self, H: mg.Tensor, X: mg.Tensor) -> tuple[mg.Tensor, mg.Tensor]:
        Q = self.query(H).named("Q")  # (B, n, d_k)
        K = self.key(X).named("K")  # (B, n, d_k)
        S = mg.scale(Q @ K.mT, 1 / sqrt(D_K)).named("S")  # (B, n, n)
        A = mg.softmax(S).named("A")  # (B, n, n)
        return S, A


class Pronoun(Module):
    def __init__(self, rng: np.random.Generator):
        self.embedding = Embedding(len(VOCABULARY), WIDTH, rng=rng)
        self.position = LearnedPosition(LENGTH, WIDTH, rng=rng)
        for table in (self.embedding.W, self.position.P):
            table.assign_(rng.normal(0.0, 0.3, table.shape))
        self.read = SelfAttention(WIDTH, D_K, D_K, rng=rng)
        self.point = Pointer(rng)

    def forward(self, tokens: np.ndarray) -> tuple[mg.Tensor, mg.Tensor]:
        X = self.position(self.embedding(tokens))  # (B, n, d_model)
        H = (X + self.read(X)).named("H")  # (B, n, d_model)   "it" has read the adjective
        return self.point(H, X)  # S and A, (B, n, n)   row "it" is the answer


def trained(seed: int, steps: int = 500) -> Pronoun:
    rng = np.random.default_rng(seed)
    model = Pronoun(rng)
    optimizer = Adam(model.parameters(), lr=3e-3)
    tokens, noun = sentences(held_out=False)
    for _ in range(steps):
        rows = rng.integers(0, len(tokens), 64)
        optimizer.zero_grad()
        S, _ = model(tokens[rows])
        mg.cross_entropy(S[:, IT], noun[rows]).backward()
        optimizer.step()
    model.zero_grad()
    return model


def answers(model: Pronoun) -> tuple[float, float]:
    """Of the held-out sentences: how many are right, and the least attention on the right noun."""
    tokens, noun = sentences(held_out=True)
    with mg.no_grad():
        _, A = model(tokens)
    of_it = A.numpy()[:, IT]  # (N, n)
    right = of_it.argmax(axis=-1) == noun
    return right.mean(), of_it[np.arange(len(noun)), noun].min()


# Trained here, when the file is read, so that `minigrad explain` sees one sentence and no training.
MODEL = trained(seed=0)


def behind(words: list[str], right: str, wrong: str) -> mg.Tensor:
    """By how much the wrong noun is ahead of the right one, as a difference of scores of "it"."""
    S, _ = MODEL(np.array([[NUMBER[word] for word in words]]))  # (1, n, n)
    ahead = S[0, IT, words.index(wrong)].named("wrong")
    return (ahead - S[0, IT, words.index(right)].named("right")).named("loss")


def tired(words: list[str] = TIRED) -> mg.Tensor:
    """The loss of the sentence that ends in "tired": "it" is the animal."""
    return behind(words, "animal", "street")


def wide() -> mg.Tensor:
    """The loss of the sentence that ends in "wide": "it" is the street."""
    return behind(WIDE, "street", "animal")


tired.tokens = TIRED  # `minigrad explain` names the positions by them
wide.tokens = WIDE


def heat_map(A: np.ndarray, words: list[str]) -> list[str]:
    """A line for each query, two shaded cells for each key; "it" is marked."""
    lines = []
    for i, row in enumerate(A):
        cells = "".join(2 * " ░▒▓█"[np.searchsorted([0.05, 0.2, 0.4, 0.7], x)] for x in row)
        lines.append(f"{'→' if i == IT else ' '} {words[i]:>8} {cells}")
    return lines


class Seen:
    """One run of a sentence, forward and backward: what both layers looked at, and why."""

    def __init__(self, function):
        with mg.trace() as t:
            loss = function()
            loss.backward()
        self.loss = loss.item()
        self.words = function.tokens
        self.read = t["read/A"].value[0]  # (n, n)
        self.slope = t["read/A"].gradient[0]  # (n, n)
        self.point = t["point/A"].value[0]  # (n, n)


def show_attention(seen: list[Seen]):
    """Both layers for both sentences, beside each other."""
    for layer in ("read", "point"):
        print(f"\nthe layer {layer!r} (a row for each query, keys in the same order):")
        maps = [heat_map(getattr(text, layer), text.words) for text in seen]
        for lines in zip(*maps, strict=True):
            print("   ".join(lines).rstrip())


def show_reason(seen: list[Seen]):
    """What each word that "it" reads adds to the loss.

    The loss is linear in what "it" reads, so this is exactly A ⊙ ∂L/∂A.
    """
    print('\n"it" alone: how much it reads each word, what that adds to the loss, where it points')
    print(f"{'':11}" + "   reads    adds  points" * 2)
    for k, word in enumerate(TIRED):
        line = f"{word if k != ADJECTIVE else 'tired/wide':11}"
        for text in seen:
            adds = text.read[IT, k] * text.slope[IT, k]
            line += f"{text.read[IT, k]:8.2f}{adds:+8.2f}{text.point[IT, k]:8.2f}"
        print(line)
    for text in seen:
        adds = text.read[IT] * text.slope[IT]
        print(f"too {text.words[-1]}: loss {text.loss:.1f}, {adds[ADJECTIVE]:.1f} by the adjective")
        assert text.read[IT, ADJECTIVE] > 0.99
        assert adds[ADJECTIVE] < -5  # the wrong noun falls behind by it


def show_cut():
    """Without the edge from "it" to the adjective, both sentences have one answer."""
    keep = np.ones((LENGTH, LENGTH))
    keep[IT, ADJECTIVE] = 0.0
    with mg.no_grad(), mg.replace("read/A", lambda A: A * keep):
        leads = [tired().item(), -wide().item()]
        right, _ = answers(MODEL)
    print('\nThe edge from "it" to the adjective is cut. By how much the street is then ahead:')
    print(f"{leads[0]:+.2f} for tired, {leads[1]:+.2f} for wide; {right:.0%} of the test is right.")
    assert abs(leads[0] - leads[1]) < 0.1
    assert abs(right - 0.5) < 0.02


def main():
    seeds = 2 if "--quick" in sys.argv else 5

    for seed in range(seeds):
        model = MODEL if seed == 0 else trained(seed)
        right, least = answers(model)
        print(f"seed {seed}: {right:.1%} of held-out sentences right; ", end="")
        print(f"at least {least:.4f} of the attention on the right noun")
        assert right == 1.0
        assert least >= 0.999
    seen = [Seen(tired), Seen(wide)]
    show_attention(seen)
    show_reason(seen)
    show_cut()


if __name__ == "__main__":
    main()

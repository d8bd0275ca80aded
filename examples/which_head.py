"""Which head does it? Each is measured by a run of its own.

A model learns to go on with random tokens that are said again (see induction_heads.py). It then
reads a b c d e f a b c, and says d. In a second text one token is another, a b c X e f a b c, and
the answer is X. How much of the answer does each head carry? Its output in the second text is put
into the run of the first, and the answer moves: a run for each head. Last, the model is tried
without each head.
"""

import argparse

import numpy as np
from tqdm import tqdm

import minigrad as mg
from layers import LanguageModel, Rotary
from minigrad.optim import Adam

TOKENS, LENGTH, HEADS = 16, 14, 4


def repeated(n: int, rng: np.random.Generator) -> np.ndarray:
    """(n, 15) tokens: in each row 4 to 7 random ones, over and over."""
    period = rng.integers(4, 8, n)
    once = rng.permuted(np.tile(np.arange(TOKENS), (n, 1)), axis=1)  # no token twice
    return np.take_along_axis(once, np.arange(LENGTH + 1) % period[:, None], axis=1)


def trained(rng: np.random.Generator, n_steps: int) -> LanguageModel:
    model = LanguageModel(
        TOKENS, d_model=32, n_heads=HEADS, n_layers=2, rng=rng, dtype=np.float32,
        position=Rotary(8), tied=False,
    )  # fmt: skip
    optimizer = Adam(model.parameters(), lr=1e-2)

    @mg.compile
    def step(tokens: np.ndarray) -> mg.Tensor:
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])[:, 7:].reshape(-1, TOKENS)
        loss = mg.cross_entropy(logits, tokens[:, 8:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    bar = tqdm(range(n_steps), "which head")
    for _ in bar:
        loss = step(repeated(32, rng)).item()
        bar.set_postfix(loss=float(loss), refresh=False)
    print(f"loss {loss:.3f} (guessing: {np.log(TOKENS):.3f})")
    return model


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="200 steps of training, not 600")
    quick = parser.parse_args().quick

    rng = np.random.default_rng(1)
    model = trained(rng, 200 if quick else 600)
    once = rng.permuted(np.tile(np.arange(TOKENS), (100, 1)), axis=1)
    text = once[:, [0, 1, 2, 3, 4, 5, 0, 1, 2]]
    other_text = once[:, [0, 1, 2, 6, 4, 5, 0, 1, 2]]

    def gain(tokens: np.ndarray) -> mg.Tensor:
        """By how much d is ahead of X as the next token, on average."""
        logits = model(tokens)[:, -1]
        rows = np.arange(len(tokens))
        return mg.mean(logits[rows, once[:, 3]] - logits[rows, once[:, 6]]).named("gain")

    with mg.no_grad():
        with mg.capture("blocks.*/attention/O") as outputs:
            there = gain(other_text).item()
        here = gain(text).item()
        print(f"\nd is ahead of X by {here:.2f}; in the other text, by {there:.2f}")
        print("with one head's output of the other text put in:")
        effects = []
        for layer, output in enumerate(outputs):
            path = f"blocks.{layer}/attention/O"
            for head in range(HEADS):
                head_index = np.s_[:, head]
                with mg.replace(path, output.value[head_index], index=head_index):
                    effects.append(gain(text).item() - here)
                print(f"   layer {layer} head {head}: {effects[-1]:+.2f}")

        whole = share_of(model, text, once[:, 3])
        print(f"\nd is said in {whole:.0%} of the texts; without a head:")
        for layer in range(2):
            for head in range(HEADS):
                with mg.ablate(f"blocks.{layer}/attention/A", index=np.s_[:, head]):
                    print(f"   layer {layer} head {head}: {share_of(model, text, once[:, 3]):.0%}")

    assert here > 0 > there
    if not quick:
        assert whole > 0.8
        assert max(effects) < 0  # each head carries a part of the answer


def share_of(model: LanguageModel, text: np.ndarray, answer: np.ndarray) -> float:
    return float((model(text).numpy()[:, -1].argmax(axis=-1) == answer).mean())


if __name__ == "__main__":
    main()

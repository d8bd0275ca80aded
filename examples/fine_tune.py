"""A language model that copies learns to encipher, by low-rank adapters beside frozen weights.

It has learned to say six digits again after a sign; how it finds them is in its attention. The new
task is to say each digit plus one. Adapters of rank 2 learn it; then they are merged, and the
model is an ordinary one again. The same adapters beside weights that learned nothing stay far off.

    python examples/fine_tune.py adapters.npz      the adapters alone, as a file, too
"""

import argparse

import numpy as np
from tqdm import tqdm

import minigrad as mg
from layers import LanguageModel, lora
from minigrad.optim import Adam

DIGITS, LENGTH, SIGN = 10, 6, 10


def sequences(n: int, shift: int, rng: np.random.Generator) -> np.ndarray:
    """Digits, the sign, and each digit plus the shift: (n, 2 · LENGTH + 1)."""
    digits = rng.integers(0, DIGITS, (n, LENGTH))
    return np.concatenate([digits, np.full((n, 1), SIGN), (digits + shift) % DIGITS], axis=1)


def new_model() -> LanguageModel:
    settings = {"d_model": 32, "n_heads": 2, "n_layers": 2, "max_len": 2 * LENGTH}
    return LanguageModel(DIGITS + 1, rng=0, dtype=np.float32, **settings)


def train(model: LanguageModel, title: str, steps: int, shift: int, lr: float) -> float:
    """The loss of the last step; what is frozen stays as it is."""
    rng = np.random.default_rng(1)
    optimizer = Adam([p for p in model.parameters() if p.requires_grad], lr)

    @mg.compile
    def step(tokens: np.ndarray, wanted: np.ndarray) -> mg.Tensor:
        optimizer.zero_grad()
        logits = model(tokens)[:, LENGTH:]  # what comes after the sign
        loss = mg.cross_entropy(logits.reshape(-1, DIGITS + 1), wanted.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    bar = tqdm(range(steps), title)
    for _ in bar:
        both = sequences(64, shift, rng)
        loss = step(both[:, :-1], both[:, LENGTH + 1 :].copy())
        bar.set_postfix(loss=float(loss), refresh=False)
    return float(loss.item())


def right(model: LanguageModel, shift: int) -> float:
    """The share of digits after the sign that are the likeliest."""
    both = sequences(500, shift, np.random.default_rng(99))
    with mg.no_grad():
        answers = model(both[:, :-1]).numpy()[:, LENGTH:].argmax(axis=-1)
    return float((answers == both[:, LENGTH + 1 :]).mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", metavar="ADAPTERS.npz", help="keep the adapters there")
    parser.add_argument("--quick", action="store_true", help="80 and 40 steps, not 300 and 150")
    options = parser.parse_args()
    before, after = (80, 40) if options.quick else (300, 150)

    model = new_model()
    train(model, "copying", before, shift=0, lr=5e-3)
    print(f"copies {right(model, 0):.1%} of the digits, enciphers {right(model, 1):.1%}")

    adapters = lora(model, rank=2, alpha=4, targets="*", rng=0)
    trained = sum(p.size for p in adapters.parameters())
    share = trained / (sum(p.size for p in model.parameters()) - trained)
    loss = train(model, "adapters", after, shift=1, lr=1e-2)
    print(f"adapters: {trained:,} numbers, {share:.0%} of the model; loss {loss:.4f}")
    enciphered = right(model, 1)
    print(f"enciphers {enciphered:.1%}")

    untaught = new_model()
    lora(untaught, rank=2, alpha=4, targets="*", rng=0)
    untaught_loss = train(untaught, "untaught", after, shift=1, lr=1e-2)
    print(f"the same beside untaught weights: loss {untaught_loss:.4f}")

    if options.file:
        mg.save(options.file, adapters=adapters)
    tokens = sequences(5, 1, np.random.default_rng(7))[:, :-1]
    wrapped = model(tokens).numpy()
    adapters.merge()
    apart = np.abs(model(tokens).numpy() - wrapped).max()
    names = [path for path, _ in model.named_parameters()]
    print(f"merged: an ordinary model again, its logits within {apart:.1e}")
    assert names == [path for path, _ in new_model().named_parameters()]
    assert apart < 1e-4
    assert share < 0.1
    assert enciphered > 0.98
    assert loss < 0.1 * untaught_loss


if __name__ == "__main__":
    main()

"""Two layers of attention learn to copy: what followed this token last time will follow it again.

Sequences are some random tokens, over and over, so what comes can be known, but not from how far
back it stood: that differs. One layer cannot do it; two can (Olsson et al. 2022, arXiv:2209.11895):
a head of the first looks at the token before, a head of the second, the induction head, at the
token after the last one like this. Both are found here by their attention alone.

    python examples/induction_heads.py --quick      60 steps of training, not 400
"""

import sys

import numpy as np

import minigrad as mg
from layers import LanguageModel, Rotary
from minigrad.optim import Adam, clip_grad_norm, schedule

TOKENS, LENGTH, KNOWN = 24, 24, 12  # from the twelfth on, every token was there before


def repeated(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(n, 24) tokens, in each row 5 to 12 random ones over and over; how many, (n,)."""
    period = rng.integers(5, KNOWN + 1, n)
    once = rng.permuted(np.tile(np.arange(TOKENS), (n, 1)), axis=1)  # no token twice
    return np.take_along_axis(once, np.arange(LENGTH) % period[:, None], axis=1), period


def main():
    quick = "--quick" in sys.argv
    n_steps = 60 if quick else 400

    rng = np.random.default_rng(0)
    model = LanguageModel(
        TOKENS, d_model=64, n_heads=4, n_layers=2, rng=rng, dtype=np.float32,
        position=Rotary(16), tied=False,
    )  # fmt: skip
    optimizer = Adam(model.parameters(), lr=3e-3)
    decay = schedule.cosine(optimizer, steps=n_steps, warmup=n_steps // 10)

    @mg.compile
    def step(tokens):
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])[:, KNOWN - 1 :]  # (B, 12, 24)
        loss = mg.cross_entropy(logits, tokens[:, KNOWN:])
        loss.backward()
        clip_grad_norm(model.parameters(), 1.0)
        optimizer.step()
        decay.step()
        return loss

    for t in range(1, n_steps + 1):
        loss = step(repeated(64, rng)[0]).item()
        if t % 50 == 0:
            print(f"step {t} of {n_steps}: loss {loss:.3f}")
    print(f"loss of what can be known {loss:.3f} (guessing: 3.178)")

    tokens, period = repeated(200, np.random.default_rng(99))
    with mg.no_grad():
        likeliest = model(tokens[:, :-1]).numpy().argmax(axis=-1)
    right = (likeliest[:, KNOWN - 1 :] == tokens[:, KNOWN:]).mean()
    weights = [block.attention.attention_weights for block in model.decoder.blocks]  # (B, h, n, n)
    i, t = np.arange(200)[:, None], np.arange(KNOWN, LENGTH - 1)
    last = t - period[:, None]  # where the token at t stood before
    before = [A[i, :, t, t - 1].mean(axis=(0, 1)) for A in weights]
    after = [A[i, :, t, last + 1].mean(axis=(0, 1)) for A in weights]
    print(f"{right:.1%} of what can be known is known")
    print("on the token before, by heads of the first layer:", before[0].round(2))
    print("on the one after the last like this, by those of the second:", after[1].round(2))
    if not quick:
        assert right > 0.95
        assert before[0].max() > 0.25  # the heads may share it; evenly spread it were 0.06
        assert after[1].max() > 0.25
    assert loss < np.log(TOKENS) - (0.02 if quick else 2)


if __name__ == "__main__":
    main()

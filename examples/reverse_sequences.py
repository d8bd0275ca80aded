"""An encoder and a decoder learn to say a sequence backwards, token by token.

The attention of the decoder on the encoder shows how: token t looks at position n - 1 - t, the
other diagonal.

    python examples/reverse_sequences.py step.html      one step, as a page, too
"""

import argparse

import numpy as np
from tqdm import tqdm

import minigrad as mg
from layers import Decoder, Embedding, Encoder, LearnedPosition, Linear, Module, create_causal_mask
from minigrad.optim import Adam, clip_grad_norm, schedule

TOKENS, LENGTH, START = 10, 8, 10  # the start is a token of its own


class Reverser(Module):
    def __init__(self, rng: np.random.Generator, d_model: int = 32) -> None:
        settings = {"rng": rng, "dtype": np.float32}
        self.embedding = Embedding(TOKENS + 1, d_model, **settings)
        self.position = LearnedPosition(LENGTH, d_model, **settings)
        self.encoder = Encoder(1, d_model, 2, 64, **settings)
        self.decoder = Decoder(1, d_model, 2, 64, **settings)
        self.out = Linear(d_model, TOKENS, **settings)

    def forward(self, tokens: np.ndarray, answer: np.ndarray) -> mg.Tensor:
        context = self.encoder(self.position(self.embedding(tokens)))  # (B, n, d)
        H = self.position(self.embedding(answer))  # (B, m, d), what was said so far
        mask = create_causal_mask(answer.shape[1])
        return self.out(self.decoder(H, context, mask))  # (B, m, 10)

    def say(self, tokens: np.ndarray) -> np.ndarray:
        """The likeliest token after what was said, `LENGTH` times."""
        answer = np.full((len(tokens), 1), START)
        with mg.no_grad():
            for _ in range(LENGTH):
                after = self(tokens, answer).numpy()[:, -1].argmax(axis=-1)
                answer = np.concatenate([answer, after[:, None]], axis=1)
        return answer[:, 1:]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", nargs="?", metavar="STEP.html", help="one step, as a page, too")
    parser.add_argument("--quick", action="store_true", help="60 steps of training, not 300")
    options = parser.parse_args()
    n_steps = 60 if options.quick else 300

    rng = np.random.default_rng(0)
    model = Reverser(rng)
    optimizer = Adam(model.parameters(), lr=5e-3)
    decay = schedule.cosine(optimizer, steps=n_steps, warmup=n_steps // 10)

    @mg.compile
    def step(tokens: np.ndarray, answer: np.ndarray, wanted: np.ndarray) -> mg.Tensor:
        optimizer.zero_grad()
        logits = model(tokens, answer)
        loss = mg.cross_entropy(logits.reshape(-1, TOKENS), wanted.reshape(-1))
        loss.backward()
        clip_grad_norm(model.parameters(), 1.0)
        optimizer.step()
        decay.step()
        return loss

    bar = tqdm(range(n_steps), "reverse sequences")
    for _ in bar:
        tokens = rng.integers(0, TOKENS, (64, LENGTH))
        wanted = tokens[:, ::-1].copy()
        answer = np.concatenate([np.full((64, 1), START), wanted[:, :-1]], axis=1)
        loss = step(tokens, answer, wanted)
        bar.set_postfix(loss=float(loss), refresh=False)

    tokens = np.random.default_rng(99).integers(0, TOKENS, (1000, LENGTH))
    right = (model.say(tokens) == tokens[:, ::-1]).all(axis=1).mean()
    print(f"{right:.1%} of 1,000 new sequences are said backwards without a mistake")
    A = model.decoder.blocks[0].cross_attention.attention_weights  # of the last call: (B, h, m, n)
    print("the other diagonal's share of the attention, best head:", end=" ")
    share = A[..., ::-1].diagonal(axis1=-2, axis2=-1).mean(axis=(0, 2)).max()
    print(f"{share:.2f} (evenly spread: {1 / LENGTH:.2f})")
    assert loss.item() < (1.8 if options.quick else 0.05)
    assert right > 0.99 or options.quick
    assert share > 1 / LENGTH
    if options.page:
        with mg.trace() as t:
            logits = model(tokens[:2], tokens[:2, ::-1]).reshape(-1, TOKENS)
            mg.cross_entropy(logits, tokens[:2, ::-1].reshape(-1)).backward()
        print("one step, to step through:", t.html(options.page))


if __name__ == "__main__":
    main()

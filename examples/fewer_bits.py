"""The same network in float32, in float16, and in integers of few bits: what it learns and weighs.

In float16 the smallest gradients would become zero, so the loss is scaled up; the optimizer moves
float32 copies of the weights. Once trained, a network computes in integers: of 8 bits, its matrices
take a quarter of float32, all that it holds a third, and what it says hardly changes. Of fewer,
rounding afterwards costs right answers, and changes how evenly heads look; trained on with the
rounding in every product, the network keeps both. The digits are those of digits.py, read row by
row as tokens.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import minigrad as mg
from layers import LearnedPosition, Linear, Module, TransformerBlock, quantize, weight_bytes
from minigrad.data import batches
from minigrad.optim import AdamW, LossScale, schedule

D = 24
BITS = (8, 4, 3)


class Reader(Module):
    """An image's eight rows as tokens, one block of attention over them, and their mean."""

    def __init__(self, rng: Any, dtype: Any) -> None:
        keywords = {"rng": rng, "dtype": dtype}
        self.dtype = np.dtype(dtype)
        self.embed = Linear(8, D, **keywords)
        self.position = LearnedPosition(8, D, **keywords)
        self.block = TransformerBlock(D, 4, **keywords)
        self.out = Linear(D, 10, **keywords)

    def forward(self, X: Any) -> Any:
        H = self.block(self.position(self.embed(X)))  # (B, 8, D)
        return self.out(mg.mean(H, axis=1))  # (B, 10)


def images(dtype: Any) -> tuple[np.ndarray, ...]:
    """Pixels (n, 8, 8) and digits (n,), to learn from and to be tested on."""
    with np.load(Path(__file__).with_name("digits.npz")) as file:
        X = (file["images"].reshape(-1, 8, 8) / 8 - 1).astype(dtype)
        y = file["labels"].astype(np.int64)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order[:1347]], y[order[:1347]], X[order[1347:]], y[order[1347:]]


def train(model: Module, epochs: int, seed: int, lr: float, title: str) -> LossScale:
    """Train a model as it is; what scaled its loss."""
    X, y, _, _ = images(model.dtype)
    rng = np.random.default_rng(seed)
    optimizer = AdamW(model.parameters(), lr=lr)
    scaler = LossScale(optimizer, scale=2.0**15)
    slower = schedule.cosine(optimizer, epochs * (len(y) // 32))

    @mg.compile
    def step(x: np.ndarray, digit: np.ndarray) -> None:
        model.zero_grad()
        scaler.backward(mg.cross_entropy(model(x), digit))
        scaler.step()
        slower.step()

    for _ in tqdm(range(epochs), title):
        for x, digit in batches(X, y, batch_size=32, rng=rng, drop_last=True):
            step(x, digit)
    return scaler


def tested(model: Any) -> tuple[float, np.ndarray, np.ndarray]:
    """The share of right answers on images never seen, the logits, and each head's entropy."""
    _, _, X, y = images(model.dtype)
    with mg.no_grad():
        logits = model(X).numpy().astype(np.float64)
    A = model.block.attention.attention_weights.astype(np.float64)  # (B, h, 8, 8)
    entropy = -np.sum(A * np.log(np.maximum(A, 1e-30)), axis=-1).mean(axis=(0, 2))
    return float((logits.argmax(axis=1) == y).mean()), logits, entropy


def rms(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(error**2)))


def show_kinds(whole: Any, half: Any, small: Any) -> dict[str, float]:
    """A row for each kind of number; the share of right answers of each."""
    print("           bytes of weights   right   logits differ from float32's by (rms)")
    _, wanted, _ = tested(whole)
    found = {}
    for name, model in (("float32", whole), ("float16", half), ("int8", small)):
        found[name], logits, _ = tested(model)
        off = rms(logits - wanted) / rms(wanted)
        print(f"{name:8} {weight_bytes(model):18,}  {found[name]:.1%}   {off:.1%}")
    return found


def unrounded(model: Module) -> Reader:
    """The network with a model's weights and no rounding."""
    network = Reader(np.random.default_rng(0), np.float32)
    state = {path.replace(".W.W", ".W"): x for path, x in model.state_dict().items()}
    for name in "QKVO":
        path = f"block.attention.W_{name}"
        state[path] = state.pop(f"{path}.W", state.get(path))
    for name in ("1", "2"):
        path = f"block.feed_forward.W_{name}"
        state[path] = state.pop(f"{path}.W", state.get(path))
    network.load_state_dict({path: state[path] for path in network.state_dict()})
    return network


def show_bits(whole: Any, epochs: int, seed: int) -> dict[int, list[tuple[float, float]]]:
    """By bits, right answers and how far rounding moves the heads' entropies from those of the same
    weights unrounded: of the trained network rounded afterwards, and of it trained on for that.
    """
    right, _, entropy = tested(whole)
    X = images(np.float32)[0]
    print(f"\nfloat32: {right:.1%} right, entropy of heads {entropy.round(2)} nats")
    print("       rounded afterwards     trained for it")
    print("bits   right  entropy off     right  entropy off")
    found: dict[int, list[tuple[float, float]]] = {}
    for bits in BITS:
        afterwards = quantize(whole, X, bits=bits, scores=True)
        learning = quantize(whole, X, bits=bits, train=True, scores=True)
        train(learning, epochs, seed, lr=3e-3, title=f"training for {bits} bits")
        trained = quantize(learning, X, bits=bits, scores=True)
        found[bits] = []
        for model, exact in ((afterwards, whole), (trained, unrounded(learning))):
            share, _, entropy = tested(model)
            found[bits].append((share, rms(entropy - tested(exact)[2])))
        cells = "     ".join(f"{share:6.1%}  {off:11.3f}" for share, off in found[bits])
        print(f"{bits:4}  {cells}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer epochs")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    epochs = 4 if options.quick else 8
    whole, half = (Reader(np.random.default_rng(options.seed), t) for t in (np.float32, np.float16))
    train(whole, epochs, options.seed, lr=1e-2, title="training in float32")
    scaler = train(half, epochs, options.seed, lr=1e-2, title="training in float16")
    small = quantize(whole, images(np.float32)[0][:64])
    right = show_kinds(whole, half, small)
    print(f"trained in float16: {scaler}")
    assert min(right.values()) > 0.9
    assert right["int8"] > right["float32"] - 0.01
    assert weight_bytes(small) < 0.4 * weight_bytes(whole)
    assert scaler.skipped < 5

    by_bits = show_bits(whole, epochs // 2, options.seed)
    gains = {bits: trained[0] - rounded[0] for bits, (rounded, trained) in by_bits.items()}
    assert by_bits[8][1][0] > right["float32"] - 0.01  # the same accuracy
    assert gains[3] > 0.01  # better than rounding afterwards by far, at 4 bits a little
    assert gains[4] > -0.02  # so little that the processor's rounding may decide


if __name__ == "__main__":
    main()

"""The same network in float32, in float16, and in 8-bit integers: what it learns, weighs and costs.

In float16 the smallest gradients would become zero, so the loss is scaled up; the optimizer moves
float32 copies of the weights. Once trained, a network computes in 8-bit integers: weights take a
quarter of float32, and what it says hardly changes. The digits are those of digits.py.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import minigrad as mg
from layers import Linear, Module, Sequential, quantize, weight_bytes
from minigrad.data import batches
from minigrad.optim import AdamW, LossScale


def images(dtype: Any) -> tuple[np.ndarray, ...]:
    """Pixels (n, 64) and digits (n,), to learn from and to be tested on."""
    with np.load(Path(__file__).with_name("digits.npz")) as file:
        X = (file["images"].reshape(-1, 64) / 8 - 1).astype(dtype)
        y = file["labels"].astype(np.int64)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order[:1347]], y[order[:1347]], X[order[1347:]], y[order[1347:]]


def trained(dtype: Any, epochs: int) -> tuple[Module, LossScale]:
    X, y, _, _ = images(dtype)
    rng = np.random.default_rng(0)
    made = [Linear(a, b, rng=rng, dtype=dtype) for a, b in ((64, 128), (128, 64), (64, 10))]
    model = Sequential(made[0], mg.relu, made[1], mg.relu, made[2])
    scaler = LossScale(AdamW(model.parameters(), lr=3e-3), scale=2.0**15)
    for _ in tqdm(range(epochs), f"training in {np.dtype(dtype)}"):
        for x, digit in batches(X, y, batch_size=32, rng=rng):
            model.zero_grad()
            scaler.backward(mg.cross_entropy(model(mg.tensor(x)), digit))
            scaler.step()
    return model, scaler


def tested(model: Module, dtype: Any) -> tuple[float, np.ndarray]:
    """The share of right answers on images never seen, and the logits."""
    _, _, X, y = images(dtype)
    with mg.no_grad():
        logits = model(X).numpy()
    return float((logits.argmax(axis=1) == y).mean()), logits.astype(np.float64)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="4 epochs of training, not 12")
    epochs = 4 if parser.parse_args().quick else 12
    whole, _ = trained(np.float32, epochs)
    half, scaler = trained(np.float16, epochs)
    small = quantize(whole, images(np.float32)[0][:1])
    print("           bytes of weights   right   logits differ from float32's by (rms)")
    wanted = tested(whole, np.float32)[1]
    found = {}
    for name, model, dtype in (
        ("float32", whole, np.float32),
        ("float16", half, np.float16),
        ("int8", small, np.float32),
    ):
        found[name], logits = tested(model, dtype)
        off = np.sqrt(np.mean((logits - wanted) ** 2) / np.mean(wanted**2))
        print(f"{name:8} {weight_bytes(model):18,}  {found[name]:.1%}   {off:.1%}")
    print(f"trained in float16: {scaler}")
    assert min(found.values()) > (0.95 if epochs == 12 else 0.9)
    assert found["int8"] > found["float32"] - 0.01
    assert weight_bytes(small) < 0.3 * weight_bytes(whole)
    assert scaler.skipped < 5


if __name__ == "__main__":
    main()

"""XOR learnt twice: by gradients written out by hand, and by the engine. They agree in every step.

h = tanh(x W_1 + b_1),    p = σ(h W_2 + b_2),    L = -mean(y log p + (1 - y) log(1 - p))

Backwards, with z = h W_2 + b_2, for which σ and log meet in (p - y) / n, and tanh' = 1 - tanh²:

    ∂L/∂W_2 = hᵀ ∂L/∂z       ∂L/∂h = ∂L/∂z W_2ᵀ         ∂L/∂a = ∂L/∂h ⊙ (1 - h²)
    ∂L/∂b_2 = Σ ∂L/∂z        ∂L/∂W_1 = xᵀ ∂L/∂a         ∂L/∂b_1 = Σ ∂L/∂a

    python examples/xor_by_hand.py step.html      the last step, as a page, too
"""

import argparse

import numpy as np

import minigrad as mg

X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])  # (4, 2)
Y = np.array([[0.0], [1.0], [1.0], [0.0]])  # (4, 1)


def by_hand(W_1, b_1, W_2, b_2):
    """The loss, and its gradient by each parameter."""
    h = np.tanh(X @ W_1 + b_1)  # (4, 8)
    p = 1 / (1 + np.exp(-(h @ W_2 + b_2)))  # (4, 1)
    loss = -np.mean(Y * np.log(p) + (1 - Y) * np.log(1 - p))
    dz = (p - Y) / len(X)  # (4, 1)
    da = dz @ W_2.T * (1 - h**2)  # (4, 8)
    return loss, [X.T @ da, da.sum(axis=0), h.T @ dz, dz.sum(axis=0)]


def by_the_engine(W_1, b_1, W_2, b_2):
    """The same, of which only the forward is written."""
    h = mg.tanh(mg.linear(X, W_1, b_1))
    z = mg.linear(h, W_2, b_2)
    loss = mg.binary_cross_entropy_with_logits(z, Y)
    return loss.item(), mg.grad(loss, [W_1, b_1, W_2, b_2])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", nargs="?", metavar="STEP.html", help="one step, as a page, too")
    parser.add_argument("--quick", action="store_true", help="changes nothing: it takes a second")
    page = parser.parse_args().page
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=(2, 8)), np.zeros(8), rng.normal(size=(8, 1)), np.zeros(1)]
    furthest = 0.0
    for step in range(501):
        loss, gradients = by_hand(*weights)
        tensors = [mg.tensor(w, requires_grad=True) for w in weights]
        same_loss, same_gradients = by_the_engine(*tensors)
        pairs = zip([loss, *gradients], [same_loss, *same_gradients], strict=True)
        furthest = max([furthest, *(np.abs(hand - engine).max() for hand, engine in pairs)])
        if step % 100 == 0:
            print(f"step {step:3}   loss {loss:.4f}   furthest apart so far {furthest:.0e}")
        weights = [w - 1.0 * g for w, g in zip(weights, gradients, strict=True)]
    if page:
        with mg.trace() as t:
            tensors = [mg.tensor(w, requires_grad=True) for w in weights]
            named = zip(tensors, ["W_1", "b_1", "W_2", "b_2"], strict=True)
            loss_and_gradients = by_the_engine(*[x.named(name) for x, name in named])
        print("one step, to step through:", t.html(page))
        assert loss_and_gradients[0] < 0.02
    assert furthest < 1e-14
    assert loss < 0.02


if __name__ == "__main__":
    main()

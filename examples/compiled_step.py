"""One step of self-attention, forward and backward, as the NumPy that `mg.compile` writes for it.

| forward                        | backward                                              |
|--------------------------------|-------------------------------------------------------|
| Q = X W_Q,  K = X W_K          | ∂X = ∂Q W_Qᵀ + ∂K W_Kᵀ + ∂V W_Vᵀ                      |
| V = X W_V                      | ∂W_Q = Xᵀ ∂Q,  ∂W_K = Xᵀ ∂K,  ∂W_V = Xᵀ ∂V            |
| S = Q Kᵀ / √d_k                | ∂Q = ∂S K / √d_k,  ∂K = ∂Sᵀ Q / √d_k                  |
| A = softmax(S)                 | ∂S = A ⊙ (∂A − rowsum(∂A ⊙ A))                        |
| O = A V                        | ∂A = ∂O Vᵀ,  ∂V = Aᵀ ∂O                               |
| out = O W_O                    | ∂O = ∂out W_Oᵀ,  ∂W_O = Oᵀ ∂out                       |

Each of these is a line or a few of what is printed. Then the same step runs eagerly, and every
gradient must agree.
"""

import numpy as np

import minigrad as mg
from layers import SelfAttention


def gradients(compiled: bool) -> tuple[list[np.ndarray], str]:
    """The gradients of X and of every weight after two steps, and the source, if compiled."""
    rng = np.random.default_rng(0)
    layer = SelfAttention(d_model=8, d_k=4, d_v=4, use_bias=False, rng=rng)
    X = mg.tensor(rng.normal(size=(1, 5, 8)), requires_grad=True, name="X")

    def step(X: mg.Tensor, grad: np.ndarray) -> mg.Tensor:
        out = layer(X)
        out.backward(grad)
        return out

    run = mg.compile(step) if compiled else step
    for _ in range(2):  # the first call records, the second runs what was written
        layer.zero_grad()
        X.grad = None
        run(X, np.ones((1, 5, 8)))
    source = run.source if compiled else ""
    return [X.grad, *(p.grad for p in layer.parameters())], source


def main():
    eager, _ = gradients(compiled=False)
    compiled, source = gradients(compiled=True)
    print(source)
    worst = max(np.abs(a - b).max() for a, b in zip(compiled, eager, strict=True))
    print(f"{len(eager)} gradients as the eager step's: largest difference {worst:.0e}")
    assert "# self_attention: softmax, back" in source
    assert len(eager) == 5
    assert worst < 1e-14


if __name__ == "__main__":
    main()

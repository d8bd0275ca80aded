"""Self-attention by hand: two tokens, three numbers each, every step as the text works it out.

    A = softmax(Q Kᵀ / √3),    O = A V

Then the same numbers through the layer, with identity projections, and its gradients beside the
formulas derived by hand.
"""

import numpy as np

import minigrad as mg
from layers import SelfAttention

Q = np.array([[[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]])  # (1, 2, 3)
K = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]])  # (1, 2, 3)
V = np.array([[[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]]])  # (1, 2, 3)


def main():
    q, k, v = (mg.tensor(x, requires_grad=True) for x in (Q, K, V))
    S = mg.scale(q @ k.mT, 1 / np.sqrt(3))  # (1, 2, 2)
    A = mg.softmax(S)  # (1, 2, 2)   rows sum to 1
    O = A @ v  # (1, 2, 3)
    np.testing.assert_allclose(S.numpy(), [[[0.577, 0.577], [0.0, 0.577]]], atol=5e-4)
    np.testing.assert_allclose(A.numpy(), [[[0.5, 0.5], [0.360, 0.640]]], atol=5e-4)
    np.testing.assert_allclose(O.numpy(), [[[25, 35, 45], [29.2, 39.2, 49.2]]], atol=0.05)
    print("weights of token 1:", A.numpy()[0, 1].round(3), " its output:", O.numpy()[0, 1].round(1))

    # One input X = [Q K V] in three blocks of columns; each projection picks out its block.
    layer = SelfAttention(d_model=9, d_k=3, d_v=3, use_bias=False)
    eye = np.eye(9)
    weights = {"W_Q": eye[:, :3], "W_K": eye[:, 3:6], "W_V": eye[:, 6:], "W_O": eye[:3]}
    layer.load_state_dict(weights)  # the output is O, and six zeros
    X = mg.tensor(np.concatenate([Q, K, V], axis=-1), requires_grad=True, name="X")
    with mg.trace() as t:
        out = layer(X)
        np.testing.assert_array_equal(out.numpy()[..., :3], O.numpy())
        mg.sum(out * out).backward()
    checks = t.check()
    assert checks.ok, checks.first_wrong
    worst = max(check.difference for check in checks.measured)
    print(f"{len(checks.measured)} gradients against the hand-derived steps: worst {worst:.0e}")
    assert len(checks.measured) == len(checks) == 12
    assert worst < 1e-14


if __name__ == "__main__":
    main()

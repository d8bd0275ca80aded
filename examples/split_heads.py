"""What reshape and transpose do to memory as a layer splits its heads; all heads are the layer.

A step is a view where it reads the same memory with other strides, and a copy where the order of
the entries has to change. Then each head is computed by itself, from its own columns of W_Q, W_K
and W_V and its own rows of W_O, and all of them added up are the layer's output.
"""

import numpy as np

from layers import MultiHeadAttention, merge_heads, scaled_dot_product_attention, split_heads

B, N, D, HEADS = 2, 5, 8, 2
WIDTH = D // HEADS


def show(name: str, x: np.ndarray, before: np.ndarray) -> bool:
    """A line of a step's result; whether it reads the memory of what it was made of."""
    view = np.shares_memory(x, before)
    print(f"{name:26}{x.shape!s:15}{x.strides!s:19}{'a view' if view else 'a copy'}")
    return view


def one_head(layer: MultiHeadAttention, X: np.ndarray, head: int) -> np.ndarray:
    """What one head adds to the output: attention within its columns, through its rows of W_O."""
    columns = np.s_[:, head * WIDTH : (head + 1) * WIDTH]
    Q, K, V = (X @ W.numpy()[columns] for W in (layer.W_Q, layer.W_K, layer.W_V))  # (B, n, d_k)
    return (
        scaled_dot_product_attention(Q, K, V)[0] @ layer.W_O.numpy()[columns[1]]
    )  # (B, n, d_model)


def main():
    X = np.random.default_rng(0).normal(size=(B, N, D))
    print(f"{'':26}{'shape':15}{'strides in bytes':19}")
    parts = X.reshape(B, N, HEADS, WIDTH)
    heads = parts.transpose(0, 2, 1, 3)
    back = heads.transpose(0, 2, 1, 3)
    wrong = heads.reshape(B, N, D)
    views = [
        show("X", X, X),
        show("reshape: width in heads", parts, X),
        show("transpose: heads in front", heads, parts),
        show("transpose back", back, heads),
        show("reshape: merged", back.reshape(B, N, D), back),
        show("reshape without transpose", wrong, heads),
    ]
    assert views == [True, True, True, True, True, False]
    np.testing.assert_array_equal(split_heads(X, HEADS), heads)
    np.testing.assert_array_equal(merge_heads(heads), X)
    assert not np.array_equal(wrong, X)  # it mixes tokens with heads, and no shape tells

    layer = MultiHeadAttention(D, HEADS, rng=0)
    apart = sum(one_head(layer, X, head) for head in range(HEADS)) - layer(X).numpy()
    print(f"each head by itself, added up: {np.abs(apart).max():.0e} from the layer's output")
    assert np.abs(apart).max() < 1e-14


if __name__ == "__main__":
    main()

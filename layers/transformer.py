"""Transformers: a block, stacks of it, a language model, and text from one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, NonFiniteError

from .attention import MultiHeadAttention
from .basic import (
    Dropout,
    Embedding,
    FeedForward,
    Function,
    GatedFeedForward,
    Linear,
    Seed,
    check_sizes,
    generator,
)
from .cache import KVCache
from .call import ArrayOrTensor
from .masking import Mask
from .masks import causal
from .module import Module
from .norm import LayerNorm
from .positions import LearnedPosition

__all__ = ["Decoder", "Encoder", "LanguageModel", "TransformerBlock", "generate"]

BlockCache: TypeAlias = tuple[KVCache | None, KVCache | None]  # of its tokens, and of its context


class TransformerBlock(Module):
    """Attention, attention to a context if `cross`, and a feed-forward layer, each added to X.

        pre-norm:   X + f(norm(X)), as in GPT-2        post-norm:   norm(X + f(X)), as in the paper

    Args:
        d_ff: width of the feed-forward layer; 4 · d_model unless given.
        gated: a GatedFeedForward, as Llama's.  activation: of the feed-forward layer.
        norm: LayerNorm or RMSNorm.  dropout: of what each part adds.  attention_dropout: of A.
        d_context: width of the context.
        attention: keywords of MultiHeadAttention: mask, position, n_kv_heads, attend.
    Attributes: attention, cross_attention, feed_forward, norm_1, norm_2, norm_3.
    Call:   block(X, mask=None, context=None, context_mask=None, positions=None, cache=…).
    Shapes: X (B, n, d_model), context (B, m, d_context) → as X
    Source: Vaswani et al. 2017, section 3.1, arXiv:1706.03762; pre-norm: Xiong et al. 2020,
        arXiv:2002.04745.

    >>> TransformerBlock(d_model=6, n_heads=3, pre_norm=False, rng=0)(np.zeros((1, 7, 6))).shape
    (1, 7, 6)
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int | None = None,
        *,
        cross: bool = False,
        pre_norm: bool = True,
        norm: Callable[..., Module] = LayerNorm,
        gated: bool = False,
        activation: Function | None = None,
        use_bias: bool = True,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        d_context: int | None = None,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
        **attention: Any,
    ) -> None:
        self.pre_norm, rng = pre_norm, generator(rng)
        self.dtype = np.dtype(dtype)
        drawn: dict[str, Any] = {"use_bias": use_bias, "rng": rng, "dtype": dtype}
        of_attention = drawn | {"dropout": attention_dropout}
        self.norm_1 = norm(d_model, dtype=dtype)
        self.attention = MultiHeadAttention(d_model, n_heads, **of_attention, **attention)
        self.norm_2 = norm(d_model, dtype=dtype)
        self.cross_attention: Module | None = None
        if cross:
            self.cross_attention = MultiHeadAttention(
                d_model, n_heads, **of_attention, d_context=d_context
            )
            self.norm_3 = norm(d_model, dtype=dtype)
        if activation is not None:
            drawn["activation"] = activation
        self.feed_forward = (GatedFeedForward if gated else FeedForward)(d_model, d_ff, **drawn)
        self.drop = Dropout(dropout, rng) if dropout else None

    def forward(
        self,
        X: mg.Tensor,
        mask: Mask | None = None,
        context: ArrayOrTensor | None = None,
        context_mask: Mask | None = None,
        *,
        positions: ArrayLike | None = None,
        cache: BlockCache = (None, None),
    ) -> mg.Tensor:
        if (context is None) != (self.cross_attention is None):
            raise ArgumentError("TransformerBlock: a context is for cross=True, which needs one")
        own, other = cache
        X = self.add(X, self.norm_1, self.attention, mask, positions=positions, cache=own)
        if self.cross_attention is None:
            return self.add(X, self.norm_2, self.feed_forward)
        X = self.add(
            X, self.norm_2, self.cross_attention, context_mask, context=context, cache=other
        )
        return self.add(X, self.norm_3, self.feed_forward)

    def add(
        self, X: mg.Tensor, norm: Module, part: Module, *args: Any, **keywords: Any
    ) -> mg.Tensor:
        """X with what a part makes of it, a norm before or after."""
        F = part(norm(X) if self.pre_norm else X, *args, **keywords)
        X = mg.add(X, F if self.drop is None else self.drop(F)).named("X")
        return X if self.pre_norm else norm(X)


class _Stack(Module):
    """What Encoder and Decoder share: blocks, one after the other, and a last norm."""

    of_blocks: ClassVar[dict[str, Any]] = {}  # keywords of each block, unless given

    def __init__(
        self,
        n_layers: int,
        d_model: int,
        n_heads: int,
        d_ff: int | None = None,
        *,
        rng: Seed = None,
        **block: Any,
    ) -> None:
        check_sizes(type(self).__name__, n_layers=n_layers)
        self.dtype = np.dtype(block.get("dtype", np.float64))
        block = {**self.of_blocks, **block, "rng": generator(rng)}
        self.blocks = [TransformerBlock(d_model, n_heads, d_ff, **block) for _ in range(n_layers)]
        self.norm: Module | None = None
        if block.get("pre_norm", True):
            self.norm = block.get("norm", LayerNorm)(d_model, dtype=self.dtype)

    def through(
        self, X: mg.Tensor, *inputs: Any, cache: Sequence[BlockCache] | None, **keywords: Any
    ) -> mg.Tensor:
        """X through all blocks and the last norm."""
        caches = [(None, None)] * len(self.blocks) if cache is None else cache
        for block, of_block in zip(self.blocks, caches, strict=True):
            X = block(X, *inputs, cache=of_block, **keywords)  # (B, n, d_model)
        return X if self.norm is None else self.norm(X)

    def new_cache(self) -> list[BlockCache]:
        """For each block an empty cache of its tokens, and one of its context."""
        return [(KVCache(), KVCache()) for _ in self.blocks]


class Encoder(_Stack):
    """A stack of TransformerBlocks, and after pre-norm ones a last norm.

    With `mask=causal` it is the stack of a decoder-only language model.

    Args:   block: any keyword of TransformerBlock.
    Attributes: blocks, a list; norm, or None.
    Shapes: X (B, n, d_model), mask as MultiHeadAttention's, cache: as `new_cache` makes → as X

    >>> Encoder(2, d_model=6, n_heads=3, rng=0)(np.zeros((1, 7, 6))).shape
    (1, 7, 6)
    """

    def forward(
        self,
        X: mg.Tensor,
        mask: Mask | None = None,
        *,
        positions: ArrayLike | None = None,
        cache: Sequence[BlockCache] | None = None,
    ) -> mg.Tensor:
        return self.through(X, mask, positions=positions, cache=cache)


class Decoder(_Stack):
    """A stack of blocks with attention to a context: causal unless given another `mask=`.

    Args, attributes: as Encoder, the last norm too; d_context: width of the context.
    Shapes: X (B, n, d_model), context (B, m, d_context), masks as MultiHeadAttention's → as X

    >>> Decoder(2, d_model=6, n_heads=3, rng=0)(np.zeros((1, 7, 6)), np.ones((1, 4, 6))).shape
    (1, 7, 6)
    """

    of_blocks: ClassVar[dict[str, Any]] = {"mask": causal, "cross": True}

    def forward(
        self,
        X: mg.Tensor,
        context: ArrayOrTensor,
        mask: Mask | None = None,
        context_mask: Mask | None = None,
        *,
        positions: ArrayLike | None = None,
        cache: Sequence[BlockCache] | None = None,
    ) -> mg.Tensor:
        return self.through(X, mask, context, context_mask, positions=positions, cache=cache)


class LanguageModel(Module):
    """Tokens in, logits of the next token out: embedding, causal blocks, norm, output layer.

    With max_len it has learned positions (GPT-2); with position=Rotary(...) rotary ones (Llama).

    Args:
        max_len: for learned positions; none unless given.
        tied: the output layer is the embedding, read backwards; else a Linear without bias.
        block: any keyword of Encoder and TransformerBlock.
    Attributes: embedding, position_embedding or None, decoder (an Encoder), head or None.
    Shapes: tokens (B, n) of integers, positions (n,) or (B, n) → (B, n, n_tokens)

    >>> model = LanguageModel(n_tokens=11, d_model=6, n_heads=3, n_layers=2, max_len=7, rng=0)
    >>> model(np.array([[3, 1, 4]])).shape
    (1, 3, 11)
    """

    end_tokens: tuple[int, ...] = ()  # at which `generate` stops unless told otherwise

    def __init__(
        self,
        n_tokens: int,
        d_model: int,
        n_heads: int,
        n_layers: int,
        d_ff: int | None = None,
        *,
        max_len: int | None = None,
        tied: bool = True,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
        **block: Any,
    ) -> None:
        rng = generator(rng)
        self.embedding = Embedding(n_tokens, d_model, rng, dtype)
        self.position_embedding: Module | None = None
        if max_len is not None:
            self.position_embedding = LearnedPosition(max_len, d_model, rng, dtype)
        block = {"mask": causal, **block, "rng": rng, "dtype": dtype}
        self.decoder = Encoder(n_layers, d_model, n_heads, d_ff, **block)
        self.head: Module | None = None
        if not tied:
            self.head = Linear(d_model, n_tokens, use_bias=False, rng=rng, dtype=dtype)

    def forward(
        self,
        tokens: ArrayLike,
        mask: Mask | None = None,
        *,
        positions: ArrayLike | None = None,
        cache: Sequence[BlockCache] | None = None,
    ) -> mg.Tensor:
        X = self.embedding(tokens)  # (B, n, d_model)
        if positions is None and cache is not None and cache[0][0] is not None:
            positions = len(cache[0][0]) + np.arange(X.shape[-2])
        if self.position_embedding is not None:
            X = self.position_embedding(X, positions)
        X = self.decoder(X, mask, positions=positions, cache=cache)  # (B, n, d_model)
        if self.head is not None:
            return self.head(X).named("logits")
        return self.embedding.as_linear(X)  # (B, n, n_tokens)


# ---------------------------------------------------------------- text


def generate(
    model: Module,
    tokens: NDArray[np.integer] | Sequence[int] | Sequence[Sequence[int]],
    max_new: int,
    *,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: int | Collection[int] | None = None,
    rng: Seed = None,
) -> Iterator[Any]:
    """The tokens that a model continues with, one by one as they are found.

    The prompt goes in one pass; then each token is one call on a cache. Prompts of different
    lengths are filled up in front, at positions below 0, which nobody sees. The model is read as it
    is: call `model.eval()` before, if it drops out.

    Args:
        model: a LanguageModel, or any with its forward and `decoder.new_cache()`.
        tokens: a sequence of integers; or several, of any lengths, which go on side by side.
        max_new: how many tokens to yield at most.
        temperature: 0 takes the likeliest token; else softmax(logits / temperature) is drawn from.
            1 where top_k, top_p or rng is given, 0 otherwise, unless given.
        top_k: draw from the k likeliest only.  top_p: from the fewest whose probabilities reach p.
        stop: a token, or several, after which a row ends; the token itself is still yielded. Those
            of `model.end_tokens` unless given.
        rng: draws; a Generator, a seed, or None for fresh entropy.
    Yields: an integer; of several rows an array (B,), −1 where a row has stopped.
    Raises: ArgumentError for an empty prompt, or a setting out of its range; OutOfRangeError for a
        token, or a position, that the model does not have; NonFiniteError for logits that are NaN.

    >>> model = LanguageModel(n_tokens=11, d_model=6, n_heads=3, n_layers=2, max_len=9, rng=0)
    >>> first = list(generate(model, [3, 1, 4], max_new=5))
    >>> both = np.stack(list(generate(model, [[3, 1, 4], [1, 5]], max_new=5)), axis=1)
    >>> both.shape, both[0].tolist() == first
    ((2, 5), True)
    """
    if temperature is None:
        temperature = 0.0 if top_k is top_p is rng is None else 1.0
    is_one_row = len(tokens) == 0 or np.ndim(tokens[0]) == 0
    rows = [np.asarray(row) for row in ([tokens] if is_one_row else tokens)]
    if any(row.ndim != 1 or not row.size or row.dtype.kind not in "iu" for row in rows):
        raise ArgumentError("generate: tokens must be integers, at least one in each row")
    check_sizes("generate", max_new=max_new, top_k=1 if top_k is None else top_k)
    if not temperature >= 0 or not 0 < (1 if top_p is None else top_p) <= 1:
        raise ArgumentError(
            "generate: temperature must be 0 or more, and top_p in (0, 1], got "
            f"{temperature} and {top_p}"
        )
    if not hasattr(getattr(model, "decoder", None), "new_cache"):
        raise ArgumentError(f"generate: {type(model).__name__} has no decoder that takes a cache")
    ends: Any = getattr(model, "end_tokens", ()) if stop is None else stop
    settings: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    draw = partial(_drawn, **settings, rng=generator(rng))
    steps = _continued(model, rows, max_new, draw, ends)
    return (int(token[0]) for token in steps) if is_one_row else steps


def _continued(
    model: Module, rows: list[NDArray[Any]], max_new: int, draw: Function, stop: Any
) -> Iterator[NDArray[np.integer]]:
    n = max(map(len, rows))
    read = np.stack([np.pad(row, (n - len(row), 0)) for row in rows])  # (B, n)
    at = np.arange(n) - np.array([[n - len(row)] for row in rows])
    at = at[0] if (at == at[0]).all() else at  # (n,), or (B, n) for rows of different lengths
    cache, running = vars(model)["decoder"].new_cache(), np.ones(len(rows), bool)
    for _ in range(max_new):
        with mg.no_grad():
            logits = model(read, positions=at, cache=cache).numpy()[:, -1]
        token = np.where(running, draw(logits), -1)
        yield token
        running &= ~np.isin(token, stop)
        if not running.any():
            return
        read, at = np.maximum(token, 0)[:, None], at[..., -1:] + 1


def _drawn(
    logits: NDArray[Any],
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    rng: np.random.Generator,
) -> NDArray[np.integer]:
    """A token for each row of logits (B, n_tokens)."""
    if not np.isfinite(logits.max(axis=-1)).all():
        raise NonFiniteError("generate: the model's logits are NaN or infinite; did it diverge?")
    if not temperature:
        return np.asarray(logits.argmax(axis=-1))
    order = np.broadcast_to(np.arange(logits.shape[-1]), logits.shape)
    if top_k is not None or top_p is not None:  # the likeliest first
        order = np.argsort(-logits, axis=-1, kind="stable")[:, :top_k]
    z = np.take_along_axis(logits, order, -1).astype(np.float64)
    with np.errstate(over="ignore"):  # a tiny temperature leaves only the likeliest
        p = np.exp((z - z.max(axis=-1, keepdims=True)) / temperature)
    p /= p.sum(axis=-1, keepdims=True)
    if top_p is not None:
        p[np.cumsum(p, axis=-1) - p >= top_p] = 0
    ends = np.cumsum(p, axis=-1)
    rank = (ends <= rng.random((len(p), 1)) * ends[:, -1:]).sum(axis=-1)
    return np.asarray(order[np.arange(len(p)), rank])

"""Models people know, built from layers, against PyTorch with the same weights: BERT, GPT-2, Llama.

Outputs in float64 agree to 1e-12 of their size, gradients to 1e-10; decoding with a cache too.
"""

from functools import partial

import numpy as np
import pytest

import minigrad as mg
from layers import (
    Embedding,
    Encoder,
    LanguageModel,
    LayerNorm,
    LearnedPosition,
    Linear,
    Module,
    RMSNorm,
    Rotary,
    padding_mask,
)

torch = pytest.importorskip("torch")
F = torch.nn.functional

N_TOKENS, B, N = 31, 2, 7


def as_torch(model):
    """The parameters by path, as torch leaves."""
    return {
        path: torch.tensor(array, requires_grad=True) for path, array in model.state_dict().items()
    }


def scrambled(model, rng):
    """Every parameter drawn anew, so that no bias is zero and no norm's weight one."""
    for parameter in model.parameters():
        drawn = rng.normal(scale=0.3, size=parameter.shape)
        parameter.assign_(drawn + (1 if parameter.name == "weight" else 0))
    return model


def agree(ours, theirs, tolerance):
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.abs(theirs).max())


def same_outputs_and_gradients(model, out, expected, weights, rng):
    agree(out.numpy(), expected, 1e-12)
    grad_output = rng.normal(size=out.shape)
    out.backward(grad_output)
    expected.backward(torch.tensor(grad_output))
    largest = max(float(w.grad.abs().max()) for w in weights.values())
    for path, parameter in model.named_parameters():
        np.testing.assert_allclose(
            parameter.grad, weights[path].grad.numpy(), rtol=0, atol=1e-10 * largest, err_msg=path
        )


def t_linear(x, w, path, name):
    out = x @ w[f"{path}W_{name}"]
    return out + w[f"{path}b_{name}"] if f"{path}b_{name}" in w else out


def t_heads(x, h):
    return x.unflatten(-1, (h, -1)).transpose(-2, -3)


def t_attention(x, w, path, h, kv, mask=None, turn=lambda x: x, norm=lambda x, name: x, scale=None):
    """Attention as a person would write it in PyTorch; mask is added to the scores."""
    q = turn(norm(t_heads(t_linear(x, w, path, "Q"), h), "q_norm"))
    k = turn(norm(t_heads(t_linear(x, w, path, "K"), kv), "k_norm"))
    v = t_heads(t_linear(x, w, path, "V"), kv)
    k, v = (y.repeat_interleave(h // kv, dim=1) for y in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores + mask
    out = scores.softmax(-1) @ v
    return t_linear(out.transpose(-2, -3).flatten(-2), w, path, "O")


def t_layer_norm(x, w, path, eps):
    return F.layer_norm(x, x.shape[-1:], w[f"{path}.weight"], w[f"{path}.bias"], eps)


def t_rms_norm(x, w, path, eps, plus_one=False):
    weight = w[f"{path}.weight"] + (1 if plus_one else 0)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def t_turn(x, base):
    """Rotary positions by rotate_half, as in Llama."""
    n, d = x.shape[-2:]
    angles = torch.arange(n, dtype=x.dtype)[:, None] * base ** (
        -torch.arange(0, d, 2, dtype=x.dtype) / d
    )
    angles = torch.cat((angles, angles), dim=-1)
    a, b = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat((-b, a), dim=-1) * angles.sin()


def causal(n):
    return torch.full((n, n), -torch.inf, dtype=torch.float64).triu(1)


# ---------------------------------------------------------------- BERT


class Bert(Module):
    """BERT's encoder: three embeddings added, a norm, post-norm blocks, a tanh pooler."""

    def __init__(self, rng):
        self.tokens, self.types = Embedding(N_TOKENS, 10, rng=rng), Embedding(2, 10, rng=rng)
        self.positions = LearnedPosition(max_len=13, d_model=10, rng=rng)
        self.norm = LayerNorm(10, eps=1e-12)
        norm = partial(LayerNorm, eps=1e-12)
        self.encoder = Encoder(2, 10, 2, 17, norm_order="post", norm=norm, rng=rng)
        self.pooler = Linear(10, 10, rng=rng)

    def forward(self, tokens, types, mask):
        X = self.norm(self.positions(self.tokens(tokens) + self.types(types)))
        X = self.encoder(X, mask)
        return mg.concatenate((X, mg.tanh(self.pooler(X[:, :1]))), axis=1)


def torch_bert(tokens, types, real, w):
    x = w["tokens.W"][tokens] + w["types.W"][types] + w["positions.P"][: tokens.shape[1]]
    x = t_layer_norm(x, w, "norm", 1e-12)
    mask = torch.where(torch.tensor(real)[:, None, None, :], 0.0, -torch.inf).double()
    for k in range(2):
        path = f"encoder.blocks.{k}"
        x = x + t_attention(x, w, f"{path}.attention.", 2, 2, mask)
        x = t_layer_norm(x, w, f"{path}.norm_1", 1e-12)
        h = F.gelu(t_linear(x, w, f"{path}.feed_forward.", "1"))
        x = x + t_linear(h, w, f"{path}.feed_forward.", "2")
        x = t_layer_norm(x, w, f"{path}.norm_2", 1e-12)
    return torch.cat((x, torch.tanh(x[:, :1] @ w["pooler.W"] + w["pooler.b"])), dim=1)


def test_a_bert_like_encoder_is_pytorchs_with_padding_and_token_types(rng):
    """Post-norm, learned positions, token types, exact GELU, padded batch, pooler."""
    model = scrambled(Bert(rng), rng)
    tokens, types = rng.integers(0, N_TOKENS, (B, N)), rng.integers(0, 2, (B, N))
    real = np.arange(N) < np.array([[N], [N - 3]])
    weights = as_torch(model)
    out = model(tokens, types, padding_mask(real))
    same_outputs_and_gradients(model, out, torch_bert(tokens, types, real, weights), weights, rng)


# ---------------------------------------------------------------- GPT-2


def gpt2(rng):
    return scrambled(
        LanguageModel(N_TOKENS, 12, 3, 2, max_len=13, activation="gelu_tanh", rng=rng), rng
    )


def torch_gpt2(tokens, w):
    x = w["embedding.W"][tokens] + w["position_embedding.P"][: tokens.shape[1]]
    for k in range(2):
        path = f"decoder.blocks.{k}"
        y = t_layer_norm(x, w, f"{path}.norm_1", 1e-5)
        x = x + t_attention(y, w, f"{path}.attention.", 3, 3, causal(x.shape[1]))
        y = t_layer_norm(x, w, f"{path}.norm_2", 1e-5)
        y = F.gelu(t_linear(y, w, f"{path}.feed_forward.", "1"), approximate="tanh")
        x = x + t_linear(y, w, f"{path}.feed_forward.", "2")
    return t_layer_norm(x, w, "decoder.norm", 1e-5) @ w["embedding.W"].T


def test_a_gpt2_like_decoder_is_pytorchs(rng):
    """Pre-norm, learned positions, tanh GELU, tied output."""
    model = gpt2(rng)
    tokens, weights = rng.integers(0, N_TOKENS, (B, N)), as_torch(model)
    same_outputs_and_gradients(model, model(tokens), torch_gpt2(tokens, weights), weights, rng)


# ---------------------------------------------------------------- Llama and its kin

LLAMAS = {
    "llama, untied": {"tied": False},
    "tied": {"tied": True},
    "qwen2: biases on Q, K, V only": {"use_bias": "QKV", "ff_bias": False},
    "qwen3: RMS norm of each head's Q and K, wider heads": {
        "qk_norm": partial(RMSNorm, eps=1e-6),
        "d_k": 10,
    },
    "one key-value head": {"n_kv_heads": 1},
}


def llama(rng, **variant):
    settings = {"n_kv_heads": 2, "use_bias": False, "gated": True, **variant}
    settings |= {"norm": partial(RMSNorm, eps=1e-6), "rng": rng}
    rotary = Rotary(settings.get("d_k", 6), base=500.0)
    return scrambled(LanguageModel(N_TOKENS, 24, 4, 2, 29, position=rotary, **settings), rng)


def torch_llama(tokens, w, kv=2):
    x = w["embedding.W"][tokens]
    for k in range(2):
        path = f"decoder.blocks.{k}"

        def head_norm(x, name, path=path):
            at = f"{path}.attention.{name}"
            return t_rms_norm(x, w, at, 1e-6) if f"{at}.weight" in w else x

        y = t_rms_norm(x, w, f"{path}.norm_1", 1e-6)
        turn = partial(t_turn, base=500.0)
        mask = causal(x.shape[1])
        x = x + t_attention(y, w, f"{path}.attention.", 4, kv, mask, turn, head_norm)
        y = t_rms_norm(x, w, f"{path}.norm_2", 1e-6)
        up = F.silu(y @ w[f"{path}.feed_forward.W"]) * (y @ w[f"{path}.feed_forward.V"])
        x = x + up @ w[f"{path}.feed_forward.W_2"]
    head = w["head.W"] if "head.W" in w else w["embedding.W"].T
    return t_rms_norm(x, w, "decoder.norm", 1e-6) @ head


@pytest.mark.parametrize("variant", LLAMAS)
def test_a_llama_like_decoder_is_pytorchs(rng, variant):
    """Pre-norm RMSNorm, rotary positions by halves, grouped heads, SwiGLU."""
    model = llama(rng, **LLAMAS[variant])
    tokens, weights = rng.integers(0, N_TOKENS, (B, N)), as_torch(model)
    expected = torch_llama(tokens, weights, LLAMAS[variant].get("n_kv_heads", 2))
    same_outputs_and_gradients(model, model(tokens), expected, weights, rng)


@pytest.mark.parametrize("variant", [*LLAMAS, "gpt2"])
def test_decoding_with_a_cache_gives_the_logits_of_the_whole_sequence(rng, variant):
    model = gpt2(rng) if variant == "gpt2" else llama(rng, **LLAMAS[variant])
    tokens = rng.integers(0, N_TOKENS, (B, N))
    whole, cache = model(tokens).numpy(), model.new_cache()
    with mg.no_grad():
        prompt = model(tokens[:, :3], cache=cache).numpy()
        steps = [model(tokens[:, t : t + 1], cache=cache).numpy() for t in range(3, N)]
    agree(np.concatenate((prompt, *steps), axis=1), torch.tensor(whole), 1e-12)


@pytest.mark.parametrize("made", [gpt2, llama])
def test_a_prompt_padded_at_its_start_is_read_as_it_would_be_alone(rng, made):
    """The padding is masked, and positions count from the first real token."""
    model, tokens = made(rng), rng.integers(0, N_TOKENS, (1, N))
    padded = np.concatenate((np.zeros((1, 3), int), tokens), axis=1)
    real = np.arange(N + 3) >= 3
    out = model(padded, padding_mask(real[None]), positions=np.maximum(np.arange(N + 3) - 3, 0))
    agree(out.numpy()[:, 3:], torch.tensor(model(tokens).numpy()), 1e-12)


# ---------------------------------------------------------------- Gemma 2


def test_a_gemma2_like_decoder_is_pytorchs(rng):
    """Norms with 1 + weight before and after each layer, soft-caps, GeGLU, scaled embeddings."""
    norm = partial(RMSNorm, eps=1e-6, plus_one=True)
    model = LanguageModel(
        N_TOKENS, 12, 2, 1, 17, norm=norm, norm_order="both", gated=True, activation="gelu_tanh",
        use_bias=False, softcap=0.7, scale=0.3, scaled=True, output_softcap=1.3, rng=rng,
        position=Rotary(6),
    )  # fmt: skip
    scrambled(model, rng)
    tokens, w = rng.integers(0, N_TOKENS, (B, N)), as_torch(model)
    x, path = w["embedding.W"][tokens] * 12**0.5, "decoder.blocks.0"
    y = t_rms_norm(x, w, f"{path}.norm_1", 1e-6, plus_one=True)
    q, k, v = (t_heads(y @ w[f"{path}.attention.W_{s}"], 2) for s in "QKV")
    scores = t_turn(q, 10000.0) @ t_turn(k, 10000.0).transpose(-1, -2) * 0.3
    scores = 0.7 * torch.tanh(scores / 0.7) + causal(N)
    out = (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2) @ w[f"{path}.attention.W_O"]
    x = x + t_rms_norm(out, w, f"{path}.norm_1_out", 1e-6, plus_one=True)
    y = t_rms_norm(x, w, f"{path}.norm_2", 1e-6, plus_one=True)
    up = F.gelu(y @ w[f"{path}.feed_forward.W"], approximate="tanh")
    out = (up * (y @ w[f"{path}.feed_forward.V"])) @ w[f"{path}.feed_forward.W_2"]
    x = x + t_rms_norm(out, w, f"{path}.norm_2_out", 1e-6, plus_one=True)
    x = t_rms_norm(x, w, "decoder.norm", 1e-6, plus_one=True) @ w["embedding.W"].T
    same_outputs_and_gradients(model, model(tokens), 1.3 * torch.tanh(x / 1.3), w, rng)


# ---------------------------------------------------------------- PyTorch's own modules


def test_a_planted_fault_in_the_rotation_is_seen(rng):
    """The comparison above is no formality: turning by the wrong pairs fails it."""
    model = llama(rng)
    for block in model.decoder.blocks:
        block.attention.position.pairing = "interleaved"
    tokens, weights = rng.integers(0, N_TOKENS, (B, N)), as_torch(model)
    with pytest.raises(AssertionError):
        agree(model(tokens).numpy(), torch_llama(tokens, weights), 1e-6)

"""The counts are the derivations' closed forms, and a call that could mean two things raises."""

import numpy as np
import pytest

import layers as L
import minigrad as mg
from layers.cost import (
    A100_RIDGE,
    arithmetic_intensity,
    count_flops,
    count_memory_bytes,
    count_traffic_bytes,
    flops_by_step,
    memory_by_array,
    roofline,
)
from tests.compare import refusals
from tests.layers.counting import assert_costs
from tests.layers.kinds import D_FF, B, D, H, N

# ---------------------------------------------------------------- FLOPs and memory


def test_flops_of_one_head_are_those_of_its_six_products_and_the_softmax():
    B, n, d_model, d_k, d_v = 2, 5, 7, 3, 11
    projections = 2 * (2 * B * n * d_model * d_k) + 2 * B * n * d_model * d_v
    core = 2 * B * n * n * d_k + 5 * B * n * n + 2 * B * n * n * d_v
    output = 2 * B * n * d_v * d_model
    assert count_flops(B, n, d_model, d_k, d_v) == projections + core + output == 5570
    steps = flops_by_step(B, n, d_model, d_k, d_v)
    assert list(steps) == ["projections", "scores", "softmax", "values", "output"]
    assert sum(steps.values()) == 5570


def test_memory_is_that_of_q_k_v_the_attention_matrix_and_the_output():
    shapes = {
        "Q": (2, 5, 3), "K": (2, 5, 3), "V": (2, 5, 7),
        "attention matrix": (2, 5, 5), "output": (2, 5, 7),
    }  # fmt: skip
    for dtype in ("float16", "float32", np.float64):
        parts = memory_by_array(2, 5, 3, 7, dtype)
        assert parts == {name: np.empty(shape, dtype).nbytes for name, shape in shapes.items()}
        assert sum(parts.values()) == count_memory_bytes(2, 5, 3, 7, dtype)


def test_both_call_forms_go_by_position_and_by_keyword():
    one = count_flops(2, 5, 8, 3, 11)
    assert one == count_flops(2, 5, 8, d_k=3, d_v=11) == count_flops(2, 5, 8, 3, d_v=11)
    B, n, d_model, h = 2, 11, 21, 7
    many = 8 * B * n * d_model**2 + 4 * B * n**2 * d_model + 5 * B * h * n**2
    assert many == count_flops(B, n, d_model, h)
    assert many == count_flops(B, n, d_model, d_k=None, d_v=None, n_heads=h)
    assert many == count_flops(batch_size=B, seq_len=n, d_model=d_model, n_heads=h)
    one = count_memory_bytes(batch_size=2, seq_len=5, d_k=3, d_v=7, dtype="float32")
    assert one == count_memory_bytes(2, 5, 3, 7)
    elements = 4 * B * n * d_model + B * h * n * n
    assert count_memory_bytes(B, n, d_model=d_model, n_heads=h) == 4 * elements


FLOPS = "count_flops: after d_model give d_k and d_v, or n_heads alone, got"
MEMORY = "count_memory_bytes: give d_k and d_v, or the keywords d_model and n_heads, got"
WIDTHS = ["", "d_k", "d_v", "d_model", "n_heads", "d_k n_heads", "d_k d_v n_heads",
          "d_k d_v d_model", "d_k d_v d_model n_heads"]  # fmt: skip
SIZES = {"batch_size": 2, "seq_len": 5, "d_model": 7, "d_k": 3, "d_v": 11}
NOT_FLOATING = ["float33", "int32", bool, None, object, "f4,f4"]
test_every_other_mixture_or_size_is_refused = refusals(
    *((lambda f=f, rest=rest, named=named: f(2, 5, 8, *rest, **named), TypeError, FLOPS)
      for f in (count_flops, flops_by_step)
      for rest, named in [
        ((), {}), ((), {"d_k": 4}), ((), {"d_v": 4}), ((4,), {"n_heads": 2}), ((4,), {"d_k": 4}),
        ((4, 4), {"n_heads": 2}), ((4, 4), {"d_v": 4}), ((4, 4, 2), {}),
        ((), {"d_k": 4, "d_v": 4, "n_heads": 2}), ((), {"heads": 2}),
      ]),
    *((lambda f=f, names=names: f(2, 5, **dict.fromkeys(names.split(), 4)),
       TypeError, f"{MEMORY} {', '.join(names.split()) or 'neither'}")
      for f in (count_memory_bytes, memory_by_array) for names in WIDTHS),
    (lambda: count_traffic_bytes(1, 5, 64, 64, on_chip=4 * 4 * 64 - 1),
     ValueError, "on_chip must hold a row of each array, got 1023 bytes"),
    (lambda: count_flops(2, 5, 7, 3.0, 11),
     TypeError, r"count_flops: d_k must be an integer, got 3\.0"),
    (lambda: count_memory_bytes(2, "5", 3, 7),
     TypeError, "count_memory_bytes: seq_len must be an integer, got '5'"),
    (lambda: count_flops(2, 5, 8, 3),
     ValueError, "count_flops: n_heads must divide d_model, got 3 and 8"),
    (lambda: memory_by_array(2, 5, d_model=8, n_heads=16),
     ValueError, "count_memory_bytes: n_heads must divide d_model, got 16"),
    (lambda: roofline(-1, 156), ValueError, "intensity must be >= 0 and ridge > 0"),
    (lambda: roofline(61, 0), ValueError, "intensity must be >= 0 and ridge > 0"),
    (lambda: roofline(float("nan"), 156), ValueError, "intensity must be >= 0 and ridge > 0"),
    *((lambda name=name, bad=bad: count_flops(**SIZES | {name: bad}),
       ValueError, f"count_flops: {name} must be at least 1, got {bad}")
      for name in SIZES for bad in (0, -3)),
    *((lambda dtype=dtype: count_memory_bytes(2, 5, 3, 7, dtype), TypeError,
       "count_memory_bytes: dtype must be a floating NumPy dtype") for dtype in NOT_FLOATING),
    *((lambda dtype=dtype: arithmetic_intensity(5, 3, dtype=dtype), TypeError,
       "arithmetic_intensity: dtype must be a floating") for dtype in NOT_FLOATING),
    *((lambda f=f, a=a, b=b: f(1, 10, a, b, "float32"), TypeError,
       f"name them: d_k={a}, d_v={b} or d_model={a}, n_heads={b}")
      for f in (count_memory_bytes, memory_by_array, count_traffic_bytes)
      for a, b in [(64, 8), (8, 1), (12, 4)]),
)  # fmt: skip


def test_counts_are_python_ints_and_do_not_overflow_from_narrow_numpy_integers():
    n = np.int32(2**20)
    flops, size = count_flops(np.int8(1), n, n, np.int16(64), 64), count_memory_bytes(1, n, 64, 64)
    assert type(flops) is type(size) is int
    assert flops == count_flops(1, 2**20, 2**20, 64, 64)
    assert size > 4 * 2**40


# ---------------------------------------------------------------- traffic and intensity


def test_exact_attention_writes_each_stage_of_the_scores_and_reads_it_again():
    B, n, d_k, d_v = 2, 5, 3, 7
    for masked, passes in ((False, 3), (True, 4)):
        traffic = count_traffic_bytes(B, n, d_k, d_v, masked=masked)
        assert traffic.reads == 4 * B * (n * (2 * d_k + d_v) + passes * n * n)
        assert traffic.writes == 4 * B * (n * d_v + passes * n * n)
        assert traffic.total == traffic.reads + traffic.writes
    wide = count_traffic_bytes(1, 4096, d_model=2048, n_heads=32, masked=True)
    assert 8 < wide.reads / 2**30 < 8.1  # the text's 8 GB, one way


def test_traffic_in_tiles_passes_keys_and_values_once_for_each_block_of_queries():
    n, d, entries = 4096, 64, 2**16
    traffic = count_traffic_bytes(1, n, d, d, on_chip=4 * entries)
    blocks = n // (entries // (4 * d))
    assert traffic == (4 * (n * d + blocks * 2 * n * d), 4 * n * d)
    row_by_row = count_traffic_bytes(1, n, d, d, on_chip=4 * 4 * d)
    assert row_by_row.reads == 4 * (n * d + n * 2 * n * d)
    grows_as = traffic.reads - 4 * n * d
    assert grows_as == 4 * 8 * n * n * d * d // entries  # n² d² / M
    assert traffic.total < count_traffic_bytes(1, n, d, d).total / 5


@pytest.mark.parametrize(("n", "d_k", "d_v"), [(5, 3, 3), (127, 3, 7), (4096, 64, 128)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_intensity_is_the_core_flops_over_the_bytes_whatever_the_batch(n, d_k, d_v, dtype):
    steps = flops_by_step(2, n, 11, d_k, d_v)
    core = steps["scores"] + steps["softmax"] + steps["values"]
    expected = core / count_memory_bytes(2, n, d_k, d_v, dtype)
    np.testing.assert_allclose(arithmetic_intensity(n, d_k, d_v, dtype), expected, rtol=1e-14)


def test_a_kernel_at_the_ridge_is_compute_bound():
    assert A100_RIDGE == 156
    assert roofline(156, 156) == "compute-bound"
    assert roofline(155.9) == roofline(0, 1) == "memory-bound"


# ---------------------------------------------------------------- of any layer


def test_a_sequence_layer_tells_its_width():
    cost = L.layer_cost(L.LSTM(3, 5, rng=0), batch_size=2, seq_len=7)
    assert cost == L.layer_cost(L.LSTM(3, 5, rng=0), input_shape=(2, 7, 3))


def test_a_block_with_another_attention_costs_what_that_does(rng):
    block = L.TransformerBlock(D, H, D_FF)
    block.attention = L.LinearAttention(D, H, is_causal=True)
    X = mg.tensor(rng.normal(size=(B, N, D)), requires_grad=True)
    assert_costs(block, [X], L.layer_cost(block, B, N))


# ---------------------------------------------------------------- against the texts' functions


def test_products_and_softmax_are_those_of_count_flops():
    cost = L.layer_cost(L.MultiHeadAttention(D, H), B, N).forward
    assert cost["matmul"] + cost["softmax"] == L.count_flops(B, N, D, H)
    for out in (True, False):
        layer = L.SelfAttention(D, 5, 3, use_bias=False, project_out=out)
        cost = L.layer_cost(layer, B, N).forward
        assert cost["matmul"] + cost["softmax"] == L.count_flops(B, N, D, 5, 3, project_out=out)


def test_what_a_cache_holds_is_what_was_counted(rng):
    layer, cache = L.MultiHeadAttention(D, 6, 2, d_v=5, is_causal=True), L.KVCache()
    with mg.no_grad():
        layer(rng.normal(size=(B, N, D)), cache=cache)
    assert cache.nbytes == L.kv_cache_bytes(layer, B, N)


# ---------------------------------------------------------------- intensity


def test_a_feed_forward_layer_turns_compute_bound_with_many_tokens():
    layer = L.FeedForward(512, 2048, "relu", use_bias=False, dtype=np.float32)
    few, many = L.layer_cost(layer, 1, 1), L.layer_cost(layer, 64, 512)
    assert few.intensity < 1
    assert few.verdict() == "memory-bound"
    assert many.verdict() == "compute-bound"


# ---------------------------------------------------------------- refusing, and a planted fault


class Own(L.Module):
    """A layer of one's own."""

    def __init__(self):
        self.d_model, self.first = D, L.MultiHeadAttention(D, H)
        self.second = L.FeedForward(D, D_FF, mg.exp)

    def forward(self, X):
        return X * mg.softmax(self.second(self.first(X) - X.detach()))


def test_a_layer_of_ones_own_has_a_cost_too(rng):
    layer, X = Own(), mg.tensor(rng.normal(size=(B, N, D)), requires_grad=True)
    assert_costs(layer, [X], L.layer_cost(layer, B, N))


def test_a_layer_whose_width_is_not_known_and_an_op_without_a_cost_are_refused_by_name():
    class Strange(L.Module):
        def forward(self, X):
            return mg.relu(X)

    with pytest.raises(TypeError, match="the width of Strange's input is not known"):
        L.layer_cost(Strange(), B, N)
    costless = mg.op(tex="<x>", vjp_tex={"x": "<g>"})(lambda x: x + 0)
    del mg.registry[costless.name]
    with pytest.raises(TypeError, match="does not say what it costs"):
        L.layer_cost(L.FeedForward(D, activation=costless), B, N)


def test_long_sequences_are_counted_without_making_their_masks():
    n = 10**6
    cost = L.layer_cost(L.MultiHeadAttention(D, H, is_causal=True), 1, n)
    assert cost.forward["softmax"] == 5 * H * n * n


def test_embedding_alone_computes_nothing():
    assert L.layer_cost(L.Embedding(13, D), B, N).forward == {}
    assert L.layer_cost(L.Embedding(13, D, scaled=True), B, N).forward == {"scale": B * N * D}

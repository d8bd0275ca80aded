"""Attribution: shares are exact where the run is linear, and say how far off they are elsewhere."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import minigrad as mg
from layers import Encoder, LanguageModel, MultiHeadAttention
from minigrad.errors import ArgumentError, ShapeError
from minigrad.recording.gradients import find_scalar, gradients_of

TOKENS = np.array([[3, 1, 4, 1, 5]])


def gpt(**options):
    return LanguageModel(11, d_model=6, n_heads=3, n_layers=2, max_len=7, rng=0, **options)


def traced(run, around=mg.enable_grad):
    with mg.trace() as t, around():
        out = run()
    return t, out


@pytest.mark.parametrize("around", [mg.enable_grad, mg.no_grad])
def test_gradients_of_a_record_are_those_of_backward_to_the_last_bit(around):
    model, rng = gpt(dropout=0.3), np.random.default_rng(7)

    def loss():
        rng.bit_generator.state = np.random.default_rng(7).bit_generator.state
        for block in model.decoder.blocks:
            block.drop.rng = rng
        return mg.cross_entropy(model(TOKENS)[0, :-1], TOKENS[0, 1:]).named("loss")

    with mg.trace() as backward:
        loss().backward()
    t, out = traced(loss, around)
    entry, _, _, seed = find_scalar(t, out, "")
    found = gradients_of(t, entry, seed)
    reached = [e for e in backward.entries if e.op and e.gradient is not None]
    assert len(reached) > 40
    for e in reached:
        np.testing.assert_array_equal(found[e.id], e.gradient, err_msg=e.path)


@pytest.mark.parametrize("frozen", [True, False])
def test_nothing_flows_where_the_run_cut_it_but_through_what_is_frozen_it_does(frozen, rng):
    W, u = (mg.tensor(rng.normal(size=(3, 3)), requires_grad=not f) for f in (frozen, False))

    def run():
        h = (mg.tensor(np.eye(3)) @ W).named("h")
        with mg.no_grad():
            quiet = h * 5.0
        return mg.sum((h * 2.0 + h.detach() * 3.0 + quiet) @ u)

    t, y = traced(run)
    shares = t.attribute(y, of=t.forward_steps[0]).positions
    assert_allclose(shares, 2 * (W.numpy() @ u.numpy()).sum(axis=1))


def test_gradient_times_attention_is_what_each_key_gave_where_values_are_given(rng):
    layer = MultiHeadAttention(6, 3, use_bias=False, rng=0)
    X = rng.normal(size=(2, 5, 6))
    t, out = traced(lambda: layer(X))
    (heads,) = t.attribute((out, (1, 4, 2)), of="A").heads
    V = (X @ layer.W_V.numpy()).reshape(2, 5, 3, 2).swapaxes(1, 2)  # (B, h, n, d_v)
    W_O = layer.W_O.numpy().reshape(3, 2, 6)[:, :, 2]  # (h, d_v)
    exact = layer.attention_weights[1, :, 4] * np.einsum("hmd,hd->hm", V[1], W_O)  # (h, m)
    assert_allclose(heads.matrix[1, :, 4], exact)
    assert_allclose(heads.totals, exact.sum(-1))
    assert_allclose(heads.totals.sum(), out.numpy()[1, 4, 2])


@pytest.mark.parametrize("norm_order", ["pre", "both"])
def test_direct_shares_of_branches_add_up_to_a_linear_reading_of_the_stream(norm_order, rng):
    encoder = Encoder(2, 6, 3, norm_order=norm_order, final_norm=False, rng=0)
    X, u = rng.normal(size=(1, 5, 6)), rng.normal(size=6)
    t, y = traced(lambda: mg.sum(encoder(X) @ u))
    found = t.attribute(y, of="blocks.0/attention/A")
    assert_allclose(found.left["branches"], 0, atol=1e-12)
    assert_allclose(found.branches[0].direct, (X @ u).sum())
    assert len(found.branches) == 5


def test_a_branch_behind_a_norm_has_no_direct_share(rng):
    encoder = Encoder(2, 6, 3, norm_order="post", rng=0)
    t, y = traced(lambda: encoder(rng.normal(size=(1, 5, 6)))[0, 0, 0])
    found = t.attribute(y, of="blocks.0/attention/A").branches
    reaching = {b.path.split("/", 1)[1]: b.starts for b in found if b.direct is not None}
    assert reaching == {"blocks.1/norm_1/X_norm": True, "blocks.1/feed_forward/out": False}


@pytest.mark.parametrize(
    ("output", "of", "said"),
    [
        ("logits", None, r"one number .* shape \(1, 5, 11\); write \(tensor, index\)"),
        ("logit", None, "'logit' is no value of this run; nearest: logits"),
        (("X", (0, 0, 0)), None, "'X' means 6 values of this run: 1 language_model/embedding/X"),
        (("logits", (0, 0, 0)), "blocks.0/attention/B", "nearest: blocks.0/attention/"),
        ((mg.tensor(2.0), ()), None, "is no value of this run"),
    ],
)
def test_what_is_no_number_of_the_run_is_refused(output, of, said):
    t, _ = traced(lambda: gpt()(TOKENS))
    with pytest.raises(ArgumentError, match=said):
        t.attribute(output, of)


def test_a_record_without_arrays_cannot_be_attributed():
    with mg.trace(keep="summaries") as t:
        gpt()(TOKENS)
    with pytest.raises(ArgumentError, match="kept no array"):
        t.attribute(("logits", (0, 0, 0)))


def test_tables_name_tokens_show_the_largest_and_say_what_the_sums_leave():
    t, logits = traced(lambda: gpt()(TOKENS))
    found = t.attribute((logits, (0, -1, 7)))
    text = found.table(80, tokens="abcde", most=3)
    assert max(map(len, text.split("\n"))) <= 80
    for said in ("logits[0, -1, 7] = 0.23", "2 smaller", "4 e", "leaves -0.15 of 0.23"):
        assert said in text
    with pytest.raises(ShapeError, match="5 positions, got 1 tokens"):
        found.table(tokens="a")
    assert set(found.to_dict()) == {
        "output", "value", "of", "left", "hidden", "positions", "heads", "branches",
    }  # fmt: skip


@pytest.mark.needs_fast("tiles")
def test_attention_in_tiles_has_no_heads_and_the_table_says_so():
    t, out = traced(lambda: MultiHeadAttention(6, 3, method="tiled", rng=0)(np.ones((1, 5, 6))))
    found = t.attribute((out, (0, 0, 0)), of="Q")
    assert not found.heads
    assert 'method="exact"' in found.table()


def test_a_share_is_the_slope_of_the_number_in_the_size_of_the_part():
    model = gpt()

    def run():
        return mg.subtract(*model(TOKENS)[0, -1, [7, 2]]).named("gain")

    here, _ = traced(run)
    for branch in here.attribute("gain").branches[1:]:
        ends = []
        for size in (0.999, 1.001):
            with mg.replace(branch.path, lambda F, size=size: F * size):
                ends.append(run().item())
        assert_allclose(branch.share, (ends[1] - ends[0]) / 0.002, rtol=1e-5)

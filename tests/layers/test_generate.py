"""Tokens from a language model: against the whole sequence run anew for each, and drawn fairly."""

from copy import deepcopy

import numpy as np
import pytest

import minigrad as mg
from layers import (
    ALiBi,
    KVCache,
    LanguageModel,
    LinearAttention,
    MultiHeadAttention,
    RMSNorm,
    Rotary,
    generate,
)
from layers.generation import Draw
from minigrad.errors import (
    ArgumentError,
    MissingDependencyError,
    NonFiniteError,
    OutOfRangeError,
)
from tests.compare import assert_same

N_TOKENS, MAX_LEN = 31, 23
KINDS = {
    "learned positions": {"max_len": MAX_LEN},
    "rotary, grouped": {"position": Rotary(4), "n_kv_heads": 1, "gated": True, "norm": RMSNorm},
    "a window": {"position": Rotary(4), "window": 5},
    "ALiBi": {"position": ALiBi(2)},
    "dynamic angles": {
        "position": Rotary(4, scaling={"type": "dynamic", "factor": 2.0,
                                       "max_position_embeddings": 7}),
    },
}  # fmt: skip


def model_of(kind, rng):
    model = LanguageModel(N_TOKENS, 8, 2, n_layers=2, rng=rng, **KINDS[kind]).eval()
    for parameter in model.parameters():
        parameter.assign_(3 * parameter.numpy() + 0.01)
    return model


def following(model, tokens, n, choose):
    """So many tokens, each chosen by the logits of the whole sequence run anew."""
    found = list(tokens)
    with mg.no_grad():
        for _ in range(n):
            found.append(int(choose(model(np.array([found])).numpy()[0, -1])))
    return found[len(tokens) :]


def one_by_one(model, tokens, n):
    """The likeliest tokens."""
    return following(model, tokens, n, np.argmax)


@pytest.mark.parametrize("kind", ["learned positions", "rotary, grouped", "a window", "ALiBi"])
def test_the_likeliest_tokens_are_those_of_the_whole_sequence(kind, rng):
    """Of each row by itself, where rows have different lengths."""
    model, rows = model_of(kind, rng), [[3, 1, 4], [1, 5, 9, 2, 6, 5], [7]]
    expected = [one_by_one(model, row, 17) for row in rows]
    assert len(set(np.ravel(expected))) > 2
    assert list(generate(model, rows[0], 17)) == expected[0]
    np.testing.assert_array_equal(np.stack(list(generate(model, rows, 17)), axis=1), expected)


def test_a_decoding_step_compiles_once(rng, monkeypatch):
    model, calls = model_of("learned positions", rng), []
    forward = type(model).forward
    monkeypatch.setattr(
        type(model), "forward", lambda self, *a, **k: calls.append(a) or forward(self, *a, **k)
    )
    list(generate(model, [3, 1], 20))
    assert len(calls) == 1 + 1 + 4  # the prompt, the step, and what checks calls 2, 4, 8 and 16


def test_angles_and_masks_are_made_once_for_all_layers(rng):
    model = model_of("a window", rng)
    list(generate(model, [3, 1], 4))
    source = model._sessions["last"].step.source
    assert [source.count(f"np.{name}(") for name in ("cos", "sin", "where")] == [1, 1, 1]


def test_a_later_call_of_the_same_size_takes_the_program_of_an_earlier_one(rng):
    model = model_of("rotary, grouped", rng)
    expected = {n: one_by_one(model, range(n), 5) for n in (3, 4)}
    for n in (3, 4, 3):  # caches have room for a few more
        assert list(generate(model, range(n), 5)) == expected[n]
        assert next(generate(model, range(n), 5)) == expected[n][0]
    step = model._sessions["last"].step
    assert (step.recordings, step.reasons, len(step.variants)) == (1, [], 1)
    model.embedding.W.assign_(2 * model.embedding.W.numpy())
    assert list(generate(model, range(3), 5)) == one_by_one(model, range(3), 5)
    assert model._sessions["last"].step is step


def replace_a_weight(model):
    attention = model.decoder.blocks[0].attention
    drawn = np.random.default_rng(5).normal(size=attention.W_Q.shape)
    attention.W_Q = mg.tensor(3 * drawn, requires_grad=True)


def set_in_each_attention(name, value):
    def change(model):
        for block in model.decoder.blocks:
            setattr(block.attention, name, value)

    return change


CHANGES = {
    "a weight": replace_a_weight,
    "the blocks' order": lambda model: model.decoder.blocks.reverse(),
    "windows": set_in_each_attention("window", 2),
    "positions": set_in_each_attention("position", Rotary(4, base=10.0)),
    "a block less": lambda model: model.decoder.blocks.pop(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_changed_between_calls_generates_as_it_is_now(change, rng):
    model = model_of("rotary, grouped", rng)
    before = list(generate(model, [3, 1, 4], 12))
    CHANGES[change](model)
    expected = one_by_one(model, [3, 1, 4], 12)
    assert expected != before
    assert list(generate(model, [3, 1, 4], 12)) == expected


@pytest.mark.parametrize("change", [change for change in CHANGES if "less" not in change])
def test_a_model_changed_between_tokens_takes_them_on_as_it_is_now(change, rng):
    model, changed = model_of("rotary, grouped", rng), model_of("rotary, grouped", rng)
    changed.load_state_dict(model.state_dict())
    compiled, eager = (generate(m, [3, 1, 4], 6) for m in (model, changed))
    for tokens in (compiled, eager):
        next(tokens), next(tokens), next(tokens)
    CHANGES[change](model), CHANGES[change](changed)
    with mg.trace():  # beside which nothing is compiled
        expected = list(eager)
    assert list(compiled) == expected


def test_two_that_take_turns_do_not_disturb_each_other(rng):
    model, prompts = model_of("rotary, grouped", rng), ([3, 1, 4], [1, 5, 9])
    list(generate(model, [3, 1, 4], 9))  # leaves caches behind, which one of both will take
    both = zip(*(generate(model, prompt, 9) for prompt in prompts), strict=True)
    for prompt, found in zip(prompts, zip(*both, strict=True), strict=True):
        assert list(found) == one_by_one(model, prompt, 9)


def test_a_copy_of_a_model_generates_by_itself(rng):
    model = model_of("learned positions", rng)
    expected = list(generate(model, [3, 1], 5))
    copied = deepcopy(model)
    for parameter in model.parameters():
        parameter.assign_(0 * parameter.numpy())
    assert list(generate(copied, [3, 1], 5)) == expected


def test_angles_that_depend_on_the_length_run_eagerly_and_say_so(rng):
    model = model_of("dynamic angles", rng)
    tokens = generate(model, [3, 1, 4], 3)
    next(tokens)
    with pytest.warns(mg.CompileWarning, match="runs eagerly"):
        next(tokens)


def test_a_row_ends_with_its_stop_and_the_others_go_on(rng):
    model = model_of("rotary, grouped", rng)
    alone = [one_by_one(model, row, 9) for row in ([3, 1, 4], [1, 5])]
    stop = next(t for t in alone[0] if t not in alone[1])
    at = alone[0].index(stop)
    assert list(generate(model, [3, 1, 4], 9, stop=stop)) == alone[0][: at + 1]
    found = np.stack(list(generate(model, [[3, 1, 4], [1, 5]], 9, stop=[stop])), axis=1)
    assert found[0].tolist() == alone[0][: at + 1] + [-1] * (8 - at)
    assert found[1].tolist() == alone[1]


LOGITS = np.log([0.05, 0.5, 0.15, 0.3])
DRAWS = {
    "all": ({}, [0.05, 0.5, 0.15, 0.3]),
    "top_k": ({"top_k": 2}, [0, 0.625, 0, 0.375]),
    "top_p": ({"top_p": 0.6}, [0, 0.625, 0, 0.375]),
    "top_p of one": ({"top_p": 0.5}, [0, 1, 0, 0]),
    "colder": ({"temperature": 0.5}, [0.0025 / 0.365, 0.25 / 0.365, 0.0225 / 0.365, 0.09 / 0.365]),
}


@pytest.mark.parametrize("kind", DRAWS)
def test_tokens_are_drawn_by_their_probabilities(kind, rng):
    settings, p = DRAWS[kind]
    draw = Draw(**({"temperature": 1.0, "top_k": None, "top_p": None} | settings), rng=rng)
    n = 20_000
    counts = np.bincount(draw(np.tile(LOGITS, (n, 1))), minlength=4)
    assert (counts[np.array(p) == 0] == 0).all()
    np.testing.assert_allclose(counts / n, p, rtol=0, atol=4 * 0.5 / np.sqrt(n))


def without_compile(step):
    raise MissingDependencyError("compile")


@pytest.mark.parametrize("settings", [{}, {"top_k": 7}, {"top_p": 0.9}, {"top_k": 9, "top_p": 0.8}])
@pytest.mark.parametrize("kind", ["learned positions", "a window"])
def test_draws_are_those_of_the_whole_sequence_compiled_or_not(kind, settings, rng, monkeypatch):
    model, prompt = model_of(kind, rng), [3, 1, 4, 1, 5, 9, 2]  # longer than the window
    given = {"temperature": 5.0, **settings}
    found = [list(generate(model, prompt, 9, rng=7, **given))]
    monkeypatch.setattr(mg, "compile", without_compile)
    found.append(list(generate(deepcopy(model), prompt, 9, rng=7, **given)))
    draw = Draw(**{"top_k": None, "top_p": None, **given}, rng=np.random.default_rng(7))
    expected = following(model, prompt, 9, lambda logits: draw(logits[None])[0])
    assert found == [expected] * 2
    assert list(generate(deepcopy(model), prompt, 9, rng=8, **given)) != expected


REFUSED = {
    "at least one in each row": {"tokens": []},
    r"tokens must lie in \[0, 31\), got 31": {"tokens": [3, 31]},
    r"tokens must lie in \[0, 31\), got -1": {"tokens": [3, -1]},
    "tokens must be integers": {"tokens": [0.5]},
    "has 23 positions, the prompt and max_new need 24": {"tokens": [3, 1], "max_new": 23},
    "max_new must be an integer of at least 1": {"max_new": 0},
    "stop must be a token or several, as integers": {"stop": "\n"},
    "temperature must be 0 or more, got nan": {"temperature": float("nan")},
    "temperature must be 0 or more, got -1.0": {"temperature": -1.0},
    r"top_p must lie in \(0, 1\], got 0.0": {"top_p": 0.0},
    "top_k must be an integer of at least 1, got 0": {"top_k": 0},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_generated_is_refused_at_the_call(message, rng):
    given = {"tokens": [3], "max_new": 5} | REFUSED[message]
    with pytest.raises((ArgumentError, OutOfRangeError), match=message):
        generate(model_of("learned positions", rng), **given)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_give_no_token(temperature, rng):
    model = model_of("a window", rng)
    model.embedding.W.assign_(np.full(model.embedding.W.shape, np.nan))
    with pytest.raises(NonFiniteError, match="generate: the model's logits are NaN or infinite"):
        next(generate(model, [3], 5, temperature=temperature))


def test_a_tiny_temperature_draws_the_likeliest(rng):
    model = model_of("a window", rng)
    found = list(generate(model, [3], 5, temperature=1e-310, rng=rng))
    assert found == list(generate(model, [3], 5))


def test_attention_that_takes_no_keys_and_values_of_earlier_tokens_is_refused(rng):
    model = model_of("a window", rng)
    model.decoder.blocks[1].attention = LinearAttention(8, 2, is_causal=True)
    with pytest.raises(ArgumentError, match="a block has a LinearAttention"):
        generate(model, [3], 5)


def test_a_cache_of_fixed_size_is_made_once_and_refuses_more(rng):
    layer, X = MultiHeadAttention(6, 2, is_causal=True, rng=rng), rng.normal(size=(2, 5, 6))
    cache, out = KVCache(max_len=5), []
    with mg.no_grad():
        with pytest.raises(ArgumentError, match="max_len is 5, got 10 tokens"):
            layer(rng.normal(size=(3, 10, 6)), cache=cache)
        for t in range(5):
            out.append(layer(X[:, t : t + 1], cache=cache).numpy())
            assert cache.capacity == 5
        assert_same(np.concatenate(out, axis=1), layer(X))
        with pytest.raises(ArgumentError, match="max_len is 5, got 6 tokens"):
            layer(X[:, :1], cache=cache)

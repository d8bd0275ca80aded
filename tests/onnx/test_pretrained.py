"""The families that `load_pretrained` reads, each small and with drawn weights, as models."""

import numpy as np
import pytest

import minigrad as mg
from layers import load_pretrained, padding_mask
from minigrad.errors import ArgumentError

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("safetensors")

from tests.layers.test_pretrained_families import FAMILIES, N_TOKENS, write_family  # noqa: E402

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4}
SCALED = {"rope_scaling": YARN, "max_position_embeddings": 64}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_of_checkpoints_runs_at_other_batches_and_lengths(name, rng, tmp_path):
    more = SCALED if name == "llama" else {}
    model = load_pretrained(write_family(name, tmp_path, positions=50, **more))
    path = str(tmp_path / "m.onnx")

    def draw(batch, n):
        tokens = rng.integers(0, N_TOKENS, (batch, n))
        if name == "t5":
            return [tokens, rng.integers(0, N_TOKENS, (batch, n + 2))]
        return [tokens, rng.random((batch, n)) < 0.7] if "bert" in name else [tokens]

    run = model
    if "bert" in name:
        run = lambda tokens, real: model(tokens, padding_mask(real))  # noqa: E731
    mg.export_onnx(run, draw(2, 7), path, longest=64)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    shapes = [["batch", "length"], ["batch", "written_length" if name == "t5" else "length"]]
    assert [i.shape for i in session.get_inputs()] == shapes[: len(session.get_inputs())]
    for batch, n in ((1, 3), (5, 30)):
        inputs = draw(batch, n)
        feeds = dict(zip([i.name for i in session.get_inputs()], inputs, strict=True))
        ours = run(*inputs).numpy()
        np.testing.assert_allclose(session.run(None, feeds)[0], ours, rtol=1e-4, atol=1e-4)


def test_both_lengths_of_a_t5_have_names_of_their_own_even_where_they_are_equal(rng, tmp_path):
    model, path = load_pretrained(write_family("t5", tmp_path)), str(tmp_path / "m.onnx")
    tokens = rng.integers(0, N_TOKENS, (2, 7))
    mg.export_onnx(model, [tokens, tokens[::-1].copy()], path, longest=32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [i.shape[1] for i in session.get_inputs()] == ["length", "written_length"]
    feeds = {
        "tokens": rng.integers(0, N_TOKENS, (3, 5)),
        "written": rng.integers(0, N_TOKENS, (3, 11)),
    }
    ours = model(*feeds.values()).numpy()
    np.testing.assert_allclose(session.run(None, feeds)[0], ours, rtol=1e-4, atol=1e-4)


BY_LENGTH = {
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "longrope": {"rope_type": "longrope", "short_factor": [1.0] * 2, "long_factor": [2.0] * 2,
                 "original_max_position_embeddings": 8},
}  # fmt: skip


@pytest.mark.parametrize("kind", BY_LENGTH)
def test_angles_that_depend_on_the_length_are_refused_before_any_trial(
    kind, rng, tmp_path, monkeypatch
):
    more = {"rope_scaling": BY_LENGTH[kind], "max_position_embeddings": 16}
    model, calls = load_pretrained(write_family("llama", tmp_path, **more)), []
    monkeypatch.setattr(type(model), "forward", lambda *args: calls.append(args))
    with pytest.raises(ArgumentError, match=r"angles of rotary positions depend on the length"):
        mg.export_onnx(model, [rng.integers(0, N_TOKENS, (2, 7))], tmp_path / "m.onnx")
    assert not calls

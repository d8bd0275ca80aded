"""The families that `load_pretrained` reads, each small and with drawn weights, as models."""

import pytest

import minigrad as mg
from layers import load_pretrained, padding_mask
from minigrad.errors import ArgumentError

pytest.importorskip("safetensors")

from tests.layers.test_pretrained_families import FAMILIES, N_TOKENS, write_family
from tests.onnx.exported import assert_same_at_other_sizes, axes_of

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4}
SCALED = {"rope_scaling": YARN, "max_position_embeddings": 64}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_of_checkpoints_runs_at_other_batches_and_lengths(name, rng, tmp_path):
    more = SCALED if name == "llama" else {}
    model = load_pretrained(write_family(name, tmp_path, positions=50, **more))

    def of_padded_rows(tokens, real):
        return model(tokens, padding_mask(real))

    def draw(batch, n):
        tokens = rng.integers(0, N_TOKENS, (batch, n))
        if name == "t5":  # both lengths have names of their own even where they are equal
            return [tokens, rng.integers(0, N_TOKENS, (batch, 7 if n == 7 else n + 2))]
        return [tokens, rng.random((batch, n)) < 0.7] if "bert" in name else [tokens]

    run = of_padded_rows if "bert" in name else model
    sizes = (1, 3), (5, 30)
    inputs = assert_same_at_other_sizes(run, draw, sizes, tmp_path, 1e-4, longest=64).graph.input
    shapes = [["batch", "length"], ["batch", "written_length" if name == "t5" else "length"]]
    assert [axes_of(one) for one in inputs] == shapes[: len(inputs)]


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

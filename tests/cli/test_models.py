"""`minigrad models`: what a checkpoint's headers say, before anything is loaded."""

import json
import os
import sys

import numpy as np
import pytest

from layers import Decoder, load_pretrained
from layers.pretrained import describe
from minigrad.errors import ArgumentError
from tests.layers.test_pretrained import CONFIG, HOSTILE, SHAPES, file_of, with_header
from tests.layers.test_pretrained_families import write_family
from tests.process import python

pytest.importorskip("safetensors")


def write(folder, shapes=SHAPES, more=(), **config):
    """A checkpoint of these shapes and more tensors; its config is CONFIG but for these."""
    tensors = {name: np.full(shape, 0.01, np.float32) for name, shape in shapes.items()}
    (folder / "model.safetensors").write_bytes(file_of(tensors | dict(more)))
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    return folder


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path)


def test_sizes_and_parts_are_those_of_the_model_that_is_loaded(folder):
    found, model = describe(folder), load_pretrained(folder)
    assert (found.family, found.model) == ("llama", "PretrainedLanguageModel")
    assert found.sizes == {
        "n_layers": 2, "d_model": 8, "n_heads": 2, "n_kv_heads": 1, "d_k": 4, "d_ff": 10,
        "n_tokens": 11,
    }  # fmt: skip
    block = model.decoder.blocks[0]
    assert found.parts == {
        "embedding": 88,
        "norms": 5 * 8,
        "decoder.blocks.*.attention": 2 * sum(p.size for p in block.attention.parameters()),
        "decoder.blocks.*.feed_forward": 2 * 3 * 80,
        "head": 88,
    }
    assert sum(found.parts.values()) == sum(p.size for p in model.parameters())
    assert found.stored == {"float32": (21, 4 * sum(found.parts.values()))}
    assert (found.unused, found.problems) == ([], [])


def test_the_command_prints_them_and_its_status_says_whether_they_load(command, folder):
    ran = command("models", ".", "--tokens", 64, width=300)
    assert ran.status == 0
    assert ran.out.startswith("llama in ., loaded as PretrainedLanguageModel\n2 blocks, ")
    assert "\ndecoder.blocks.*.feed_forward         480  " in ran.out
    assert "\nOf 1 × 64 tokens in float32:\n" in ran.out
    assert "Nothing is unused." in ran.out
    assert max(map(len, command("models", ".", width=40).out.splitlines())) <= 40
    odd = "model.layers.0.self_attn.rotary_emb.inv_freq"
    write(folder, more={odd: np.zeros(2, np.float32)})
    assert f"Not used:\n  {odd}" in command("models", ".").out
    data = json.loads(command("models", folder, "--json", "--dtype", "float16").out)
    assert data["memory"]["weights"] == 2 * sum(data["parts"].values())
    told = command("models", write_family("t5", folder)).out
    assert "\n2 blocks, 2 blocks of the decoder, 8 wide" in told


def test_what_would_be_refused_is_listed_and_the_rest_still_shown(command, folder):
    write(folder, logit_scale=2.0)
    ran = command("models", ".", width=200)
    assert ran.status == 1
    assert "logit_scale = 2.0: not understood" in ran.out
    assert "unused" not in ran.out  # it is not known
    assert "\nmodel.layers" in ran.out
    said = "feed_forward.W: model.layers.0.mlp.gate_proj.weight must be (9, 8), got (10, 8)"
    write(folder, intermediate_size=9)
    assert said in command("models", ".", width=200).out


@pytest.mark.parametrize("kind", [None, *HOSTILE])
def test_a_folder_that_is_none_or_damaged_is_one_line(kind, refused, folder):
    if kind is not None:
        (folder / "model.safetensors").write_bytes(HOSTILE[kind])
    where = folder / "nowhere" if kind is None else folder
    refused("minigrad: error: load_pretrained: ", "models", where, status=1)


def sized(*sizes):
    """The shapes for such a width, such heads, feed-forward layers and vocabulary."""
    known = dict(zip((8, 4, 10, 11), sizes, strict=True))
    config = {"hidden_size": sizes[0], "intermediate_size": sizes[2], "vocab_size": sizes[3]}
    return {name: tuple(known[n] for n in shape) for name, shape in SHAPES.items()}, config


def large(folder):
    """A checkpoint of 15 GB whose entries take no room on the disk."""
    shapes, config = sized(16384, 8192, 44032, 50257)
    tensors, at = {}, 0
    for name, shape in shapes.items():
        end = at + 2 * int(np.prod(shape))
        tensors[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}
        at = end
    header = with_header(tensors)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(header)
        file.truncate(len(header) + at)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))


def run_python(code, *arguments):
    """What a fresh process prints: an integer."""
    return int(python("-c", code, *arguments).stdout)


MORE_MEMORY = """
import resource, sys
from layers.pretrained import describe
from minigrad.errors import ArgumentError
def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = most()
found = describe(sys.argv[1])
assert found.problems == [] and found.memory.weights > 20e9
print(most() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="files with holes, and kB")
def test_a_large_checkpoint_is_described_from_its_headers(tmp_path):
    large(tmp_path)
    assert (tmp_path / "model.safetensors").stat().st_size > 10e9
    assert run_python(MORE_MEMORY, tmp_path) < 100_000


PASS = """
import sys, tracemalloc
import numpy as np
import minigrad as mg
from layers import Decoder, load_pretrained
from minigrad.optim import Adam
model = load_pretrained(sys.argv[1])
tokens = np.random.default_rng(0).integers(0, 999, (4, 256))
tracemalloc.start()
if sys.argv[2] == "run":
    with mg.no_grad():
        model(tokens)
else:
    optimizer = Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        mg.cross_entropy(mg.reshape(model(tokens), (-1, 999)), tokens.ravel()).backward()
        optimizer.step()
print(tracemalloc.get_traced_memory()[1])
"""


@pytest.mark.needs_fast("memory is used again")
@pytest.mark.parametrize("kind", ["run", "train"])
def test_the_memory_told_is_about_that_of_a_pass(kind, folder):
    """Within a third, for a fresh process has small objects too."""
    shapes, config = sized(64, 32, 160, 999)
    write(folder, shapes, **config)
    memory = describe(folder, tokens=256, batch=4).memory
    told = getattr(memory, kind) - memory.weights
    measured = run_python(PASS, folder, kind)
    assert 0.75 < told / measured < 1.33, f"told {told:,}, measured {measured:,}"


# ---------------------------------------------------------------- folders that harm


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("by_index", [False, True])
def test_a_pipe_in_place_of_the_weights_is_refused_and_not_waited_for(refused, folder, by_index):
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    if by_index:
        index = {"weight_map": dict.fromkeys(SHAPES, "model.safetensors")}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    said = "model.safetensors is no regular file"
    refused(said, "models", folder, status=1)
    refused(said, "explain", "--model", folder)


def test_many_stray_tensors_are_told_soon_and_in_ten_lines(command, folder):
    write(folder, more={f"stray.{k}": np.zeros(1, np.float32) for k in range(2_000)})
    ran = command("models", folder)
    assert ran.status == 1
    assert ran.out.count("unexpected") == 10
    assert "… and 1,990 more" in ran.out
    with pytest.raises(ArgumentError, match=r"unexpected\n  and 1,990 more$") as error:
        load_pretrained(folder)
    assert str(error.value).count("\n") == 11


def test_blocks_of_which_nothing_is_there_are_refused_before_any_is_made(folder, monkeypatch):
    large = {"large": np.zeros(8000 * 400, np.float32)}  # as many entries as they would have
    write(folder, more=large, num_hidden_layers=8000)
    monkeypatch.setattr(Decoder, "__init__", None)
    said = "says 8,000 blocks; of 7,998 of them no tensor is there, the first model.layers.2"
    with pytest.raises(ArgumentError, match=said):
        load_pretrained(folder)

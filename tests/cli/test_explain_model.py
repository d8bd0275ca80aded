"""`minigrad explain --model`: checkpoints of a GPT-2 and a BERT, made here."""

import json
import re

import numpy as np
import pytest

from minigrad.cli import checkpoint, explain
from minigrad.cli.arguments import parser
from minigrad.cli.report import FILES, run_source
from minigrad.errors import ArgumentError

tokenizers = pytest.importorskip("tokenizers")
save_file = pytest.importorskip("safetensors.numpy").save_file

from tests.browsing import record_of  # noqa: E402
from tests.layers.test_pretrained_families import FAMILIES, write_family  # noqa: E402

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat a dog ran".split()
LONGEST = 17
ODD = FAMILIES["gpt2"][1] | {"model_type": "gpt2", "twist": 3}
TEXT = "the cat sat on the mat"


def write(folder, family):
    """A checkpoint of these words, with its tokenizer, and a BERT's pooling."""
    folder.mkdir()
    write_family(family, folder, len(WORDS), LONGEST)
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    if family == "bert":
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
        (folder / "1_Pooling").mkdir()
        pooling = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    made.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def hub(tmp_path_factory):
    """A checkpoint of a family."""
    return lambda family: write(tmp_path_factory.mktemp("hub") / family, family)


@pytest.fixture
def gpt2(hub):
    return hub("gpt2")


@pytest.fixture
def bert(hub):
    return hub("bert")


def reported(folder, **options):
    """What `explain` reports of a checkpoint."""
    return run_source(checkpoint.checkpoint(str(folder), **options))


def known_of(folder, **options):
    """What trace.json says of a checkpoint, beside the record."""
    return json.loads(reported(folder, **options).record())["explain"]


def unpooled(folder):
    (folder / "1_Pooling" / "config.json").unlink()


def untokenized(folder):
    (folder / "tokenizer.json").unlink()


TOLD = {
    "gpt2": (
        "gpt2", None, {"text": TEXT},
        ["next-token loss: loss", "6 tokens, float32", 'likeliest after "sat" "on" "the" "mat"',
         "the same token elsewhere", "58 gradients equal the hand-derived steps",
         "58 of 58 backward steps agree"],
    ),
    "ids do without a tokenizer": (
        "gpt2", untokenized, {"tokens": "5,6,7", "target": "8"}, ['next-token loss of "8"'],
    ),
    "masks": (
        "bert", None, {"text": "the [MASK] sat on a [MASK]", "target": "cat mat"},
        ['masked loss of "cat", "mat"', "likeliest at", "likeliest at"],
    ),
    "two texts": (
        "bert", None, {"text": TEXT, "target": "a dog ran"},
        ["similarity loss: loss", "8 tokens and 5 tokens", "gradient by token of text 2"],
    ),
    "two texts without a pooling": (
        "bert", unpooled, {"text": "the cat", "target": "a dog ran"},
        ["the mean of its tokens', as there is no"],
    ),
    "what a t5 is to write": (
        "t5", None, {"text": "the cat sat", "target": "a dog"},
        ['next-token loss of "a", "dog"', 'likeliest after "(start)" "a"', "encoder 0",
         "encoder/blocks.0/attention", "decoder/blocks.0/cross_attention"],
    ),
    "what a t5 would write": (
        "t5", None, {"text": "the cat sat"}, ['likeliest after "(start)"'],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", TOLD)
def test_a_checkpoint_is_told(hub, what):
    family, change, options, told = TOLD[what]
    folder = hub(family)
    if change:
        change(folder)
    report = reported(folder, **options)
    assert report.succeeded()
    rest = " ".join(" ".join(report.parts(100, False)).split())
    for said in told:
        assert said in rest
        rest = rest.replace(said, "", 1)


def test_all_files_are_written_and_the_page_has_the_tables_of_the_report(command, bert, tmp_path):
    ran = command("explain", "--model", bert, "--text", "the [MASK] sat", "--target", "cat")
    assert ran.status == 0, ran.err
    assert {path.name for path in (tmp_path / "explained").iterdir()} == {*FILES}
    told, page = ran.out, (tmp_path / "explained" / "explain.html").read_text(encoding="utf-8")
    guesses, tokens, blocks, heads = record_of(page)["tables"]
    for table in (guesses, tokens, blocks, heads):
        assert table["title"] in told
    assert ["2", '"[MASK]"'] in [row[:2] for row in tokens["rows"]]
    assert tokens["columns"] == ["", "token", "rms of ∂L/∂X", "∂L/∂X · X"]
    assert [row[0] for row in blocks["rows"]] == ["0", "1"]
    for row in blocks["rows"]:
        assert re.search(rf"\n{row[0]} +{re.escape(row[1])} ", told)
    assert heads["rows"][0][0] == "itself"


def test_figures_are_those_of_the_model(gpt2):
    from layers import load_pretrained

    known = known_of(gpt2, text="the dog", target="ran", dtype="float64")
    logits = load_pretrained(gpt2, np.float64)(np.array([[5, 11]])).numpy()[0]
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    guesses = dict(known["guesses"]['likeliest after "the" "dog"'])
    np.testing.assert_allclose(known["loss"], -np.log(p[1, 12]), rtol=1e-12)
    np.testing.assert_allclose(guesses["ran"], p[1, 12], rtol=1e-12)
    assert next(iter(guesses)) == WORDS[p[1].argmax()]
    [[first, second]] = known["by_token"]
    assert first["probability"] is None
    assert {"previous token", "∂L/∂A · A"} < known["by_head"].keys()
    np.testing.assert_allclose(second["probability"], p[0, 11], rtol=1e-12)


def test_a_t5_has_a_gradient_for_each_token_that_it_reads(hub):
    [by_token] = known_of(hub("t5"), text="the cat sat", target="a dog")["by_token"]
    assert [token["token"] for token in by_token] == ["the", "cat", "sat"]


def test_masked_losses_and_similarities_are_those_of_the_model(bert):
    known = known_of(bert, text="the [MASK] sat")
    assert known["objective"] == "masked"
    [[_, likeliest], *_] = next(iter(known["guesses"].values()))
    np.testing.assert_allclose(known["loss"], -np.log(likeliest), rtol=1e-5)
    assert abs(known_of(bert, text=TEXT, target=TEXT)["loss"]) < 1e-6
    pooled = known_of(bert, text="the cat", target="a dog ran")["loss"]
    unpooled(bert)
    unspecified = known_of(bert, text="the cat", target="a dog ran")["loss"]
    np.testing.assert_allclose(unspecified, pooled, rtol=1e-4)


def test_weights_that_are_not_finite_are_no_success(command, gpt2):
    from safetensors.numpy import load_file

    tensors = load_file(gpt2 / "model.safetensors")
    tensors["wte.weight"][5] = np.nan
    save_file(tensors, gpt2 / "model.safetensors")
    ran = command("explain", "--model", gpt2, "--text", TEXT)
    assert ran.status == 1
    assert "the loss is nan" in ran.out
    assert "NaN or infinity in this run: " in ran.out


# ---------------------------------------------------------------- what cannot be

WRONG = [
    ("bert", ["--text", TEXT], "write [MASK] in --text where it is to guess, or give --target"),
    ("bert", ["--text", "a [MASK]", "--target", "the cat"], "'the cat' is 2 tokens, 'the', 'cat'"),
    ("bert", ["--text", "[MASK] [MASK]", "--target", "the"], "has 2 masks, --target 1 words"),
    ("gpt2", ["--target", "zebra"], "'zebra' is no token of this tokenizer"),
    ("gpt2", ["--text", ""], "--text holds no token"),
    ("gpt2", ["--text", "the"], "--text has 1 token: a next one needs two"),
    ("gpt2", ["--text", "the " * 18], "--text has 18 tokens; the model's context holds 17"),
    ("gpt2", ["--tokens", "1,x"], "--tokens must be numbers such as 0,3,8-11, got '1,x'"),
    ("gpt2", ["--tokens", ""], "--tokens must be numbers such as 0,3,8-11, got ''"),
    ("gpt2", ["--tokens", "1", "--text", "the"], "--tokens takes the place of --text"),
    ("gpt2", ["--target", ""], "--target holds no token"),
    ("gpt2", ["--tokens", "1,99"], "--tokens 99: the model's tokens are 0 to 12"),
    ("gpt2", ["--heads", "2"], "--heads is for the two layers and does not go with --model"),
    ("gpt2", ["--seed", "1"], "--seed is for the two layers and does not go with --model"),
    ("gpt2", ["multi-head"], "--model runs a checkpoint and does not go with multi-head"),
]


@pytest.mark.parametrize(("which", "arguments", "said"), WRONG, ids=lambda x: " ".join(x)[:40])
def test_what_cannot_be_is_one_line_before_the_weights_are_read(
    refused, hub, monkeypatch, which, arguments, said
):
    monkeypatch.setattr(checkpoint, "load_pretrained", None)
    refused(said, "explain", "--model", hub(which), *arguments)


def test_more_memory_than_there_is_is_refused(refused, gpt2, monkeypatch):
    monkeypatch.setattr(checkpoint, "memory", lambda: 1000)
    refused("6 tokens need about", "explain", "--model", gpt2, "--text", TEXT)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", None, "has no config.json"),
        ("config.json", '{"model_type": "vit"}', "model_type must be one of gpt2"),
        ("config.json", json.dumps(ODD), "twist = 3: not understood"),
        ("model.safetensors", None, "has no .safetensors file"),
        ("model.safetensors", "cut", "model.safetensors is damaged"),
        ("tokenizer.json", "{}", "tokenizer.json is damaged"),
        ("tokenizer.json", None, "has no tokenizer.json; copy that of the model it was trained "
         "from; --tokens 1,2,3 takes ids"),
        (".", "", "no such folder"),
    ],
)  # fmt: skip
def test_a_folder_that_is_no_model_is_one_line(refused, gpt2, name, content, said):
    if name == ".":
        gpt2 /= "not"
    else:
        (gpt2 / name).unlink() if content is None else (gpt2 / name).write_text(content)
    refused(said, "explain", "--model", gpt2, "--text", TEXT)


def test_a_checkpoint_that_is_played_with_reads_another_text(gpt2, capsys):
    arguments = parser().parse_args(["play", "--model", str(gpt2), "--text", TEXT])
    played = explain.session_of(arguments)
    loss = played.run.loss
    played.set_keyword("text", "a dog ran")
    assert played.page["tokens"] == [["a", "dog", "ran"]]
    capsys.readouterr()
    exec(played.python(), {})
    assert float(capsys.readouterr().out) == played.run.loss != loss
    with pytest.raises(ArgumentError, match="context holds"):
        played.set_keyword("text", "cat " * 40)
    assert played.page["tokens"] == [["a", "dog", "ran"]]
    played.undo()
    assert played.run.loss == loss

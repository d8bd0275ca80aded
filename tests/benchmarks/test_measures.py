"""Memory, the profile, and what is on disk: what they count, on things of a known size."""

import sys
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

import minigrad as mg
from benchmarks import footprint, memory, spent
from benchmarks.cases import TABLE, Attention, Gpt
from benchmarks.contestants import everyone
from benchmarks.lines import Lines, called
from benchmarks.peers import Peer, Unsupported
from benchmarks.remote import ROOT


def loaded(name):
    peer = everyone(str(ROOT))[name]
    peer.load()
    return peer


class Keeping(Peer):
    """Allocates 3 MB beforehand, and 2 MB in each step, which it lets go."""

    def attention(self, case, inputs):
        kept = np.ones(3_000_000, np.uint8)
        return lambda: {"out": (kept, np.ones(2_000_000, np.uint8))[0][:1]}


def test_traced_memory_counts_what_is_allocated_beforehand_and_within(monkeypatch):
    monkeypatch.setattr(memory, "method", lambda: "traced")
    case = Attention("few", "", 2, 5, 7, 3)
    assert 5_000_000 <= memory.peak(Keeping("keeping", "keeping"), case, "float32") < 5_100_000
    assert not tracemalloc.is_tracing()


@pytest.mark.parametrize("name", ["eager", "tiled"])
def test_the_shares_of_a_step_add_up_to_all_of_it(name):
    taken = spent.spend(loaded(name), TABLE["tiny"], "float32", 0.0)
    assert sum(taken.shares.values()) == pytest.approx(1.0)
    assert min(taken.shares.values()) >= 0
    assert taken.seconds > 0
    kinds = {"eager": "softmax", "tiled": "tiles"}
    assert {"products", spent.PYTHON, kinds[name]} <= taken.shares.keys()
    assert kinds["tiled" if name == "eager" else "eager"] not in taken.shares


def test_the_optimiser_has_a_share_of_its_own():
    case = Gpt("gpt", "", layers=1, d_model=4, heads=2, n=3, B=2, vocabulary=5)
    shares = spent.spend(loaded("eager"), case, "float32", 0.0).shares
    assert spent.OPTIMISER in shares
    assert sum(shares.values()) == pytest.approx(1.0)


def test_a_compiled_steps_lines_are_heard():
    shares = spent.spend(loaded("compiled"), TABLE["tiny"], "float32", 0.0).shares
    assert {"products", "entry-wise", "sums", spent.PYTHON} <= shares.keys()
    assert sum(shares.values()) == pytest.approx(1.0)


def test_a_step_that_could_not_be_compiled_is_not_passed_off_as_compiled():
    class Peeking(type(loaded("compiled"))):
        def _run(self, function):
            return super()._run(lambda: (out := function(), float(out.data.sum()))[0])

    peer = Peeking("compiled", "compiled", str(ROOT), compiled=True)
    peer.load()
    step = peer.step(TABLE["tiny"], TABLE["tiny"].inputs("float32"))
    step()
    assert peer.excuse().startswith("not compiled: ")
    with pytest.raises(Unsupported, match="not compiled"):
        spent.spend(peer, TABLE["tiny"], "float32", 0.0)


def test_each_line_of_a_compiled_step_is_timed():
    peer = loaded("compiled")
    step = peer.step(TABLE["tiny"], TABLE["tiny"].inputs("float32"))
    step(), step()
    with Lines() as lines:
        step()
    source = peer.program.source.split("\n")
    first = next(i for i, line in enumerate(source) if line.startswith("    def step("))
    calls = {i + 1 for i, line in enumerate(source) if i > first and called(line)}
    assert calls <= lines.seconds.keys()
    assert min(lines.seconds) > first
    assert sys.gettrace() is lines._outer


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("(t_121,) = getitem_backward(t_112, ((3, 5), 2))", "moves"),
        ("t_36 = linear(t_35, w_12, w_13)  # (3, 5, 32)", "products"),
        ("t_7 = linear_2(t_35, w_12, w_13)", "products"),
        ("np.maximum.reduce(S, axis=-1, out=t_2)", "sums"),
        ("leaf_b.grad = np.asarray(leaf_b.grad + d_b)", "entry-wise"),
        ("optimiser.step()", "optimiser"),
        ("return Tensor(t_60)", "Python"),
        ("t_2_v = t_2[0]  # np.dot(", "Python"),
    ],
)
def test_a_line_is_sorted_by_what_it_calls(line, kind):
    assert spent.line_kind(f"        {line}", mg.registry) == kind


def test_only_minigrad_tells_what_it_does():
    with pytest.raises(Unsupported):
        spent.spend(loaded("hand-best"), TABLE["tiny"], "float32", 0.0)
    with pytest.raises(Unsupported):
        spent.long_chain(loaded("hand-best"), 50)


def test_every_op_is_of_a_known_kind():
    assert {spent.kind(op) for op in mg.registry.values()} <= set(spent.KINDS)
    kinds = {name: spent.kind(mg.registry[name]) for name in ("matmul", "softmax", "gelu", "take")}
    assert list(kinds.values()) == [
        "products",
        "softmax",
        "entry-wise",
        "moves",
    ]


def test_a_long_chain_is_walked_and_checked():
    assert list(spent.long_chain(loaded("eager"), 50)) == ["forward", "backward", "to be freed"]

    class Doubling:
        def __add__(self, other):
            return self

        def backward(self):
            self.grad = 2.0

    peer = loaded("eager")
    peer.mg = SimpleNamespace(tensor=lambda value, requires_grad: Doubling())
    with pytest.raises(ArithmeticError, match=r"50 additions: the gradient is 2\.0, not 1"):
        spent.long_chain(peer, 50)


@pytest.fixture
def project(tmp_path):
    """A checkout with one source of a known size, and a file of 100 bytes beside it."""
    (tmp_path / "minigrad" / "__pycache__").mkdir(parents=True)
    (tmp_path / "minigrad" / "__pycache__" / "a.pyc").write_bytes(bytes(5000))
    (tmp_path / "minigrad" / "a.py").write_text("x = 1\n")
    (tmp_path / "minigrad" / "style.css").write_bytes(bytes(100))
    (tmp_path / "pyproject.toml").write_text(
        '[project]\ndependencies = ["numpy>=2.0", "no.such_package>=1"]\n'
    )
    return tmp_path


def test_size_is_that_of_files_and_of_the_bytecode_sources_make(project):
    assert 106 < footprint.size(project, "minigrad") < 506
    (project / "minigrad" / "style.css").write_bytes(bytes(1100))
    assert 1106 < footprint.size(project, "minigrad") < 1506


def test_dependencies_are_the_projects_own_and_the_missing_have_no_size(project):
    assert footprint.dependencies(project) == ["no-such-package"]
    assert footprint.size(project, "no-such-package") is None
    assert footprint.size(project, "graphviz") > 100_000


def test_imports_are_timed_after_numpys(project):
    (project / "quick.py").write_text("import numpy")
    seconds = footprint.imports(str(project), {"quick": "quick"}, 1)
    assert list(seconds) == ["NumPy", "quick"]
    with pytest.raises(ImportError, match="No module named 'nowhere'"):
        footprint.imports(str(project), {"nowhere": "nowhere"}, 1)

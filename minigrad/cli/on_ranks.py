"""A sentence through one layer whose heads several ranks share.

It starts MPI: `mpiexec -n 2 python -m mpi4py -m minigrad.cli.on_ranks FILE`, where the file holds
what to run, then what came of it.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from layers import multi_head_steps
from layers.parallel import shard

from ..distributed import run, world
from ..recording.record import Check
from ..recording.trace import compare_steps
from ..tracing import Trace
from .sentence import Settings, forward_backward

__all__ = ["run_on_ranks"]

LIMIT = 120  # seconds, for a sentence that takes one or two


def run_on_ranks(*asked: Any) -> tuple[Trace, list[Check], str]:
    """The record of all ranks, their gradients put together and checked, and what the ranks were:
    processes, or threads and why.

    Args: asked: the settings, the tokens, the vocabulary.
    """
    beside = shutil.which("mpiexec", path=Path(sys.executable).parent)
    mpiexec, ranks = beside or shutil.which("mpiexec"), asked[0].ranks
    if not mpiexec or not find_spec("mpi4py"):
        why = 'no MPI; pip install "minigrad[mpi]"'
    elif world().size > 1:
        why = "already within MPI"
    else:
        try:
            return (*_over_mpi(mpiexec, asked), f"{ranks} ranks over MPI")
        except subprocess.SubprocessError as error:
            why = f"mpiexec failed: {getattr(error, 'returncode', f'nothing for {LIMIT} s')}"
    return (*run(ranks, _one_rank, *asked)[0], f"{ranks} ranks as threads ({why})")


def _over_mpi(mpiexec: str, asked: Any) -> Any:
    """What rank 0 found. Raises: SubprocessError."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "run")
        file.write_bytes(pickle.dumps(asked))
        program = [sys.executable, "-m", "mpi4py", "-m", __name__, str(file)]
        subprocess.run(
            [mpiexec, "-n", str(asked[0].ranks), *program],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT,
            check=True,
        )
        return pickle.loads(file.read_bytes())


def _one_rank(s: Settings, tokens: list[str], vocabulary: list[str]) -> tuple[Trace, list[Check]]:
    trace, layer, whole, mask = forward_backward(s, tokens, vocabulary, shard)
    return trace.of_all_ranks(), _put_together(whole, layer, trace, mask)


def _put_together(whole: Any, layer: Any, trace: Trace, mask: Any) -> list[Check]:
    """The gradients of all ranks' weights against the steps derived by hand for the whole layer."""
    own = dict(layer.part.named_parameters())
    names = [name for name, _ in whole.named_parameters()]
    engine = {
        name: layer.layout.whole(name, own[name].grad if name in own else np.zeros(0))
        for name in names
    }
    engine["X"] = trace["X"].gradient
    known = {name: p.numpy() for name, p in whole.named_parameters()}
    known |= {"X": trace["X"].value, "grad_output": trace["out"].gradient, "mask": mask}
    steps = multi_head_steps(n_heads=whole.n_heads, **known)
    found = compare_steps("all ranks, put together", steps, engine.get, {})
    return [check for check in found if check.symbol in engine]


if __name__ == "__main__":
    file = Path(sys.argv[1])
    found = _one_rank(*pickle.loads(file.read_bytes()))
    world().collect(None)  # all have read it
    if world().rank == 0:
        file.write_bytes(pickle.dumps(found))

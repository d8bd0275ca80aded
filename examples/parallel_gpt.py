"""A small GPT trained on several ranks, which ends where one process ends.

    mpiexec -n 2 python -m mpi4py examples/parallel_gpt.py                 # half of the heads each
    mpiexec -n 2 python -m mpi4py examples/parallel_gpt.py --tensor 1      # half of a batch each
    mpiexec -n 2 python -m mpi4py examples/parallel_gpt.py --file run.npz  # goes on from a file

`--tensor` ranks share the layers, the others share batches, and each keeps a part of the
optimizer's state. With `--quick` two threads stand for the ranks, and MPI is not needed.
"""

import argparse
from pathlib import Path

import numpy as np

import minigrad as mg
from layers import LanguageModel
from layers.parallel import (
    DataParallel,
    ShardedOptimizer,
    Whole,
    clip_grad_norm,
    grid,
    save,
    shard,
    split_cross_entropy,
)
from minigrad import distributed as dist
from minigrad.optim import AdamW
from minigrad.optim import clip_grad_norm as clip_grad_norm_alone

TEXT = "the heads are many, the sum is one; what each rank knows, all ranks have known. " * 4
LETTERS = sorted(set(TEXT))
TOKENS = np.array([LETTERS.index(letter) for letter in TEXT])
LENGTH, ROWS = 32, 5


def new_model() -> LanguageModel:
    return LanguageModel(
        len(LETTERS), d_model=32, n_heads=4, n_layers=2, max_len=LENGTH, dropout=0.1, rng=0
    )


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and the ones that follow, (ROWS, LENGTH) each: the same on every rank."""
    starts = np.random.default_rng(step).integers(0, len(TOKENS) - LENGTH, ROWS)
    rows = np.stack([TOKENS[start : start + LENGTH + 1] for start in starts])
    return rows[:, :-1], rows[:, 1:]


def train(options: argparse.Namespace) -> list[float]:
    """Each step's loss, from the first step or from where the file stands."""
    data, tensor = grid(options.tensor)
    model = shard(new_model(), tensor)
    parallel = DataParallel(model, data)
    optimizer = ShardedOptimizer(AdamW(model.parameters(), lr=1e-2), data)
    parts = {"model": Whole(model), "optimizer": Whole(model, optimizer)}
    first, losses = 0, []
    if options.file and options.file.exists():
        first = mg.load(options.file, **parts)["step"]
    for step in range(first, options.steps):
        tokens, targets = batch(step)
        optimizer.zero_grad()
        logits = model(parallel.rows(tokens))  # (B / data, n, this rank's letters)
        loss = parallel.mean(split_cross_entropy(logits, parallel.rows(targets), tensor))
        loss.backward()
        parallel.reduce()
        clip_grad_norm(model, 1.0)
        optimizer.step()
        losses.append(dist.all_reduce(loss.numpy(), data).item())
        if options.file and (step + 1) % 10 == 0:
            save(options.file, **parts, step=step + 1)
        if dist.world().rank == 0 and (step + 1) % 10 == 0:
            print(f"step {step + 1}: loss {losses[-1]:.6f}", flush=True)
    return losses


def train_alone(steps: int) -> list[float]:
    """What one process computes."""
    model, losses = new_model(), []
    optimizer = AdamW(model.parameters(), lr=1e-2)
    for step in range(steps):
        tokens, targets = batch(step)
        optimizer.zero_grad()
        loss = mg.cross_entropy(model(tokens), targets)
        loss.backward()
        clip_grad_norm_alone(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tensor", type=int, default=2, help="ranks that share the layers")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--file", type=Path, help="where the run is kept, and taken up again")
    parser.add_argument("--quick", action="store_true", help="two threads stand for the ranks")
    options = parser.parse_args()
    if options.quick:
        options.steps = 10
        losses = dist.run(2, train, options)[0]
    elif dist.world().size == 1:
        raise SystemExit(
            "one rank alone has nothing to share: start several with mpiexec -n 2 python -m mpi4py "
            f"{parser.prog}, or two threads with --quick"
        )
    else:
        losses = train(options)
    if dist.world().rank == 0 and losses:
        apart = np.abs(np.subtract(losses, train_alone(options.steps)[-len(losses) :])).max()
        assert apart < 1e-10
        print(f"{len(losses)} losses, each at most {apart:.0e} from those of one process")


if __name__ == "__main__":
    main()

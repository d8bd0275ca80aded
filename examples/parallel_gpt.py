"""A small GPT on several ranks, which ends where one process ends.

    mpiexec -n 2 python -m mpi4py examples/parallel_gpt.py            # half of the heads each
    mpiexec -n 2 python -m mpi4py examples/parallel_gpt.py --rows     # half of each batch each

Without mpiexec there is one rank, which has all of it. `--quick` takes 5 steps, not 30.
"""

import sys

import numpy as np

import minigrad as mg
from layers import LanguageModel, Module
from layers.parallel import average_gradients, shard
from minigrad import distributed as dist
from minigrad.optim import AdamW

TEXT = "the heads are many, the sum is one; what each rank knows, all ranks have known. " * 4
LETTERS = sorted(set(TEXT))
TOKENS = np.array([LETTERS.index(letter) for letter in TEXT])
LENGTH, ROWS = 32, 4


def new_model() -> LanguageModel:
    return LanguageModel(len(LETTERS), d_model=32, n_heads=4, n_layers=2, max_len=LENGTH, rng=0)


def batch(step: int) -> np.ndarray:
    """Rows of tokens (ROWS, LENGTH + 1): the same on every rank."""
    starts = np.random.default_rng(step).integers(0, len(TOKENS) - LENGTH, ROWS)
    return np.stack([TOKENS[start : start + LENGTH + 1] for start in starts])


def train(model: Module, steps: int, ranks: dist.Ranks | None = None) -> list[float]:
    """Each step's loss. Given ranks, each takes its rows of a batch."""
    optimizer, losses = AdamW(model.parameters(), lr=1e-2), []
    for step in range(steps):
        rows = batch(step) if ranks is None else dist.split_to_ranks(batch(step), ranks)
        optimizer.zero_grad()
        loss = mg.cross_entropy(model(rows[:, :-1]), rows[:, 1:])
        loss.backward()
        if ranks is not None:
            average_gradients(model, ranks)
        optimizer.step()
        losses.append(loss.item())
    return losses if ranks is None else dist.all_reduce(np.array(losses)) / ranks.size


def main():
    steps = 5 if "--quick" in sys.argv else 30
    ranks = dist.world()
    if "--rows" in sys.argv:
        losses = train(new_model(), steps, ranks)
    else:
        losses = train(shard(new_model(), ranks), steps)
    apart = np.abs(np.subtract(losses, train(new_model(), steps))).max()
    assert apart < 1e-10
    if ranks.rank == 0:
        print(f"loss {losses[0]:.3f} to {losses[-1]:.3f} on {ranks.size} rank(s)")
        print(f"each of {steps} losses is at most {apart:.0e} from that of one process")


if __name__ == "__main__":
    main()

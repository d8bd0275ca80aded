"""Print the lines of Python of each room beside its budget; exit with 1 if one is over.

A budget is a promise to the reader: how much there is to read. It is kept by splitting, naming and
deleting, never by dense code. Raising one takes a commit of its own that says why.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LATER = ["recurrent", "convolution", "pretrained", "parallel"]  # layers beyond attention

# room: what it holds, what of that is another room's, most lines
BUDGETS: dict[str, tuple[list[str], list[str], int]] = {
    "engine": (["minigrad/engine"], [], 1450),
    "ops": (["minigrad/ops"], [], 2800),
    "beside them": (
        [
            f"minigrad/{name}"
            for name in ("functional", "check", "anomaly", "optim", "data", "saving")
        ],
        [],
        1500,
    ),
    "recording": (["minigrad/recording"], [], 1300),
    "views": (["minigrad/views", "minigrad/tracing"], [], 4200),
    "fast, less compiler": (["minigrad/fast"], ["minigrad/fast/compiler"], 2000),
    "fast/compiler": (["minigrad/fast/compiler"], [], 2600),
    "distributed": (["minigrad/distributed"], [], 700),
    "cli": (["minigrad/cli", "minigrad/__main__"], [], 1000),
    "layers, attention": (["layers"], [f"layers/{name}" for name in LATER], 4600),
    "layers": (["layers"], [], 6500),
    "tests": (["tests"], [], 18_000),
}


def lines(part: str) -> int:
    """The lines of a module, or of all modules of a folder; 0 if there is none."""
    module = ROOT / f"{part}.py"
    files = [module] if module.is_file() else (ROOT / part).rglob("*.py")
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def main() -> int:
    over = 0
    for room, (parts, others, budget) in BUDGETS.items():
        count = sum(map(lines, parts)) - sum(map(lines, others))
        over += count > budget
        print(f"{room:20} {count:7,} of {budget:7,}{'   over' if count > budget else ''}")
    print(f"{'minigrad in all':20} {lines('minigrad'):7,}")
    return over > 0


if __name__ == "__main__":
    sys.exit(main())

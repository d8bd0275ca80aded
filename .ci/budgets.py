"""Lines of Python of each room beside its ceiling and its budget; exits with 1 above a ceiling.

A budget is a promise to the reader: how much there is to read. It is kept by splitting, naming and
deleting, never by dense code. A ceiling is where a room stands on the way to its budget: it only
comes down. Raising one takes a commit of its own that says why.
"""

import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
BESIDE = ["functional", "check", "anomaly", "optim", "data", "saving", "best", "without_fast"]
LATER = (
    "__init__ recurrent hand_derived_recurrent initialisers losses quantized low_rank convolution "
    "pretrained torch_names generation parallel"
).split()
"""Layers beyond attention, and the list of all names."""
INSIDE = [f"minigrad/recording/{name}" for name in ("attribution", "gradients", "patching")]


class Room(NamedTuple):
    """The modules and folders it holds, which of them are another room's, and its limits."""

    parts: list[str]
    others: list[str]
    ceiling: int
    budget: int


ROOMS = {
    "engine": Room(["minigrad/engine"], [], 2102, 1450),
    "ops": Room(["minigrad/ops"], [], 5350, 2800),
    "beside them": Room([f"minigrad/{name}" for name in BESIDE], [], 2360, 1500),
    "recording": Room(["minigrad/recording"], INSIDE, 2851, 1300),
    "looking inside": Room([*INSIDE, "minigrad/interventions", "minigrad/paths"], [], 816, 700),
    "views": Room(["minigrad/views", "minigrad/tracing", "minigrad/watching"], [], 7628, 4200),
    "fast, less compiler": Room(["minigrad/fast"], ["minigrad/fast/compiler"], 3155, 2000),
    "fast/compiler": Room(["minigrad/fast/compiler"], [], 3980, 2600),
    "distributed": Room(["minigrad/distributed"], [], 947, 700),
    "onnx": Room(["minigrad/onnx"], [], 2_741, 900),
    "cli": Room(["minigrad/cli", "minigrad/__main__"], [], 2230, 1000),
    "layers, attention": Room(["layers"], [f"layers/{name}" for name in LATER], 5590, 4600),
    "layers": Room(["layers"], [], 10_360, 6500),
    "tests": Room(["tests"], [], 27_550, 18_000),
}


def lines(part: str) -> int:
    """The lines of a module, or of all modules of a folder; 0 if there is none."""
    module = ROOT / f"{part}.py"
    files = [module] if module.is_file() else (ROOT / part).rglob("*.py")
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def main() -> int:
    over = 0
    print(f"{'':20} {'lines':>7} {'ceiling':>9} {'budget':>8}")
    for name, room in ROOMS.items():
        count = sum(map(lines, room.parts)) - sum(map(lines, room.others))
        over += count > room.ceiling
        mark = "   over" if count > room.ceiling else ""
        print(f"{name:20} {count:7,} {room.ceiling:9,} {room.budget:8,}{mark}")
    print(f"{'minigrad in all':20} {lines('minigrad'):7,}")
    return over > 0


if __name__ == "__main__":
    sys.exit(main())

"""Lines by room, Python and web beside each other: a report, which fails nothing.

What is kept small is the number of ways of doing one thing, and of files on a reader's way.
"""

from pathlib import Path

ROOT = Path(__file__).parents[1]
WEB = {".js", ".css", ".html"}


def lines(files: list[Path]) -> int:
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def report(name: str, folder: Path, pattern: str = "**/*") -> None:
    """One row: the lines of the files in a folder that match."""
    files = [file for file in folder.glob(pattern) if file.is_file()]
    python = lines([file for file in files if file.suffix == ".py"])
    web = lines([file for file in files if file.suffix in WEB])
    print(f"{name:26} {python:7,} {web or '':>7}")


def main() -> None:
    print(f"{'':26} {'Python':>7} {'web':>7}")
    minigrad = ROOT / "minigrad"
    for folder in sorted(path for path in minigrad.iterdir() if path.is_dir()):
        if folder.name != "__pycache__":
            report(f"minigrad/{folder.name}/", folder)
    report("minigrad/*.py", minigrad, "*.py")
    for name in ("minigrad", "layers", "tests", "examples", "benchmarks"):
        report(f"{name}, in all", ROOT / name)


if __name__ == "__main__":
    main()

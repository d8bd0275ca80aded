"""How much there is to read, by room: a report, which fails nothing.

A token is a name, a number or an operator; a string counts one for each six characters, and
comments, docstrings and ends of lines count nothing. Lines can be packed, tokens cannot.
"""

import ast
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("minigrad", "layers", "tests", "benchmarks", "examples")
WEB = {".js", ".css", ".html"}
NOT_READ = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def tokens(text: str) -> int:
    """The tokens of a Python file."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, DOCUMENTED)]
    starts = [node.body[0] for node in nodes if ast.get_docstring(node) is not None]
    docstrings = {(start.lineno, start.col_offset) for start in starts}
    return sum(
        max(1, len(token.string) // 6) if token.type == tokenize.STRING else 1
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NOT_READ and token.start not in docstrings
    )


def report(name: str, files: list[Path]) -> None:
    """A row: tokens, files and lines of Python, and lines of what a browser reads."""
    texts = {file: file.read_text(encoding="utf-8") for file in files if file.is_file()}
    python = [text for file, text in texts.items() if file.suffix == ".py"]
    web = sum(text.count("\n") for file, text in texts.items() if file.suffix in WEB)
    lines = sum(text.count("\n") for text in python)
    row = f"{name:24}{sum(map(tokens, python)):10,}{len(python):7,}{lines:9,}{web or '':>7}"
    print(row.rstrip())


def readable(folder: Path, pattern: str = "**/*") -> list[Path]:
    return [file for file in folder.glob(pattern) if file.suffix in {".py", *WEB}]


def main() -> None:
    print(f"{'':24}{'tokens':>10}{'files':>7}{'lines':>9}{'web':>7}")
    package = ROOT / "minigrad"
    for folder in sorted(path for path in package.iterdir() if (path / "__init__.py").is_file()):
        report(f"  minigrad/{folder.name}/", readable(folder))
    report("  minigrad/*.py", readable(package, "*.py"))
    for part in PARTS:
        report(part, readable(ROOT / part))


if __name__ == "__main__":
    main()

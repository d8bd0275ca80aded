"""Running the command within this process, and rules that are wrong on purpose."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from minigrad import registry
from minigrad.__main__ import main


class Ran(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Ran]:
    """Run `minigrad` with these arguments, for a terminal of 100 columns unless told."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: Any, width: int = 100) -> Ran:
        monkeypatch.setenv("COLUMNS", str(width))
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        return Ran(status, *capsys.readouterr())

    return run


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make a backward rule wrong: its gradient passes through `spoil`."""

    def spoil_rule(op: str, name: str, spoil: Callable[[Any], Any]) -> None:
        made = registry[op]
        rule = made.rules[name]

        def wrong(*arguments: Any) -> Any:
            return spoil(rule.function(*arguments))

        monkeypatch.setattr(made, "rules", {**made.rules, name: rule._replace(function=wrong)})
        monkeypatch.setattr(made, "overlay", None)  # a faster rule would not be wrong
        monkeypatch.setattr(made, "plans", {})
        monkeypatch.setattr(made, "overlay", None)  # a faster rule would not be wrong

    return spoil_rule

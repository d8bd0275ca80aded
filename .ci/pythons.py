"""Print every CPython that this project supports and this machine offers, oldest first.

One line each, `3.13.0 /path/to/python3.13`: the newest of each minor version, from PATH and from
pyenv's versions, that can make a virtual environment.
"""

import os
import re
import subprocess
from pathlib import Path

OLDEST = (3, 11)  # pyproject.toml's requires-python
ABOUT = f"""
import ensurepip, platform, sys
final = sys.version_info.releaselevel == "final"
if final and platform.python_implementation() == "CPython" and sys.version_info >= {OLDEST}:
    print(platform.python_version(), sys.executable)
"""


def candidates() -> list[Path]:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders = [Path(folder) for folder in os.get_exec_path()]
    named = [path for folder in folders for path in folder.glob("python3*")]
    on_path = [path for path in named if re.fullmatch(r"python3(\.\d+)?", path.name)]
    return on_path + list(pyenv.glob("versions/*/bin/python3"))


def main() -> None:
    found: dict[tuple[int, ...], str] = {}
    for path in candidates():
        try:
            done = subprocess.run([path, "-c", ABOUT], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):  # a broken link
            continue
        if done.returncode == 0 and done.stdout.strip():
            version, _, _ = done.stdout.partition(" ")
            found[tuple(map(int, version.split(".")))] = done.stdout.strip()
    newest = {version[:2]: found[version] for version in sorted(found)}
    print(*newest.values(), sep="\n")


if __name__ == "__main__":
    main()

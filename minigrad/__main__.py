"""The command `minigrad`: explain a sentence or a function, list the ops, check the gradients.

Exit status: 0 if all is well, 1 if a gradient is wrong, 2 for arguments that cannot be.
It is 141 if the reader of a pipe left. What the user's function raises is Python's to show.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from .cli import UsageError
from .cli.arguments import parser

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default the process's own; the exit status."""
    if hasattr(sys.stdout, "reconfigure"):  # what a terminal cannot show is spelled out
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        arguments = parser().parse_args(argv)
        return int(arguments.run(arguments) or 0)
    except UsageError as error:
        print(f"minigrad: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # or Python complains at exit
        return 141
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

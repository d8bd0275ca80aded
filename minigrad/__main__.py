"""The command `minigrad`: explain a sentence or a function, list the ops, check the gradients.

Exit status: 0 if all is well, 1 if a gradient or a cost is wrong or the user's function raised, 2
for arguments that cannot be, 141 if the reader of a pipe left.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .cli.arguments import parser
from .cli.output import complain, drop_output
from .engine.errors import ArgumentError, MinigradError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default the process's own; the exit status."""
    try:
        arguments = parser().parse_args(argv)
        return int(arguments.run(arguments) or 0)
    except SystemExit as stop:  # argparse: --help, --version, or a wrong argument
        return stop.code if isinstance(stop.code, int) else 2
    except ArgumentError as error:
        return complain(error, 2)
    except MinigradError as error:
        for note in getattr(error, "__notes__", ()):  # where in the user's own code
            print(note, file=sys.stderr)
        return complain(error, 1)
    except MemoryError:
        return complain("not enough memory for these sizes", 2)
    except BrokenPipeError:
        drop_output()
        return 141
    except OSError as error:  # such as a full disk
        drop_output()
        return complain(error.strerror or error, 1)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

"""The package `layers` under a name that cannot clash: `from minigrad import layers`.

    from minigrad.layers import Linear            # the same class as `from layers import Linear`

A file or folder of yours named `layers` hides the package of that name. This name is found by the
path of minigrad, so it is always our package; where nothing hides it, both names are one package.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layers import *  # noqa: F403

OURS = Path(__file__).resolve().parents[1] / "layers" / "__init__.py"


def _package() -> ModuleType:
    spec = find_spec("layers")
    if spec is not None and spec.origin and Path(spec.origin).resolve() == OURS:
        for path in OURS.parent.glob("[a-z]*.py"):  # each module once, under both names
            sys.modules[f"{__name__}.{path.stem}"] = import_module(f"layers.{path.stem}")
        return sys.modules["layers"]
    spec = spec_from_file_location(__name__, OURS, submodule_search_locations=[str(OURS.parent)])
    assert spec is not None
    assert spec.loader is not None
    package = sys.modules[__name__] = module_from_spec(spec)
    spec.loader.exec_module(package)
    return package


sys.modules[__name__] = _package()

"""The package `layers` under a name that cannot clash: `from minigrad import layers`.

    from minigrad.layers import Linear            # the same class as `from layers import Linear`

A file or folder of yours named `layers` hides the package of that name. This name is found by the
path of minigrad, so it is always our package; where nothing hides it, both names are one package.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layers import *  # noqa: F403

OURS = Path(__file__).resolve().parents[1] / "layers" / "__init__.py"


class _OneModule(MetaPathFinder, Loader):
    """Imports `minigrad.layers.x` as the module `layers.x`, so that no module is there twice."""

    def __init__(self) -> None:
        self.specs: dict[str, Any] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return spec_from_loader(name, self) if name.startswith(f"{__name__}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(spec.name.removeprefix("minigrad."))
        self.specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = self.specs.pop(module.__spec__.name)


def _package() -> ModuleType:
    loaded = sys.modules.get("layers")
    found = find_spec("layers") if loaded is None else getattr(loaded, "__spec__", None)
    if found is not None and found.origin and Path(found.origin).resolve() == OURS:
        sys.meta_path.insert(0, _OneModule())
        return import_module("layers")
    spec = spec_from_file_location(__name__, OURS, submodule_search_locations=[str(OURS.parent)])
    assert spec is not None
    assert spec.loader is not None
    made = sys.modules[__name__] = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


sys.modules[__name__] = _package()

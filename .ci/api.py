"""The pages of the API: `python .ci/api.py FOLDER`, every public name of both packages.

Names that are imported when first asked for are asked for here: pdoc looks only at what is there.
"""

import sys
import warnings
from pathlib import Path

import pdoc

import layers
import minigrad

for package in (minigrad, layers):
    for name in package.__all__:
        getattr(package, name)
# An alias such as Operand stays text, and is shown by its name: its union fills three lines.
warnings.filterwarnings("ignore", "Error parsing type annotation", UserWarning, "pdoc")
pdoc.render.configure(docformat="google", template_directory=Path(__file__).parent / "pdoc")
pdoc.pdoc("minigrad", "layers", output_directory=Path(sys.argv[1]))

"""Run the example notebook, turn it into HTML, and look at it: no picture is wider than its cell.

python .ci/notebook.py FOLDER        # writes attention_patterns.html there
"""

import shutil
import sys
from pathlib import Path

import nbformat
from nbconvert import HTMLExporter
from nbconvert.preprocessors import ExecutePreprocessor
from playwright.sync_api import sync_playwright

EXAMPLES = Path(__file__).parent.parent / "examples"
PICTURES = "[...document.querySelectorAll('.jp-OutputArea-output :is(img, svg)')]"
RIGHT = "getBoundingClientRect().right"
WIDER = f"(one) => one.{RIGHT} > one.closest('.jp-OutputArea-output').{RIGHT} + 1"
SIDEWAYS = "document.documentElement.scrollWidth > innerWidth"


def main(folder: Path) -> None:
    notebook = nbformat.read(EXAMPLES / "attention_patterns.ipynb", as_version=4)
    place = {"metadata": {"path": str(EXAMPLES)}}
    ExecutePreprocessor(timeout=600, kernel_name="python3").preprocess(notebook, place)
    html, _ = HTMLExporter().from_notebook_node(notebook)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "attention_patterns.html"
    path.write_text(html, encoding="utf-8")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for width in (1100, 400):
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.goto(path.resolve().as_uri())
            page.wait_for_selector(".jp-RenderedSVG :is(img, svg)")
            count = page.evaluate(f"{PICTURES}.length")
            wider = page.evaluate(f"{PICTURES}.filter({WIDER}).length")
            assert wider == 0, f"at {width} px {wider} of {count} pictures leave their cell"
            assert not page.evaluate(SIDEWAYS), f"at {width} px the page scrolls sideways"
            print(f"{path.name}: at {width} px all of {count} pictures keep to their cells")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

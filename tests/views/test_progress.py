"""Progress of a loop, with tqdm and without."""

import io
import subprocess
import sys

import pytest

import minigrad as mg
from minigrad.data import batches


@pytest.mark.parametrize("tqdm", [True, False])
def test_a_loop_shows_how_far_it_came_and_what_was_logged(tqdm, monkeypatch):
    if tqdm:
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setattr("minigrad.views.progress.find_spec", lambda name: None)
    file = io.StringIO()
    bar = mg.progress(batches(range(7), batch_size=3), "epoch 1", file=file)
    seen = []
    for batch in bar:
        seen += list(batch)
        bar.log(loss=0.25, wrong=len(seen))
    assert seen == [*range(7)]
    last = file.getvalue().replace("\r", "\n").splitlines()[-1]
    assert "epoch 1" in last
    assert "3/3" in last
    assert "loss 0.25, wrong" in last


def test_showing_progress_imports_no_tqdm_before_it_is_used():
    code = "import sys, minigrad as mg; mg.progress; print('tqdm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

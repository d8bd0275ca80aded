"""Training ends where PyTorch's does: same weights, data and optimizer, step after step."""

import numpy as np
import pytest

from benchmarks import training

pytest.importorskip("torch")


@pytest.mark.needs_fast("one of them is compiled")
@pytest.mark.parametrize("name", training.MODELS)
def test_losses_in_float64_are_pytorchs_eager_and_compiled(name, monkeypatch):
    monkeypatch.setattr(training, "BATCH", 3)
    steps, losses = training.contestants(name, np.float64), {}
    for who, step in steps.items():
        rng = np.random.default_rng(0)
        losses[who] = [step(*training.batch(name, rng, np.float64)).item() for _ in range(10)]
    for who in ("minigrad", "compiled"):
        np.testing.assert_allclose(losses[who], losses["PyTorch"], rtol=0, atol=1e-9)
    assert steps["compiled"].reasons == []

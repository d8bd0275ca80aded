"""Training ends where PyTorch's does: same weights, data and optimizer, step after step."""

import numpy as np
import pytest

from benchmarks.training import MODELS, batch, contestants

pytest.importorskip("torch")


@pytest.mark.needs_fast("one of them is compiled")
@pytest.mark.parametrize("name", MODELS)
def test_fifty_losses_in_float64_are_pytorchs_eager_and_compiled(name):
    steps, losses = contestants(name, np.float64), {}
    for who, step in steps.items():
        rng = np.random.default_rng(0)
        losses[who] = [step(*batch(name, rng, np.float64)).item() for _ in range(50)]
    for who in ("minigrad", "compiled"):
        np.testing.assert_allclose(losses[who], losses["PyTorch"], rtol=0, atol=1e-9)
    assert steps["compiled"].reasons == []

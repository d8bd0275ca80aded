"""Training ends where PyTorch's does: same weights, data and optimizer, step after step."""

import numpy as np
import pytest

pytest.importorskip("torch")


@pytest.mark.needs_fast("one of them is compiled")
@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm"])
def test_losses_are_pytorchs_eager_and_compiled(name):
    from benchmarks.training_models import CASES, step_of

    losses = {}
    for who in ("PyTorch", "eager", "compiled"):
        step, given = step_of(who, CASES[name]), CASES[name].batch(np.random.default_rng(0))
        losses[who] = [step(*given).item() for _ in range(5)]
    for who in ("eager", "compiled"):
        np.testing.assert_allclose(losses[who], losses["PyTorch"], rtol=1e-3)

"""masked is np.where(mask, x, 0) to the last bit, whatever x holds and however it lies."""

import numpy as np
import pytest

from minigrad.engine.op import masked

STRANGE = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4", np.int64, complex])
@pytest.mark.parametrize(
    "lay", [lambda x: x, lambda x: x.T, lambda x: x[::-2, ::2], lambda x: x[:1], lambda x: x[0, 0]]
)
def test_it_is_where_to_the_last_bit(dtype, lay, rng):
    with np.errstate(invalid="ignore"):
        x = rng.choice(STRANGE, (40, 30)).astype(dtype)
        x[3, 2] = np.array(np.finfo(np.float16).tiny).astype(dtype)
    mask = rng.uniform(size=(40, 30)) < 0.5
    for given, where in (
        (lay(x), lay(mask)),
        (lay(x), np.ones((2, 1, 1), bool)),
        (x[:, :1], mask),
    ):
        found, expected = masked(given, where), np.where(where, given, 0)
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()

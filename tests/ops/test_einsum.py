"""einsum: every form of subscripts."""

import numpy as np
import pytest

import minigrad as mg


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 5)]), ("ij , jk -> ik", [(2, 3), (3, 5)]),
        ("ij,jk", [(2, 3), (3, 5)]),
        ("ba", [(2, 3)]), ("ii", [(3, 3)]), ("ii->i", [(3, 3)]), ("iij->ji", [(3, 3, 2)]),
        ("iii->i", [(3, 3, 3)]),
        ("i,i", [(3,), (3,)]), ("i,j", [(2,), (3,)]), ("ij->", [(2, 3)]),
        ("i,i,i->", [(3,), (3,), (3,)]),
        ("...", [(2, 3)]), ("...i", [(2, 3)]), ("i...->...", [(2, 3, 5)]),
        ("...ii->...i", [(2, 3, 3)]),
        ("...ij,...jk->...ik", [(7, 1, 2, 3), (5, 3, 2)]), ("...i,j...->...ij", [(2, 3), (5, 2)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 5, 7), (2, 3, 2, 7)]), ("Ab,bA->", [(2, 3), (3, 2)]),
        (",i->i", [(), (3,)]),
        ("ij,ij->ij", [(1, 3), (2, 3)]), ("ij,ij->j", [(1, 3), (2, 1)]),
        ("ij,jk,kl,lm->im", [(2, 3), (3, 5), (5, 2), (2, 7)]),
        ("a,a->a", [(1,), (3,)]), ("ii,ij->j", [(3, 3), (3, 2)]), ("ij,jk->k", [(0, 3), (3, 5)]),
        ("z,y->zy", [(2,), (3,)]),
    ],
)  # fmt: skip
def test_einsum_is_numpys_and_its_gradients_check(subscripts, shapes, rng):
    operands = [rng.normal(size=shape) for shape in shapes]
    out = mg.einsum(subscripts, *(mg.tensor(x) for x in operands))
    np.testing.assert_allclose(out.data, np.einsum(subscripts, *operands), rtol=1e-12, atol=1e-14)
    mg.gradcheck(lambda *xs: mg.einsum(subscripts, *xs), operands, order=2)


def test_einsums_flops_count_every_combination_of_labels():
    count = mg.einsum.count_flops(
        (np.ones((2, 3, 5)), np.ones((2, 5, 7))), ("bij,bjk->bik",), np.ones((2, 3, 7))
    )
    assert count == 2 * 2 * 3 * 5 * 7

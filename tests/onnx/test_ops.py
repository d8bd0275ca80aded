"""Every op of the registry is exported and run by onnxruntime to the same result, or refused."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ArgumentError

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

REFUSED = {
    "add_windows": "has no form in ONNX",
    "dropout": "draws random numbers",
    "windows": "has no form in ONNX",
}
COLLECTIVES = {name for name, op in mg.registry.items() if op.effect}


def run(path, **inputs):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def exported(case, dtype, path):
    """The op as a function of its arrays, as a model; and both results."""
    inputs = [x if x is None else np.asarray(x) for x in case.inputs]
    inputs = [x.astype(dtype) if getattr(x, "dtype", None) == np.float64 else x for x in inputs]
    given = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}

    def call(**tensors):
        together = tuple([tensors.get(f"x{i}") for i in range(len(inputs))])
        return mg.Tensor.__apply__(case.op, together, case.settings)

    mg.export_onnx(call, {k: mg.tensor(x) for k, x in given.items()}, path, dynamic={})
    return call(**{k: mg.tensor(x) for k, x in given.items()}).numpy(), run(path, **given)[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.only(lambda x: getattr(x, "op", x).name not in {*REFUSED, *COLLECTIVES})
def test_onnxruntime_computes_what_the_op_does(case, dtype, tmp_path):
    if any(np.size(x) == 0 for x in case.inputs if x is not None):
        pytest.skip("onnxruntime has no kernels for many empty arrays")
    ours, theirs = exported(case, dtype, str(tmp_path / "m.onnx"))
    assert theirs.dtype == ours.dtype
    np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-5)


@pytest.mark.only(lambda x: getattr(x, "op", x).name in REFUSED)
def test_what_has_no_form_in_onnx_is_refused_by_name_and_line(case, tmp_path):
    if any(np.size(x) == 0 for x in case.inputs if x is not None):
        pytest.skip("nothing to export")
    with pytest.raises(ArgumentError, match=rf"{case.op.name}, at .*{REFUSED[case.op.name]}"):
        exported(case, np.float32, str(tmp_path / "m.onnx"))


def test_the_docstring_names_what_is_refused():
    assert all(name in mg.export_onnx.__doc__ for name in REFUSED)

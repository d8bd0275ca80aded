"""Every op of the registry is exported and run by onnxruntime to the same result, or refused."""

from types import SimpleNamespace

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ArgumentError
from tests.conftest import CASES

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

REFUSED = {
    "add_windows": "has no form in ONNX",
    "dropout": "draws random numbers",
    "windows": "has no form in ONNX",
}
EXPORTED = [op.name for op in mg.registry.values() if op.name not in REFUSED and not op.effect]


def samples_of(name, dtype):
    """The op's samples with arrays of a dtype; onnxruntime knows few empty ones."""
    for case in (case for case in CASES if case.op.name == name):
        inputs = [x if x is None else np.asarray(x) for x in case.inputs]
        inputs = [x.astype(dtype) if x is not None and x.dtype == float else x for x in inputs]
        if all(x is None or x.size for x in inputs):
            yield SimpleNamespace(op=case.op, inputs=inputs, settings=case.settings)


def of_all(samples):
    """One function of the inputs of all samples, which gives all results; and these inputs."""
    given = {
        f"x{k}_{i}": x
        for k, sample in enumerate(samples)
        for i, x in enumerate(sample.inputs)
        if x is not None
    }

    def function(**tensors):
        calls = [
            (s, tuple([tensors.get(f"x{k}_{i}") for i in range(len(s.inputs))]))
            for k, s in enumerate(samples)
        ]
        return tuple([mg.Tensor.__apply__(s.op, inputs, s.settings) for s, inputs in calls])

    return function, given


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", EXPORTED)
def test_onnxruntime_computes_what_the_op_does(name, dtype, tmp_path):
    function, given = of_all([*samples_of(name, dtype)])
    tensors, path = {key: mg.tensor(x) for key, x in given.items()}, tmp_path / "m.onnx"
    mg.export_onnx(function, tensors, path, dynamic={})
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds = {one.name: given[one.name] for one in session.get_inputs()}
    for k, (ours, theirs) in enumerate(
        zip(function(**tensors), session.run(None, feeds), strict=True)
    ):
        assert theirs.dtype == ours.dtype
        np.testing.assert_allclose(theirs, ours.numpy(), 1e-5, 1e-5, err_msg=f"sample {k}")


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_form_in_onnx_is_refused_by_name_and_line(name, tmp_path):
    function, given = of_all([*samples_of(name, np.float32)][:1])
    tensors = {key: mg.tensor(x) for key, x in given.items()}
    with pytest.raises(ArgumentError, match=rf"{name}, at .*test_ops.py:\d+, {REFUSED[name]}"):
        mg.export_onnx(function, tensors, tmp_path / "m.onnx", dynamic={})
    assert name in mg.export_onnx.__doc__

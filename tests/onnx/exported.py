"""A function as a model: exported, loaded, and run by onnxruntime."""

import numpy as np
import pytest

import minigrad as mg

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def export(function, inputs, folder, **settings):
    """The model of a function, as its file holds it."""
    path = str(folder / "m.onnx")
    mg.export_onnx(function, inputs, path, **settings)
    return onnx.load(path)


def run(model, *inputs):
    """The outputs of a model, which takes inputs in this order."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    arrays = [x.numpy() if isinstance(x, mg.Tensor) else x for x in inputs]
    return session.run(None, dict(zip([i.name for i in session.get_inputs()], arrays, strict=True)))


def axes_of(info):
    return [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim]


def assert_same_at_other_sizes(function, draw, sizes, folder, rtol=1e-5, **settings):
    """The model, exported at a batch of 2 and a length of 7, computes the same at these sizes."""
    model = export(function, draw(2, 7), folder, **settings)
    for batch, n in sizes:
        inputs = draw(batch, n)
        np.testing.assert_allclose(run(model, *inputs)[0], function(*inputs).numpy(), rtol, rtol)
    return model

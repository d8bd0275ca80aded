"""Layers beside PyTorch's: the state of ours in theirs, and our gradients by their names."""

import copy

from layers import to_torch
from tests.compare import assert_same


def filled(module, layer):
    """A PyTorch module, in float64, that computes what the layer does."""
    import torch

    state = {key: torch.from_numpy(array) for key, array in to_torch(layer).items()}
    module.double().load_state_dict(state)
    return module


def gradients_of(layer):
    """The gradients of a layer by PyTorch's names."""
    twin = copy.deepcopy(layer)
    for path, p in layer.named_parameters():
        dict(twin.named_parameters())[path].assign_(p.grad)
    return to_torch(twin)


def assert_same_gradients(layer, module, tolerance=1e-9):
    """That every parameter has the gradient of its twin."""
    found = gradients_of(layer)
    for key, p in module.named_parameters():
        assert_same(found[key], p.grad, tolerance, key)

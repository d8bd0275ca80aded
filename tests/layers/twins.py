"""Recurrent layers beside PyTorch's: the weights of ours in theirs, and our gradients by name."""

import re

from tests.compare import assert_same


def torch_name(layer, path):
    """cells.3.weight_ih of a bidirectional layer is weight_ih_l1_reverse."""
    number, name = re.fullmatch(r"cells\.(\d+)\.(\w+)", path).groups()
    k, backward = divmod(int(number), layer.n_directions)
    return f"{name}_l{k}" + "_reverse" * backward


def filled(module, layer):
    """A PyTorch module, in float64, that computes what the layer does."""
    import torch

    state = {torch_name(layer, path): torch.from_numpy(p.numpy().copy())
             for path, p in layer.named_parameters()}  # fmt: skip
    module.double().load_state_dict(state)
    return module


def assert_same_gradients(layer, module, tolerance=1e-9):
    """That every parameter has the gradient of its twin."""
    theirs = dict(module.named_parameters())
    for path, p in layer.named_parameters():
        name = torch_name(layer, path)
        assert_same(p.grad, theirs[name].grad, tolerance, name)

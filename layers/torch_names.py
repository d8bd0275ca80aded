"""PyTorch's names for our parameters: states of its layers in and out, without importing it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, explained

from .attention import MultiHeadAttention
from .module import Module
from .parameters import join_path, own_array, own_parameters
from .pretrained.family import TensorSource, joined
from .pretrained.loading import write_named

__all__ = ["from_torch", "to_torch"]

M = TypeVar("M", bound=Module)


class TorchModule(Protocol):
    """What is used of an `nn.Module`."""

    def state_dict(self) -> Mapping[str, Any]: ...

    def named_modules(self) -> Iterable[tuple[str, Any]]: ...


TORCH_PARAMETERS = {
    "Linear": {"W": "weight T", "b": "bias"},
    "Embedding": {"W": "weight"},
    "MultiHeadAttention": {
        "W_Q": "in_proj_weight T 0/3",
        "W_K": "in_proj_weight T 1/3",
        "W_V": "in_proj_weight T 2/3",
        "b_Q": "in_proj_bias 0/3",
        "b_K": "in_proj_bias 1/3",
        "b_V": "in_proj_bias 2/3",
        "W_O": "out_proj.weight T",
        "b_O": "out_proj.bias",
    },
    "FeedForward": {
        "W_1": "linear1.weight T",
        "b_1": "linear1.bias",
        "W_2": "linear2.weight T",
        "b_2": "linear2.bias",
    },
    "_Block": {
        "attention": "self_attn.",
        "cross_attention": "multihead_attn.",
        "feed_forward": "",
        "norm_1": "norm1.",
        "norm_2": "norm2.",
        "norm_3": "norm3.",
    },
    "_Stack": {"blocks": "layers."},
    "Sequential": {"layers": ""},
}
"""By our class: for a parameter PyTorch's name and what `load_state` does to that array; for a
layer within, the prefix of its names. All other names are the same."""

OTHER_CONTEXT = {f"W_{s}": f"{s.lower()}_proj_weight T" for s in "QKV"}  # of another width


class Named(NamedTuple):
    """One of our parameters, and the array of PyTorch's that it comes from."""

    path: str
    leaf: mg.Tensor
    source: TensorSource


def _names_of(module: Module) -> dict[str, str]:
    kinds = (kind.__name__ for kind in type(module).__mro__)
    found = next((TORCH_PARAMETERS[kind] for kind in kinds if kind in TORCH_PARAMETERS), {})
    if isinstance(module, MultiHeadAttention) and module.d_context != module.d_model:
        return found | OTHER_CONTEXT
    return found


def _around(module: Module, name: str) -> str:
    """PyTorch's pattern for the names within a child: "layers.0.{}", "{}_l1_reverse"."""
    head, _, rest = name.partition(".")
    if head == "cells":
        k, backward = divmod(int(rest), module.n_directions)
        return f"{{}}_l{k}" + "_reverse" * backward
    before = _names_of(module).get(head, f"{head}.")
    return f"{before}{rest}.{{}}" if rest else f"{before}{{}}"


def _modules(layer: Module) -> Iterator[tuple[str, Module, str]]:
    """Each module with its path and PyTorch's pattern for its parameters' names."""
    around = {"": "{}"}
    for path, module in layer.named_modules():
        yield path, module, around[path]
        for name, _ in module.named_children():
            below = around[path].format(_around(module, name))
            around.setdefault(join_path(path, name), below)


def _named(layer: Module) -> list[Named]:
    found = []
    for path, module, around in _modules(layer):
        table = _names_of(module)
        for name, leaf in own_parameters(module):
            theirs, *how = table.get(name, name).split()
            source = TensorSource(around.format(theirs), "".join(how))
            found.append(Named(join_path(path, name), leaf, source))
    return found


@explained
def from_torch(source: TorchModule | Mapping[str, ArrayLike], layer: M) -> M:
    """Write the state of a PyTorch layer into the layer of ours that computes the same.

    `nn.MultiheadAttention` is a MultiHeadAttention with use_bias=True, `nn.TransformerEncoderLayer`
    a TransformerBlock with norm_order="post" and activation="relu", `nn.TransformerEncoder` and
    `nn.TransformerDecoder` an Encoder and a Decoder, `nn.BatchNorm1d` a BatchNorm,
    `nn.InstanceNorm1d` with affine=True an InstanceNorm; LSTM, GRU, RNN and their cells, Linear,
    Embedding, convolutions, pooling, Upsample, PReLU, GLU, LayerNorm, GroupNorm, RMSNorm and
    Sequential are called alike. A model of your own fits where its attributes have the names of
    PyTorch's.

    Args:
        source: the `nn.Module`, whose settings are compared too, or its `state_dict()`, whose
            entries may be arrays: then PyTorch need not be installed.
        layer: of the same sizes; arrays are cast to its dtype.
    Returns: the layer.
    Raises: ArgumentError that lists every name that is missing, unexpected or of another shape, and
        every setting that differs; nothing is written then.

    >>> from layers import Linear
    >>> state = {"weight": np.array([[1.0, 2.0, 3.0]]), "bias": np.array([0.5])}
    >>> from_torch(state, Linear(3, 1))(np.ones(3)).numpy()
    array([6.5])
    """
    state = source if isinstance(source, Mapping) else source.state_dict()
    arrays = {
        name: _array(value) for name, value in state.items() if "num_batches_tracked" not in name
    }
    named = _named(layer)
    sources = {parameter.path: parameter.source for parameter in named}
    wrong = [] if isinstance(source, Mapping) else list(_differences(layer, source))
    first = {id(parameter.leaf): parameter.source.name for parameter in reversed(named)}
    for parameter in named:
        name = parameter.source.name
        tied = first[id(parameter.leaf)]
        if {name, tied} <= arrays.keys() and not np.array_equal(arrays[name], arrays[tied]):
            wrong.append(f"{parameter.path}: {name} must equal {tied}, it is tied")
    write_named("from_torch", layer, arrays, sources, wrong)
    return layer


def _array(value: Any) -> NDArray[Any]:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    return own_array(value)


@explained
def to_torch(layer: Module) -> dict[str, NDArray[Any]]:
    """The state of a layer by PyTorch's names: for `load_state_dict`, as arrays.

    `module.load_state_dict({k: torch.from_numpy(v) for k, v in to_torch(layer).items()})` writes it
    into the layer that `from_torch` names.

    Raises: ArgumentError for attention whose keys have other heads than its queries, which
        PyTorch's has not.

    >>> from layers import MultiHeadAttention
    >>> {name: x.shape for name, x in to_torch(MultiHeadAttention(6, n_heads=2)).items()}
    {'in_proj_weight': (18, 6), 'out_proj.weight': (6, 6)}
    """
    parts: dict[str, list[Named]] = {}
    for named in _named(layer):
        parts.setdefault(named.source.name, []).append(named)
    state = {}
    for name, parameters in parts.items():
        if len({named.leaf.shape for named in parameters}) > 1:
            shapes = ", ".join(f"{named.path} {named.leaf.shape}" for named in parameters)
            raise ArgumentError(f"to_torch: {name} has parts of one shape in PyTorch, got {shapes}")
        arrays = {named.source.how: named.leaf.numpy() for named in parameters}
        state[name] = np.array(joined(arrays), order="C")
        if name.endswith("running_var"):
            state[name.replace("running_var", "num_batches_tracked")] = np.array(0)
    return state


# ---------------------------------------------------------------- settings


def _differences(layer: Module, source: TorchModule) -> Iterator[str]:
    """A line for each setting of a PyTorch module that differs from ours."""
    theirs = dict(source.named_modules())
    for path, module, around in _modules(layer):
        torch_module = theirs.get(around.removesuffix("{}").removesuffix("."))
        if torch_module is None or not around.endswith("{}"):
            continue
        for name, mine, its in _settings(module, torch_module):
            if mine != its:
                yield f"{path}.{name}: {mine} here, {its} in PyTorch's".strip(".")


TORCH_SETTINGS = {
    "n_heads": "num_heads",
    "eps": "eps",
    "momentum": "momentum",
    "axis": "dim",
    "size": "kernel_size output_size size",
    "stride": "stride",
    "padding": "padding",
    "output_padding": "output_padding",
    "dilation": "dilation",
    "groups": "groups num_groups",
    "scale_factor": "scale_factor",
    "mode": "mode",
    "align_corners": "align_corners",
}
"""A setting of ours, and what PyTorch's modules call it."""

ONLY = {
    "ceil_mode": False,
    "count_include_pad": True,
    "dilation": 1,
    "divisor_override": False,
    "end_dim": -1,
    "padding_mode": "zeros",
    "return_indices": False,
    "start_dim": 1,
}
"""Settings of PyTorch's modules that have one value here."""


def _settings(ours: Module, theirs: Any) -> Iterator[tuple[str, object, object]]:
    """Pairs of settings that must agree."""
    own = {name: getattr(ours, name) for name in TORCH_SETTINGS if hasattr(ours, name)}
    own |= getattr(ours, "settings", None) or {}
    for name, mine in own.items():
        names = [its for its in TORCH_SETTINGS.get(name, "").split() if hasattr(theirs, its)]
        if names and not (name == "eps" and getattr(theirs, names[0]) is None):
            yield name, _plain(mine), _plain(getattr(theirs, names[0]))
    for name, mine in ONLY.items():
        padded = name != "count_include_pad" or bool(own.get("padding"))
        if name not in own and hasattr(theirs, name) and padded:
            yield name, mine, _plain(getattr(theirs, name))
    if hasattr(theirs, "norm_first") and hasattr(ours, "norm_order"):
        yield "norm_order", ours.norm_order, "pre" if theirs.norm_first else "post"
    if hasattr(ours, "activation") and callable(getattr(theirs, "activation", None)):
        x = np.linspace(-3, 3, 7)
        import torch

        its = theirs.activation(torch.from_numpy(x)).numpy()
        yield "activation", ours.activation(x).round(6).tolist(), its.round(6).tolist()
    if hasattr(theirs, "nonlinearity"):
        yield "nonlinearity", "tanh", theirs.nonlinearity


def _plain(value: object) -> object:
    """One number where all axes have the same one; None as False."""
    if isinstance(value, tuple | list) and len({*value}) == 1:
        value = value[0]
    return False if value is None else value

"""What a call and its backward compute, counted as they run: what `layer_cost` is held against."""

from collections import Counter
from types import SimpleNamespace

import minigrad as mg
from tests.layers.kinds import call


def assert_costs(layer, inputs, expected):
    """That a cost is what the graph of this call counts, op by op, forward and backward."""
    counted = count_graph(lambda *inputs: call(layer, *inputs), *inputs)
    assert expected.forward == counted.forward
    assert expected.backward == sum(counted.backward.values()), counted.backward
    assert expected.activation_bytes == counted.activation_bytes
    assert expected.gradient_bytes == counted.gradient_bytes
    assert expected.parameter_bytes == sum(p.numpy().nbytes for p in layer.parameters())


def count_graph(f, *inputs):
    """FLOPs by op, forward and backward, and bytes. With `create_graph` a listener sees rules."""
    forward = Counting()
    with mg.listen(forward):
        out = f(*inputs)
    backward = Counting(forward.counted, inputs)
    with mg.listen(backward):
        leaves = [*forward.leaves.values()]
        mg.grad(out, leaves, mg.tensor(out.numpy() * 0 + 1), create_graph=True)
    return SimpleNamespace(
        forward=forward.by_op(),
        backward=backward.by_op(),
        activation_bytes=forward.nbytes,
        gradient_bytes=backward.gradient_bytes,
    )


def products_of(f, *args, **kwargs):
    """FLOPs of the products that a call runs, biases included."""
    with mg.trace() as t, mg.no_grad():
        f(*args, **kwargs)
    return sum(entry.flops or 0 for entry in t if entry.op in ("matmul", "linear"))


class Counting(mg.Listener):
    """Adds up the ops that compute; notes the leaves that need a gradient."""

    def __init__(self, of=(), inputs=()):
        self.flops = Counter()
        self.leaves = {}
        self.counted = set()  # nodes of ops that compute
        self.of = of
        self.inputs = {id(x) for x in inputs}
        self.nbytes = self.gradient_bytes = 0

    def by_op(self):
        return {name: count for name, count in self.flops.items() if count}

    def forward(self, op, inputs, settings, output, seconds):
        flops = op.count_flops(inputs, settings, output)
        self.flops[op.name] += flops
        if flops:
            self.nbytes += output.size * output.dtype.itemsize
            self.counted.add(output.node)
        for x in inputs:
            if isinstance(x, mg.Tensor) and x.is_leaf and x.requires_grad:
                self.leaves[id(x)] = x

    def backward(self, node, gradient, contributions, seconds):
        if node in self.of:
            self.gradient_bytes += gradient.size * gradient.dtype.itemsize

    def arrived(self, leaf, gradient):
        if id(leaf) not in self.inputs:
            self.gradient_bytes += gradient.size * gradient.dtype.itemsize

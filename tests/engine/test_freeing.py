"""Graphs are freed without nesting: however long a chain is, a small stack suffices.

All cases run in another process, each in a thread with a stack of 256 KiB (macOS gives threads
512): what nests ends that process, and not the one that runs the tests.
"""

from tests.process import python

START = """
import gc, threading
import minigrad as mg

def chain(length, start=None):
    y = mg.tensor(1.0, requires_grad=True) if start is None else start
    for _ in range(length):
        y = y + 1.0
    return y

threading.stack_size(256 * 1024)
"""
CASE = """
def run():{program}
    print({way!r})

thread = threading.Thread(target=run)
thread.start()
thread.join()
"""

WAYS = {
    "a chain": """
    y = chain(8_000)
    del y
    """,
    "a very long chain after its backward": """
    x = mg.tensor(1.0, requires_grad=True)
    y = chain(200_000, x)
    y.backward()
    assert (y.item(), x.grad) == (200_001.0, 1.0)
    del y
    """,
    "two chains that go over into each other": """
    a, b = chain(1), chain(1)
    for _ in range(8_000):
        a, b = a + b, b * 0.5
    del a
    b.backward()
    del b
    """,
    "a chain while another one is freed by it": """
    inner = chain(8_000)
    outer = chain(8_000)
    outer.node.register_hook(lambda parts, gradient, kept=inner: None)
    outer = chain(8_000, outer)
    del inner, outer
    """,
    "a chain whose middle is still held": """
    middle = chain(8_000)
    end = chain(8_000, middle)
    del end
    middle.backward()
    del middle
    """,
    "a chain in a reference cycle": """
    cycle = [chain(8_000)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    """,
    "a gradient's own graph": """
    x = mg.tensor(0.5, requires_grad=True)
    y = x
    for _ in range(8_000):
        y = y * 0.5
        y = y * 2.0
    slope = mg.grad(y * y, x, create_graph=True)
    del x, y, slope
    """,
    "chains that threads make and free at once": """
    def work():
        y = chain(8_000)
        y.backward()
        y = chain(8_000)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    """,
    "a chain when an error passes by": """
    def failing():
        y = chain(8_000)
        raise KeyError(y.item())
    try:
        failing()
    except KeyError:
        pass
    """,
}


def test_freeing_does_not_nest():
    cases = [CASE.format(program=program.rstrip(), way=way) for way, program in WAYS.items()]
    done = python("-c", "".join([START, *cases]))
    assert (done.stdout.splitlines(), done.stderr) == ([*WAYS], "")

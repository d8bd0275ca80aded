r"""The value of a formula of an op's declaration, so that what it says is held to what the op does.

It reads the LaTeX of declarations: factors side by side are a product of matrices, or of a number
and an array; `\odot` and `\oslash` go entry by entry; what follows `, \quad` defines a sign, and a
sign with the subscript t is one for each step. A sum along axes keeps them at length 1.
"""

import math
import re

import numpy as np

AXES = re.compile(r"\d+(,\d+)*")
SIGN = r"\\mathbf 1|(?:\\(?:bar|hat|tilde) ?)?(?:\\(?:mu|sigma)(?![a-z])|[A-Za-z])(?:\^[a-z])?"
FACTOR = re.compile(
    r"(?:\\,| )*(?!\\(?:odot|oslash|le|ne|to|mathbin|quad|times)(?![a-z])|< )"
    r"([(\[|<A-Za-z\d]|\\[A-Za-z])"
)
ENTRYWISE = {
    "Phi": np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)), otypes=[float]),
    "varphi": lambda x: np.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    "sigma": lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x))),
}  # fmt: skip
COMPARE = {
    "=": np.equal, "<": np.less, ">": np.greater, r"\le": np.less_equal, r"\ne": np.not_equal,
}  # fmt: skip


def evaluate(formula, slots, functions=()):
    """The value of a formula.

    Args: slots: by name.  functions: those of `\\operatorname`, each called with its subscript and
        the values of its arguments.
    """
    first, *terms = re.split(r", ?\\quad ", formula)
    terms = dict(term.split(" = ", 1) for term in terms)
    return Reader(first, slots, terms, dict(functions)).whole()


class Reader:
    """Reads one text from the left, at a step t if it is of one."""

    def __init__(self, text, slots, terms, functions, t=None, known=None):
        self.text, self.slots, self.terms, self.functions = text, slots, terms, functions
        self.t, self.at, self.known = t, 0, {} if known is None else known
        self.within_bars = False

    def of(self, text, t=None):
        return Reader(text, self.slots, self.terms, self.functions, t, self.known).whole()

    def whole(self):
        if self.text == r"(h_1, \ldots, h_T, c_T)":
            return np.stack([*map(lambda t: self.of("h_t", t), self.steps()), self.of("c_T")])
        if re.search("_t", self.text) and self.t is None and not self.text.startswith(r"\textst"):
            return np.stack([self.of(self.text, t) for t in self.steps()])
        value = self.choice()
        assert self.at == len(self.text), f"{self.text[self.at :]!r} of {self.text!r} is not read"
        return value

    def steps(self):
        return range(1, len(self.slots["X"]) + 1)

    def skip(self, pattern):
        """The match of what comes next, if it does."""
        found = re.compile(r"(?:\\,| )*(?:" + pattern + ")").match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    # ------------------------------------------------------------------ sums and products

    def choice(self):
        value = self.sum()
        if self.skip(r"\\mathbin\{\?\}|\?"):
            yes = self.sum()
            assert self.skip(":")
            no = self.sum()
            return np.where(value if self.t is None else value[:, None], yes, no)
        return value

    def sum(self):
        value = -self.product() if self.skip("-") else self.product()
        while sign := self.skip(r"[+-](?!\w*\})"):
            other = self.product()
            value = value + other if sign[0].strip()[-1] == "+" else value - other
        return value

    def product(self):
        if self.skip(r"\\textstyle\\sum_t"):
            rest, self.at = self.text[self.at :], len(self.text)
            parts = [np.asarray(self.of(rest, t)) for t in self.steps()]
            return np.sum(
                [p.sum(axis=0) if p.ndim == 2 and "top" not in rest else p for p in parts], 0
            )
        value = self.side_by_side()
        while sign := self.skip(r"\\odot(?![a-z])|\\oslash"):
            other = self.side_by_side()
            value = value * other if "odot" in sign[0] else value / other
        return value

    def side_by_side(self):
        """Factors without a sign between them; a fraction or a bracket goes entry by entry."""
        value, entrywise = None, True
        while begins := FACTOR.match(self.text, self.at):
            if self.within_bars and begins[1] == "|" and value is not None:
                break
            entrywise |= begins[1] == "["
            fraction = self.text.startswith((r"\tfrac", r"\sqrt"), begins.start(1))
            other = self.factor()
            if value is None:
                value = other
            elif entrywise or np.ndim(value) == 0 or np.ndim(other) == 0:
                value = value * other
            else:
                value = np.matmul(value, other)
            entrywise = fraction
        return value

    # ------------------------------------------------------------------ factors

    def factor(self):
        value = self.atom()
        while True:
            if self.text.startswith("[", self.at) and self.text[self.at - 1] in ">)":
                value = value[self.index()]
            elif self.skip(r"\^\\top"):
                value = np.swapaxes(value, -1, -2)
            elif self.skip(r"\^(?=\{\\circ )"):
                value = value ** self.argument(r"\{\\circ ")
            else:
                return value

    def argument(self, opening=r"\{"):
        if self.skip(opening):
            value = self.choice()
            assert self.skip(r"\}")
            return value
        found = self.skip(r"\d|[A-Za-z]")[0]
        return float(found) if found.isdigit() else self.sign(found)

    def group(self, closing):
        values = [self.choice()]
        while self.skip(","):
            values.append(self.choice())
        assert self.skip(closing), self.text[self.at :]
        return values

    def atom(self):
        if self.skip(r"2 / \\pi"):
            return 2 / math.pi
        if found := self.skip(r"(\d+(?:\.\d+)?)"):
            return float(found[1])
        if found := self.skip(r"<(\w+)>(_t(?![a-z])|_\{t-1\}|_\{T\+1\}|_T)?"):
            value, step = self.slots[found[1]], found[2]
            return value if step is None else self.step_of(value, step)
        if self.skip(r"\(\\sigma, \\sigma, \\tanh, \\sigma\)"):
            i, f, n, o = np.split(self.atom(), 4, axis=-1)
            s = ENTRYWISE["sigma"]
            return np.concatenate([s(i), s(f), np.tanh(n), s(o)], axis=-1)
        if self.skip(r"\("):
            values = self.group(r"\)")
            return values[0] if len(values) == 1 else np.concatenate(values, axis=-1)
        if self.skip(r"\|"):
            self.within_bars = True
            value = np.abs(self.sum())
            self.within_bars = False
            assert self.skip(r"\|")
            return value
        if self.skip(r"\["):
            return self.condition().astype(float)
        if self.skip(r"\\tfrac"):
            return self.argument() / self.argument()
        if self.skip(r"\\sqrt"):
            return np.sqrt(math.pi if self.skip(r"\\pi") else self.argument())
        if self.skip(r"e\^"):
            return np.exp(self.argument())
        if self.skip(r"\\prod"):
            return np.prod(np.broadcast_to(self.atom(), np.ndim(self.slots["x"]) - 2))
        if found := self.skip(r"\\(max|min)\("):
            return getattr(np, f"{found[1]}imum")(*self.group(r"\)"))
        if found := self.skip(r"\\operatorname\{scatter\}\(<(\w)>, \[.*\]\)$"):
            return self.functions["scatter"](None, self.slots[found[1]])
        if found := self.skip(r"(\\log )?\\operatorname\{([^}]*)\}(?:_\{([^}]*)\}|_(k))?\("):
            name = ("log " if found[1] else "") + found[2].replace(r"\,", " ")
            return self.functions[name](found[3] or found[4], *self.group(r"\)"))
        found = self.skip(
            r"\\(?!(?:mu|sigma(?!\()|bar|hat|tilde|mathbf)(?![a-z]))([A-Za-z]+)(\^2)?"
        )
        if found:  # by NumPy's name
            value = getattr(np, found[1], ENTRYWISE.get(found[1]))(self.factor())
            return value**2 if found[2] else value
        found = self.skip(rf"((?:{SIGN})(?:_\{{?(?:t-1|t|0|T)\}}?)?)")
        assert found, f"{self.text[self.at :]!r} of {self.text!r}"
        return self.sign(found[1])

    def condition(self):
        if self.skip(r"\\lnot"):
            return np.logical_not(self.group(r"\]")[0])
        if self.skip(r"\\text\{keep\}\]"):
            return np.asarray(self.slots["keep"])
        value, holds = self.sum(), True
        while sign := self.skip(r"=|<(?= )|>|\\le|\\ne"):
            other = self.sum()
            holds = holds & COMPARE[sign[0].strip()](value, other)
            value = other
        assert self.skip(r"\]"), self.text[self.at :]
        return np.asarray(value if holds is True else holds)

    def index(self):
        text = self.text[self.at + 1 : self.text.index("]", self.at)]
        self.at += len(text) + 2
        if "array" in text or "<" in text or "[" in text:
            self.at = len(self.text)
            return self.slots["index"]
        for tex, python in (
            (r"\ldots", "..."),
            (r"\text{new}", "None"),
            ("{:}", ":"),
            (r"\,", "()"),
        ):
            text = text.replace(tex, python)
        return eval(f"np.s_[{text}]", {"np": np})

    # ------------------------------------------------------------------ signs, and steps

    def step_of(self, array, step):
        """What an array holds of a step; nothing comes from outside before the first."""
        at = {"_t": self.t, "_{t-1}": (self.t or 0) - 1}.get(step, len(self.slots["X"]))
        at += step == "_{T+1}"
        return array[at - 1] if at > 0 else np.zeros_like(array[0])

    def sign(self, text):
        base, _, below = text.partition("_")
        below = below.strip("{}")
        if not below:
            return None if text == r"\mathbf 1" else self.of(self.terms[text])
        last = len(self.slots["X"])
        t = {"t": self.t, "t-1": (self.t or 0) - 1, "0": 0, "T": last}[below]
        if (base, t) not in self.known:
            self.known[base, t] = self.defined(base, t, last)
        return self.known[base, t]

    def defined(self, base, t, last):
        if t == 0 and f"{base}_0" in self.terms:
            return self.of(self.terms[f"{base}_0"])
        if t == last and f"{base}_T" in self.terms:
            return self.of(self.terms[f"{base}_T"], last)
        if f"{base}_{{t-1}}" in self.terms:
            return self.of(self.terms[f"{base}_{{t-1}}"], t + 1)
        if f"{base}_t" in self.terms:
            return self.of(self.terms[f"{base}_t"], t)
        for names, term in self.terms.items():  # one of several
            listed = names.strip("()").split(", ")
            if f"{base}_t" in listed:
                parts = np.split(self.of(term, t), len(listed), axis=-1)
                return parts[listed.index(f"{base}_t")]
        raise KeyError(base)

"""The signs of formulas: what LaTeX calls them, and how they read."""

from __future__ import annotations

from .tree import Node

__all__ = ["CLOSING", "KINDS", "SPACES", "shown"]

OPERATORS = {
    "odot": "⊙", "oslash": "⊘", "top": "ᵀ", "circ": "",
    "partial": "∂", "sum": "Σ", "lnot": "¬", "le": "≤",
    "ge": "≥", "lt": "<", "gt": ">", "in": "∈", "to": "→",
    "cdot": "·", "times": "×", "ldots": "…", "#": "#",
    "prod": "Π", "ne": "≠", "pm": "±",
}  # fmt: skip
GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ϵ", "varepsilon": "ε",
    "zeta": "ζ", "eta": "η", "theta": "θ", "vartheta": "ϑ", "iota": "ι", "kappa": "κ",
    "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ", "sigma": "σ",
    "tau": "τ", "upsilon": "υ", "phi": "ϕ", "varphi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω",
    "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ", "Lambda": "Λ", "Xi": "Ξ", "Pi": "Π", "Sigma": "Σ",
    "Upsilon": "Υ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω", "infty": "∞", "ell": "ℓ",
}  # fmt: skip
FUNCTIONS = ("max", "min", "log", "exp", "tanh", "cosh", "sinh", "sin", "cos", "det", "arg")
CLOSING = {"(": ")", "[": "]", "|": "|"}
SPACES = {",": "0.167em", ";": "0.28em", "quad": "1em", "qquad": "2em", "!": "-0.167em"}
KINDS = {  # of sign, for each command of LaTeX that is one
    name: kind
    for kind, names in (
        ("space", SPACES),
        ("operator", OPERATORS),
        ("function", FUNCTIONS),
        ("letter", GREEK),
    )
    for name in names
}


def shown(sign: Node) -> str:
    """A sign as one reads it."""
    name = sign.text.removeprefix("\\")
    if sign.kind == "space":
        return " "
    if sign.kind == "operator" and sign.text.startswith("{"):  # an operator in braces
        return sign.text[1:-1]
    if sign.text == name or sign.kind not in ("operator", "letter", "function"):
        return sign.text
    if sign.kind == "operator":
        return OPERATORS[name]
    return name if sign.kind == "function" else GREEK[name]

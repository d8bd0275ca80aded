"""The signs of formulas: what LaTeX calls them, and how they read as Unicode and as ASCII."""

from __future__ import annotations

from .tree import Sign

__all__ = ["FUNCTIONS", "GREEK", "OPERATORS", "SPACES", "shown"]

OPERATORS = {
    "odot": ("⊙", "*"),
    "oslash": ("⊘", "/"),
    "top": ("ᵀ", "T"),
    "circ": ("", ""),
    "partial": ("∂", "d"),
    "sum": ("Σ", "sum"),
    "lnot": ("¬", "not "),
    "le": ("≤", "<="),
    "ge": ("≥", ">="),
    "lt": ("<", "<"),
    "gt": (">", ">"),
    "in": ("∈", "in"),
    "to": ("→", "->"),
    "cdot": ("·", "*"),
    "times": ("×", "x"),
    "ldots": ("…", "..."),
    "#": ("#", "#"),
}
GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ϵ", "varepsilon": "ε",
    "zeta": "ζ", "eta": "η", "theta": "θ", "vartheta": "ϑ", "iota": "ι", "kappa": "κ",
    "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ", "sigma": "σ",
    "tau": "τ", "upsilon": "υ", "phi": "ϕ", "varphi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω",
    "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ", "Lambda": "Λ", "Xi": "Ξ", "Pi": "Π", "Sigma": "Σ",
    "Upsilon": "Υ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω", "infty": "∞", "ell": "ℓ",
}  # fmt: skip
ASCII = {"varepsilon": "eps", "epsilon": "eps", "varphi": "phi", "vartheta": "theta"}
ASCII |= {"infty": "inf", "ell": "l"}
FUNCTIONS = ("max", "min", "log", "exp", "tanh", "cosh", "sinh", "sin", "cos", "det", "arg")
SPACES = {",": "0.167em", ";": "0.28em", "quad": "1em", "qquad": "2em", "!": "-0.167em"}


def shown(sign: Sign, ascii: bool = False) -> str:
    """A sign as Unicode or ASCII has it."""
    if sign.kind == "space":
        return " "
    name = sign.tex.removeprefix("\\")
    if sign.kind == "operator":
        if sign.tex.startswith("{"):  # an operator in braces
            return sign.tex[1:-1]
        return OPERATORS[name][ascii] if sign.tex != name else name
    if sign.kind == "letter" and sign.tex != name:
        return ASCII.get(name, name) if ascii else GREEK[name]
    return name if sign.kind == "function" else sign.tex

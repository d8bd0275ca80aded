"""Readable ASCII for terminals that have nothing else; what is not listed here is escaped where it is printed."""

__all__ = ["readable"]

_WORDS = {
    "√": "sqrt", "Σ": "sum", "∂": "d", "σ": "sigma", "μ": "mu", "ε": "eps", "Φ": "Phi", "φ": "phi",
    "π": "pi", "∞": "inf", "⊙": "*", "⊘": "/", "·": "*", "×": "x", "≤": "<=", "≥": ">=", "≠": "!=",
    "≈": "~", "−": "-", "–": "-", "→": "->", "∈": "in", "²": "^2", "³": "^3", "ᵀ": "^T", "¬": "not ",
    "½": "1/2", "…": "...", "’": "'", "∫": "integral", "∏": "prod", "\u0302": "_hat", "\u0304": "_bar",
}  # fmt: skip
_TABLE = str.maketrans(_WORDS)


def readable(text: str) -> str:
    """The text with each mathematical sign as a person would type it.

    >>> readable("y = x / √(σ² + ε)")
    'y = x / sqrt(sigma^2 + eps)'
    """
    return text.translate(_TABLE)

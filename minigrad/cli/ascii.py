"""Readable ASCII for terminals that have nothing else; other signs are escaped where printed."""

__all__ = ["readable"]

_WORDS = {
    "√": "sqrt", "Σ": "sum", "∏": "prod", "∂": "d", "∫": "integral", "∞": "inf",
    "σ": "sigma", "μ": "mu", "ε": "eps", "Φ": "Phi", "φ": "phi", "π": "pi",
    "⊙": "*", "⊘": "/", "·": "*", "×": "x", "−": "-", "–": "-", "¬": "not ",
    "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "→": "->", "∈": "in",
    "²": "^2", "³": "^3", "ᵀ": "^T", "½": "1/2", "…": "...", "’": "'",
    "\u0302": "_hat", "\u0304": "_bar",
}  # fmt: skip
_TABLE = str.maketrans(_WORDS)


def readable(text: str) -> str:
    """The text with each mathematical sign as a person would type it.

    >>> readable("y = x / √(σ² + ε)")
    'y = x / sqrt(sigma^2 + eps)'
    """
    return text.translate(_TABLE)

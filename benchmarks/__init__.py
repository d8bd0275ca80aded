"""How fast, how large and how heavy minigrad is, beside plain NumPy and other engines.

`python -m benchmarks --help` says what it measures; `cases` says on what, `peers` and `pytorch`
against whom, `clock`, `processes` and `rounds` how.
"""

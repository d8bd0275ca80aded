"""What the command `minigrad` does: each room returns text or data, and only `__main__` prints.

    sentence   a sentence through one attention layer, forward and backward, recorded
    explain    that run as text: its parts in order
    heatmap    attention weights with their tokens
    costs      FLOPs and bytes counted in the graph, beside their closed forms
    catalogue  every op with its formulas
    verify     gradient checks of every op and both layers
    files      a folder that gets all of its new files, or none
    ascii      readable ASCII for terminals that have nothing else

The engine imports none of it.
"""

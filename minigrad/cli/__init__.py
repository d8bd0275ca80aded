"""What the command `minigrad` does. Each file here returns text or data; only `__main__` prints.

    arguments      the command line
    sentence       a sentence through one attention layer, forward and backward, recorded
    explain        that run as text and data
    costs          FLOPs and bytes counted in the graph, beside their closed forms
    target         a user's own function: found, loaded, and what it raises
    own            that function run under a trace, as text and data
    written        the four views of a run, written into a folder
    catalogue      every op with its formulas
    check_ops      every op's gradient against a numeric derivative
    check_layers   both layers' gradients against the formulas derived by hand
    outcome        what those two found, as lines
    files          a folder that gets all of its new files, or none
    ascii          readable ASCII for terminals that have nothing else

The engine imports none of it.
"""

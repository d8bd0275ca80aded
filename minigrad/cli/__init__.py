"""What the command `minigrad` does. Each file here returns text or data; only `__main__` prints.

    arguments         the command line
    explanation       one run under a trace: its report, its record, its files
    sentence          a sentence through one attention layer, forward and backward
    sentence_report   that run told: gradients, weights, FLOPs and bytes beside their closed forms
    load_function     a user's own function: found and loaded
    user_function     that function run under a trace, and what it raises
    output_files      a folder that gets all of its new files, or none
    catalogue         every op with its formulas
    check_ops         every op's gradient against a numeric derivative
    check_layers      both layers' gradients against the formulas derived by hand
    check_result      what those two found, as lines
    ascii             readable ASCII for terminals that have nothing else

The engine imports none of it.
"""

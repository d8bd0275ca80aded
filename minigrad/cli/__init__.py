"""What the command `minigrad` does. The engine imports none of it.

arguments         the command line
explain           what was asked for, run, printed and written;  explanation: what all runs share
sentence          a sentence through one attention layer, forward and backward
sentence_report   that run told: gradients, weights, FLOPs and bytes beside their closed forms
checkpoint        what is asked of a checkpoint;  checkpoint_report: its run told
own_function      a run of a user's own function told;  load_function: found, and what it raises
catalogue         every op with its formulas, as text and as data;  ops_page: as a page
declared          what an op declares, as plain data
models            what is in a checkpoint, before it is loaded
check             every op, then both layers, one line each
check_ops         each op's gradient against a numeric derivative
check_layers      both layers' gradients against the formulas derived by hand
output            what is printed, and a folder that gets all of its files or none
"""

"""What the command `minigrad` does. The engine imports none of it.

arguments         the command line
explain           what was asked for, run, printed and written;  play: run, and its page served
source            what can be run: a function that returns a loss, and what is known of it
own_function      a user's own function as a source;  load_function: found, and what it raises
sentence          a sentence through one attention layer as a source
checkpoint        a text through a checkpoint as a source
report            one run of any source told;  looked_at: what its attention looked at
catalogue         every op with its formulas, as text and as data
declared          what an op declares, as plain data
models            what is in a checkpoint, before it is loaded
check             every op, then both layers, one line each
check_ops         each op's gradient against a numeric derivative
check_layers      both layers' gradients against the formulas derived by hand
output            what is printed, and a folder that gets all of its files or none
"""

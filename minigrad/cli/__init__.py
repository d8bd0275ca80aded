"""What the command `minigrad` does. The engine imports none of it.

arguments         the command line
explain           what was asked for, run, printed and written; or played with, and its page served
own_function      a user's own function as a source: what can be run, and what is known of it
sentence          a sentence through one attention layer as a source
report            what is printed and written of a run
attention_report  what the attention of a run looked at
catalogue         every op with what it declares, as text and as data
check             every op, then both layers, one line each
output            what is printed, and a folder that gets all of its files or none
"""

"""Views of a record: each is a function of it, and reads nothing else.

words       the words and digits of all of them        theme      their colours, light and dark
picture     the graph as SVG, PNG, PDF or DOT; `layout` says which boxes and lines there are, and
            `dot` what they look like
page        one HTML file that steps through the run   maths      LaTeX as MathML and as text
table       the run in a terminal                      derivation the run in Markdown with LaTeX
attention   weights beside their gradients; `scores` say how a head attends
training    a training run that was watched            terminal   columns of text
ledger      why a gradient is this number
"""

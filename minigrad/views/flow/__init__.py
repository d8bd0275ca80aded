"""Views of a training run: a table, a heat map of the gradient, and a page to scrub through.

table    the run in a terminal, a row for each parameter and value
heatmap  layers × steps as an SVG, the loss above
"""

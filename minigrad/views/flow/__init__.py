"""Views of a training run.

table    the run in a terminal, a row for each parameter and value
heatmap  layers × steps as an SVG, the loss above
page     one file to scrub through; its look and its script are in assets/
live     the page, served while training runs
"""

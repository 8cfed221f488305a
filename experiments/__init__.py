"""What is done: models, training, probes and the records they leave.

Shapes are part of names (``x_BTD``): B batch (sequences), T tokens (context), D width, H heads, K head width, F feed-forward
width, V vocabulary, L layers (blocks), R seeds, N points of the residual stream (L + 1).

This package never imports ``analysis``, pandas or matplotlib; the two meet only in files, described by results/schema.json.
"""

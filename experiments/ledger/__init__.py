"""The shape ledger of one block, traced from the model that a config describes: every step with its shapes, parameters and
FLOPs. Shapes are in B (sequences) and T (tokens)."""

"""The anatomy of a block: a trace of experiments.ledger as a diagram. ``graph`` reads it, ``plan``, ``branch`` and ``edges``
place it, ``ink`` draws it, ``page`` adds title and foot."""

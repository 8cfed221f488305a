"""What the runs mean: tables, statistics and figures from the files in ``results``, without torch.

Shapes in names: B batch, T tokens, D width, H heads, L layers, R seeds, P points of a fit, X positions along an axis. A
cell is a config without its seed. Data flow one way: load -> tables (by stats) -> plots -> figures, the only writer.
"""

from analysis.load import Columns, Source, Study, load_study
from analysis.schema import SchemaError

__all__ = ["Columns", "SchemaError", "Source", "Study", "load_study"]

"""A figure's page: title, a grid of axes, one legend, and notes that say how it was made."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure, SubFigure
from matplotlib.transforms import Bbox

NOTE_SIZE = 7.5  # points
LETTERS_PER_INCH = 16.5  # of a note
LINE = 0.155  # inches


class Page:
    """A figure with notes at its foot. `grid` fills the rest; `finish` adds the legend."""

    def __init__(self, width: float, height: float, title: str, notes: Sequence[str]) -> None:
        lines = [
            line for note in notes for line in textwrap.wrap(note, int(width * LETTERS_PER_INCH), subsequent_indent="   ")
        ]
        foot = LINE * len(lines) + 0.12
        self.figure = Figure(figsize=(width, height + foot), layout="constrained")
        parts: Any = self.figure.subfigures(2, 1, height_ratios=[height, foot])
        top, bottom = parts
        self.body: SubFigure = top
        self.body.suptitle(title, x=0.01, ha="left")
        bottom.text(0.01, 0.98, "\n".join(lines), fontsize=NOTE_SIZE, va="top", linespacing=1.35, color="#333333")

    def grid(self, rows: int, columns: int, **options: Any) -> np.ndarray:
        """Axes, shape [rows, columns]."""
        return np.asarray(self.body.subplots(rows, columns, squeeze=False, **options))

    def finish(self, handles: Sequence[Artist], *, columns: int = 4) -> Figure:
        """The figure, with one legend between the axes and the notes, laid out once for all formats."""
        if handles:
            self.body.legend(handles=list(handles), loc="outside lower center", ncols=min(columns, len(handles)))
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")
        self._snap()
        return self.figure

    def _snap(self) -> None:
        """Round every position: the solver's last digits differ between processes, and name the clip paths of an SVG."""
        for part in self.figure.subfigs:
            part.bbox_relative.set_points(np.round(part.bbox_relative.get_points(), 6))
        for ax in self.body.axes:
            ax.set_position(Bbox(np.round(ax.get_position().get_points(), 6)))

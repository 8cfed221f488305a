"""Tables as Markdown text."""

from collections.abc import Sequence


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A row of heads, and one for each of `rows`; without a newline at the end."""
    lines = [[_cell(cell) for cell in row] for row in (heads, *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (lines[0], ["---"] * len(heads), *lines[1:]))


def line(text: str) -> str:
    """Text in one line."""
    return " ".join(text.split())


def _cell(text: str) -> str:
    return line(text).replace("\\", "\\\\").replace("|", "\\|")

"""The ledger in print: a table of the steps, and below it the sums."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

HEADER = ("step", "operation", "input shape", "output shape", "parameters", "FLOPs", "note")
RIGHT = {"step", "parameters", "FLOPs"}


def show(trace: Mapping[str, Any], console: Console) -> None:
    """Print the ledger of one block: a rich table on a terminal, aligned text elsewhere."""
    console.print(title(trace), soft_wrap=True, highlight=False, markup=False)
    rows = [cells(step) for step in trace["steps"]]
    if console.is_terminal:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in HEADER:
            table.add_column(name, justify="right" if name in RIGHT else "left", overflow="fold")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    else:
        for line in aligned([HEADER, *rows]):
            console.print(line, soft_wrap=True, highlight=False, markup=False)
    for line in foot(trace):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def title(trace: Mapping[str, Any]) -> str:
    size = trace["size"]
    head = size["width"] // size["n_head"]
    return (
        f"{trace['label']}, {trace['model']}: block {trace['layer']} of 0-{size['depth'] - 1}, width {size['width']}, "
        f"{size['n_head']} heads of {head}; B sequences of T tokens"
    )


def cells(step: Mapping[str, Any]) -> tuple[str, ...]:
    """A step in words, one for each column."""
    return (
        str(step["step"]),
        step["operation"],
        shapes(step["inputs"]) or "-",
        shapes(step["outputs"]),
        f"{step['parameters']:,}" if step["parameters"] else "-",
        polynomial(step["flops"]) or "-",
        step["note"],
    )


def foot(trace: Mapping[str, Any]) -> Iterator[str]:
    """The sums, and what the rows leave out."""
    parameters, depth = trace["parameters"], trace["size"]["depth"]
    outside = parameters["elsewhere"]
    yield f"block: {parameters['block']:,} parameters, {polynomial(trace['flops'])} FLOPs"
    if outside:
        yield f"       {outside:,} of the parameters are not used inside of this block, so no row has them"
    yield f"model: {parameters['model']:,} parameters"
    yield (
        "FLOPs: of the matrix products of a forward pass, 2 for each multiplication with its addition; all T² scores count, "
        "as torch's counter has it; norms, softmax, activations and sums are left out"
    )
    if len(trace["alike"]) < depth:
        yield f"blocks with these steps and constants: {ranges(trace['alike'])} of 0-{depth - 1}; --layer shows the others"
    enter, out = trace["equation"]["enter"], trace["equation"]["out"]
    if enter:
        yield f"before the first block: {', '.join(f'{name} = {formula}' for name, formula in enter.items())}"
    if out and out != trace["streams"][0]:
        yield f"after the last block, the readout takes {out}"


def shapes(found: Sequence[Sequence[int | str]]) -> str:
    """``(B, T, 768)``, ``3 x (B, T, 768)`` for three alike, ``(B, 12, T, T), (B, 12, T, 64)`` for two that differ."""
    texts = [f"({', '.join(map(str, shape))})" for shape in found]
    if len(texts) > 1 and len(set(texts)) == 1:
        return f"{len(texts)} x {texts[0]}"
    return ", ".join(texts)


def polynomial(counts: Mapping[str, int]) -> str:
    """``7,077,888 B T + 3,072 B T²``."""
    return " + ".join(f"{factor:,} {powers}".replace("^2", "²") for powers, factor in counts.items())


def ranges(numbers: Sequence[int]) -> str:
    """``0-2, 5``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if name in RIGHT else cell.ljust(width)
            for name, cell, width in zip(HEADER, row, widths, strict=True)
        )
        yield "  ".join(cells).rstrip()

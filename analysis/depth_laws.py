"""Depth laws at initialisation, as numbers and sentences: ``python -m analysis.depth_laws`` (make init, make depthcheck).

Norms are Frobenius norms, not squared, of the gradient of the mean loss per token.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from analysis import laws
from analysis.cells import check_cells, factor, groups, told_apart
from analysis.figures import terminal
from analysis.initial import QUANTITIES, Quantity, exponent, start
from analysis.laws import Estimate
from analysis.load import Columns, Study, load_study
from analysis.schema import SchemaError
from analysis.settings import setting
from analysis.tables import STRAY, attach

COLUMNS = Columns((), ("grad_stream", "grad_w2", "stream_var"))
HALF = 0.25  # half the distance between the laws 0, -1/2, -1: an exponent this close to 0 is none


@dataclass(frozen=True)
class Laws:
    """What one series of a study does with depth at initialisation."""

    label: str
    layers: pd.DataFrame  # of step 0, with depth and seed

    @cached_property
    def start(self) -> int:
        """Blocks from which exponents are fitted."""
        return start(self.layers["depth"])

    @property
    def deepest(self) -> int:
        return int(self.layers["depth"].max())

    def exponent(self, quantity: Quantity) -> Estimate:
        """Of depth, over L from `start`."""
        return exponent(quantity.of(self.layers), quantity.column)

    @cached_property
    def per_block(self) -> Estimate:
        """Rate at which ln of the stream's gradient changes per block towards the input, in the deepest network."""
        at = self.layers[self.layers["depth"] == self.deepest]
        return laws.rate(self.deepest - at["layer"], at["grad_stream"], at["seed"], noun="points")

    def sentences(self) -> Iterator[str]:
        """What the numbers say."""
        for quantity in QUANTITIES:
            yield f"{quantity.sentence} {_said(self.exponent(quantity))}"
        rate = self.per_block
        if rate.interval is None:
            yield f"gradient per block: {rate.reason}"
            return
        percent = [100 * value for value in (rate.interval.estimate, rate.interval.low, rate.interval.high)]
        yield (
            f"at {self.deepest} blocks the gradient changes by {percent[0]:+.2g} % per block towards the input "
            f"({percent[1]:+.2g} to {percent[2]:+.2g})"
        )


def laws_of(study: Study) -> list[tuple[str, Laws]]:
    """(factor, laws) of every series of a study. Raises SchemaError where runs of a cell differ in more than their seed."""
    found = []
    for (name,), part in groups(study.runs.assign(factor=factor(study.runs)), ["factor"]):
        runs = told_apart(part)
        check_cells(runs)
        layers = study.layers[(study.layers["step"] == 0) & study.layers["run"].isin(runs["run"])]
        layers = attach(layers, runs, ["depth", "seed", "label"])
        found += [(str(name), Laws(str(label), series)) for (label,), series in groups(layers, ["label"])]
    return found


def table(study: Study, series: list[tuple[str, Laws]]) -> Table:
    """A row per series, a column per quantity: exponent of L with half its 95 % interval."""
    varied = any(name for name, _ in series)
    title = f"{study.source.study}: value ~ L^exponent at initialisation"
    out = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
    for name in (*(["factor"] if varied else []), "series"):
        out.add_column(name, no_wrap=True)
    for quantity in QUANTITIES:
        out.add_column(quantity.name.replace(", ", ",\n").replace(" v", "\nv"), justify="right", no_wrap=True)
    out.add_column("gradient\nper block", justify="right", no_wrap=True)
    out.add_column("fitted\nover", justify="right", no_wrap=True)
    for name, found in series:
        numbers = [_number(found.exponent(quantity)) for quantity in QUANTITIES]
        over = f"L ≥ {found.start}" if found.start else "all L"
        lead = [name] if varied else []
        out.add_row(*lead, found.label, *numbers, _number(found.per_block, "{:+.3f}"), over)
    out.caption = (
        "± half the 95 % interval over seeds, a fit each. Norms, not squared. Per block: change of ln gradient per block "
        f"towards the input in the deepest network. * no such law: points stray from it by more than a factor of {STRAY}.\n"
        f"{setting(study.runs)}"
    )
    return out


def _number(found: Estimate, form: str = "{:+.2f}") -> str:
    if found.interval is None:
        return "-"
    star = "*" if found.stray > STRAY else ""
    return f"{form.format(found.interval.estimate).replace('-', '−')}{star} ± {form.format(found.interval.half)[1:]}"


def _said(found: Estimate) -> str:
    """An exponent as the end of a sentence."""
    if found.interval is None:
        return f"has no law: {found.reason}"
    low, high = found.interval.low, found.interval.high
    number = f"L^{found.interval.estimate:+.2f}, 95 % interval {low:+.2f} to {high:+.2f}".replace("-", "−")
    if found.stray > STRAY:
        return f"follows no power of depth: the points stray from one by a factor of {found.stray:.3g} ({number})"
    slightly = "slightly " if low > -HALF and high < HALF else ""
    if high < 0:
        return f"falls {slightly}with depth ({number})"
    if low > 0:
        return f"grows {slightly}with depth ({number})"
    if slightly:
        return f"does not depend on depth ({number})"
    return f"has no clear law: the interval holds 0 and more than {HALF} beside it ({number}); take more seeds"


def tell(console: Console, study: Study, *, words: bool) -> None:
    """Print a study's laws, as a table and with `words` in sentences too."""
    series = laws_of(study)
    console.print(str(study.source), soft_wrap=True, highlight=False)
    console.print(table(study, series))
    for name, found in series:
        for quantity in QUANTITIES:
            if reason := found.exponent(quantity).reason:
                console.print(f"{found.label}{f', {name}' if name else ''}, {quantity.name}: {reason}", soft_wrap=True)
    for name, found in series if words else ():
        console.print(f"{found.label}{f', {name}' if name else ''}:", style="bold")
        for sentence in found.sentences():
            console.print(f"  {sentence}", highlight=False, soft_wrap=True)


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 if every study asked for had results."""
    parser = argparse.ArgumentParser(prog="python -m analysis.depth_laws", description="Print depth laws at initialisation.")
    parser.add_argument("studies", nargs="+", help="studies that measure initialisations")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder with runs/ and reference/")
    parser.add_argument("--scale", default="laptop", help="laptop, smoke or gpu")
    parser.add_argument("--words", action="store_true", help="say it in sentences too")
    arguments = parser.parse_args(argv)
    console, errors, code = terminal(), Console(stderr=True), 0
    for name in arguments.studies:
        try:
            study = load_study(arguments.results, name, arguments.scale, columns=COLUMNS)
            if study is None:
                where = f"{arguments.results} at {arguments.scale}"
                raise SchemaError(f"no finished runs of {name} in {where}; run: make sweep STUDY={name}")
            tell(console, study, words=arguments.words)
        except SchemaError as error:
            errors.print(f"error: {error}", soft_wrap=True, markup=False)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())

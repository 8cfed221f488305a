"""The evaluated ledger as text: CSV, Markdown and a table for the terminal. The same rows give the same bytes."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from rich import box
from rich.table import Table
from rich.text import Text

from analysis import markdown
from analysis.evidence.verdicts import Finding, Verdict, number_text
from analysis.ledger import Claim, Test

COLUMNS = (
    "id", "claim", "source", "when", "setting", "data", "quantity", "unit", "predicted", "measured", "estimate", "low", "high",
    "seeds", "seeds_given", "runs", "diverged", "zeros", "nonfinite", "verdict", "reason", "remark", "overall", "figure",
)  # fmt: skip
HEADS = ("when", "quantity", "predicted", "measured", "seeds", "diverged", "verdict", "figure")  # of a claim's Markdown table
STYLES = {"holds": "green", "refuted": "red", "inconclusive": "yellow", "not measured": "dim"}
LEGEND = (
    "Intervals are of 95 %: of the mean over seeds, with one value or one fit a seed (Student t, from thirty on a "
    "bootstrap), or of a share (Clopper-Pearson). Exponents in L are fitted over L ≥ 12 where nothing else is said. "
    "Predicted, in brackets: what agrees. Holds: the whole interval agrees; refuted: none of it does. A law of growth or "
    "fall is called where it leads by more than 4 in AICc in every seed. Norms are Frobenius norms; where a square is meant, "
    "it says so. O(...) is read as 'proportional to', as the popular account means it."
)


@dataclass(frozen=True)
class Row:
    """One test of a claim, evaluated. setting, data : of the runs read, in words; empty where there were none."""

    claim: Claim
    test: Test
    verdict: Verdict
    found: Finding = field(default_factory=Finding)
    setting: str = ""
    data: str = ""
    runs: int = 0
    diverged: int = 0
    overall: str = ""

    @property
    def predicted(self) -> str:
        number = "" if str(self.test.rule) in self.test.prediction else f" ({self.test.rule})"
        return self.test.prediction + number

    @property
    def measured(self) -> str:
        """The number with its interval, the winner of a choice of law, the count of a share; empty where there is none."""
        found, parts = self.found, []
        if found.count is not None:
            parts.append(f"{found.count[0]} of {found.count[1]}" + (":" if found.interval is not None else ""))
        if found.law is not None and found.interval is not None:
            other = "" if found.law.winner == found.of_law else f"; as {found.of_law}"
            parts.append(f"{found.law.winner or 'no law'} wins{other}:")
        if found.interval is not None:
            interval = found.interval
            parts.append(f"{number_text(interval.estimate)} [{number_text(interval.low)}, {number_text(interval.high)}]")
        return " ".join(parts)

    @property
    def seeds(self) -> str:
        return f"{self.found.seeds} of {self.found.given}" if self.found.given else ""

    @property
    def lost(self) -> str:
        return f"{self.diverged} of {self.runs}" if self.runs else ""

    @property
    def judged(self) -> str:
        return self.verdict.word + (f": {self.verdict.reason}" if self.verdict.reason else "")

    def record(self) -> dict[str, str]:
        """The row by COLUMNS; numbers with six digits, empty where there is none."""
        found, test = self.found, self.test
        interval = [] if found.interval is None else [found.interval.estimate, found.interval.low, found.interval.high]
        estimate, low, high = (f"{float(value):.6g}" for value in interval) if interval else ("", "", "")
        values = (
            self.claim.id, self.claim.statement, self.claim.source, test.when, self.setting, self.data, test.quantity,
            test.unit, self.predicted, self.measured, estimate, low, high, found.seeds, found.given, self.runs, self.diverged,
            found.zeros, found.nonfinite, self.verdict.word, self.verdict.reason, found.remark, self.overall, test.figure,
        )  # fmt: skip
        return dict(zip(COLUMNS, map(str, values), strict=True))


def csv_text(rows: Sequence[Row]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row.record() for row in rows)
    return file.getvalue()


def markdown_text(rows: Sequence[Row]) -> str:
    """A table of all claims, then for each the rows of its tests, with setting and source of the data under them."""
    parts = ["# Ledger of claims", LEGEND, markdown.table(("id", "claim", "source", "verdict"), _claims(rows))]
    for claim, group in _by_claim(rows):
        tests = [
            (
                row.test.when,
                row.test.quantity,
                row.predicted,
                _with_unit(row),
                row.seeds,
                row.lost,
                row.judged,
                row.test.figure,
            )
            for row in group
        ]
        parts += [f"## {claim.id}: {markdown.line(claim.statement)}", f"Source: {markdown.line(claim.source)}."]
        parts += [f"**{markdown.line(group[0].overall)}**", markdown.table(HEADS, tests)]
        notes = [f"{row.test.when}: {row.found.remark}" for row in group if row.found.remark]
        origins = dict.fromkeys(f"{row.test.study}, from {row.data}: {row.setting}" for row in group if row.data)
        if lines := [f"* {markdown.line(line)}" for line in (*notes, *origins)]:
            parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def terminal_table(rows: Sequence[Row]) -> Table:
    """A bold line for each claim, then its tests."""
    table = Table(box=box.SIMPLE_HEAD, caption=LEGEND, caption_justify="left")
    for name, ratio in (("claim", 5), ("predicted", 3), ("measured", 3), ("seeds", 1), ("verdict", 4)):
        table.add_column(name, ratio=ratio)
    for claim, group in _by_claim(rows):
        table.add_section()
        overall = Text(group[0].overall, style=f"bold {STYLES.get(group[0].overall.split(' (')[0], '')}".strip())
        table.add_row(Text(f"{claim.id}  {claim.statement}", style="bold"), "", "", "", overall)
        for row in group:
            seeds = row.seeds + (f"\n{row.lost} diverged" if row.diverged else "")
            verdict = Text(row.judged, style=STYLES[row.verdict.word])
            table.add_row(*(Text(words) for words in (f"  {row.test.when}", row.predicted, _with_unit(row), seeds)), verdict)
    return table


def sources(rows: Sequence[Row]) -> list[str]:
    """A line for each study and source: where the rows of which claims were read from."""
    claims: dict[str, list[str]] = {}
    for row in rows:
        if row.data and row.claim.id not in (ids := claims.setdefault(f"{row.test.study}: {row.data}", [])):
            ids.append(row.claim.id)
    return [f"{line} ({', '.join(ids)})" for line, ids in sorted(claims.items())]


def _by_claim(rows: Sequence[Row]) -> list[tuple[Claim, list[Row]]]:
    return [(group[0].claim, group) for group in (list(part) for _, part in groupby(rows, key=lambda row: row.claim.id))]


def _claims(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    return [(claim.id, claim.statement, claim.source, group[0].overall) for claim, group in _by_claim(rows)]


def _with_unit(row: Row) -> str:
    return f"{row.measured} {row.test.unit}" if row.measured and row.test.unit not in ("1", "share") else row.measured

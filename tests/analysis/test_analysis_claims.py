"""Laws of the evaluated ledger: its text gives back what was found, whole and the same each time."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_claims import BOTH, INIT, init_runs, reference, rows, write_checks
from synthetic_ledger import memory, obeying_cases
from synthetic_memory import Memory
from synthetic_store import edit_json, write_study

from analysis.claims import asked, evaluate, main
from analysis.evidence.rows import COLUMNS, Row, csv_text, markdown_text, sources, terminal_table
from analysis.evidence.verdicts import Finding, Verdict
from analysis.ledger import CLAIMS, entry
from analysis.schema import SchemaError

WILD = 'Post-LN, "vanishing" | as 1/L; it\'s\nO(1/L) \\ [bold]x[/bold]'


def wild_rows() -> list[Row]:
    test = replace(INIT, when=WILD, quantity=WILD)
    claim = entry.Claim("C1", WILD, WILD, (test,))
    return [replace(row, overall=WILD, setting=WILD) for row in evaluate(Memory(), claim)]


def cells(line: str) -> list[str]:
    parts = re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1]
    return [re.sub(r"\\([\\|])", r"\1", part.strip()) for part in parts]


def test_any_text_survives_csv_and_markdown_and_the_terminal() -> None:
    (back,) = csv.DictReader(io.StringIO(csv_text(wild_rows())))
    assert tuple(back) == COLUMNS
    assert back["claim"] == back["source"] == back["when"] == back["overall"] == WILD
    line = " ".join(WILD.split())
    table = [cells(text) for text in markdown_text(wild_rows()).splitlines() if text.startswith("| C1 ")]
    assert table == [["C1", line, line, line]]
    assert str(next(iter(terminal_table(wild_rows()).columns[0].cells))) == f"C1  {WILD}"


def test_rows_give_back_the_numbers_that_were_found() -> None:
    found = memory(INIT, obeying_cases(INIT))
    written = evaluate(found, entry.Claim("C1", "a claim", "a paper", (INIT,)))
    (back,) = csv.DictReader(io.StringIO(csv_text(written)))
    interval = written[0].found.interval
    assert [float(back[name]) for name in ("estimate", "low", "high")] == pytest.approx(
        [interval.estimate, interval.low, interval.high], rel=1e-5
    )
    assert (back["verdict"], back["seeds"], back["diverged"], back["figure"]) == ("holds", "3", "0", "claims")
    assert back["predicted"] == "L^0 (0.00 ± 0.25)"
    assert sources(written) == ["init_scaling: results/runs at laptop, commit abc1234 (C1)"]
    (text,) = [line for line in markdown_text(written).splitlines() if line.startswith("| at initialisation")]
    assert cells(text)[3] == f"{written[0].measured} exponent in L"


def test_the_ledger_from_a_reference_is_whole_and_the_same_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference(tmp_path, *(next(t for t in claim.tests) for claim in CLAIMS if claim.id in ("C17", "C5a")))
    write_checks(tmp_path / "reference" / "exact.json")
    assert main(["--results", str(tmp_path)]) == 0
    first = {name: (tmp_path / name).read_bytes() for name in ("claims.csv", "claims.md")}
    shown = capsys.readouterr().out
    assert main(["--results", str(tmp_path)]) == 0
    assert {name: (tmp_path / name).read_bytes() for name in first} == first
    back = list(csv.DictReader(io.StringIO(first["claims.csv"].decode())))
    assert len(back) == sum(len(claim.tests) for claim in CLAIMS)
    words = {row["id"]: row["overall"] for row in back}
    assert words["C17"] == "holds (1 of 2 not measured)"
    assert words["C16"] == "holds"
    assert words["C6a"] == "not measured"
    for claim in CLAIMS:
        assert f"{claim.id}  " in shown
        assert f"## {claim.id}: " in first["claims.md"].decode()
    assert "xiong2020: the committed reference at laptop, commit abc1234 (C17)" in shown


def test_exact_checks_are_read_like_a_study(tmp_path: Path) -> None:
    (claim,) = asked("C16")
    write_checks(tmp_path / "reference" / "exact.json")
    (row,) = rows(tmp_path, claim)
    assert (row.verdict.word, row.data, row.measured) == ("holds", "the committed reference, commit abc1234", "1 of 1")
    write_checks(tmp_path / "exact.json", measured=2.0)
    (row,) = rows(tmp_path, claim)
    assert row.data == "results/exact.json, commit abc1234"
    assert row.verdict == Verdict("refuted", "1 of 1 checks against it")
    assert row.found.remark == "pre_shape: 2, expected 0"
    (tmp_path / "exact.json").write_text("{")
    with pytest.raises(SchemaError, match="not readable as JSON"):
        rows(tmp_path, claim)


def test_only_some_claims_are_shown_and_no_file_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_checks(tmp_path / "exact.json")
    assert main(["--results", str(tmp_path), "--only", "C16,C2"]) == 0
    shown = capsys.readouterr().out
    assert "C16  " in shown
    assert "C2b  " in shown
    assert "C3a  " not in shown
    assert not (tmp_path / "claims.csv").exists()
    assert [claim.id for claim in asked("C12b,C5")] == ["C5a", "C5b", "C12b"]
    assert main(["--results", str(tmp_path), "--only", "C99"]) == 1
    assert "no claim C99; known are: C1, C2a" in capsys.readouterr().err


def test_an_empty_store_says_what_to_run_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--results", str(tmp_path)]) == 1
    assert "nothing measured" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_run_is_an_error_and_no_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = init_runs()
    write_study(tmp_path, runs)
    edit_json(runs[0].folder(tmp_path) / "run.json", "config", drop=True)
    assert main(["--results", str(tmp_path), "--only", "C1"]) == 1
    assert "no key config" in capsys.readouterr().err


def test_a_row_without_runs_has_no_counts() -> None:
    row = Row(BOTH, INIT, Verdict("not measured"), Finding())
    assert (row.measured, row.seeds, row.lost, row.judged) == ("", "", "", "not measured")

"""What ``make check`` prints: law by law, whether it holds."""

import sys
import traceback
from pathlib import Path

import pytest
from law import LawError

from experiments.config import ConfigError

ROOT = Path(__file__).parents[2]
WORDS = {"passed": "holds  ", "failed": "BROKEN ", "skipped": "skipped"}
INDENT = " " * 9


class Summary:
    """Stands in for pytest's terminal reporter: a sentence for each law, and the reason where it is broken."""

    def __init__(self, config: pytest.Config, variants: list[str]) -> None:
        self.several = len(variants) > 1
        self.outcomes: dict[str, list[str]] = {name: [] for name in variants}
        self._tw = config.get_terminal_writer()  # where pytest looks for it

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        law = dict(report.user_properties)
        seen = self.outcomes.setdefault(law["variant"], [])
        if self.several and not seen:
            print(f"\n{law['variant']}")
        seen.append(report.outcome)
        print(f"{WORDS[report.outcome]}  {law['law']}")
        for key in ("reason", "notes"):
            for line in law.get(key, "").splitlines():
                print(f"{INDENT}{line}")
        sys.stdout.flush()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            print(f"error: {str(report.longrepr).strip().splitlines()[-1]}", file=sys.stderr)

    def pytest_internalerror(self, excrepr: object) -> None:
        print(excrepr, file=sys.stderr)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
            print("\nnot every law was tried")
            return
        print()
        for variant, outcomes in self.outcomes.items():
            broken, ran = outcomes.count("failed"), len(outcomes) - outcomes.count("skipped")
            print(f"{variant}: {broken} of {ran} laws are broken" if broken else f"{variant}: {ran} laws hold")


def reason(error: BaseException) -> str:
    """One line: what the law says, or what the variant's code raised, and where."""
    text = str(error).strip().splitlines()
    if isinstance(error, LawError | ConfigError):
        return text[0]
    inside = [
        frame for frame in traceback.extract_tb(error.__traceback__) if ROOT / "experiments" in Path(frame.filename).parents
    ]
    where = f" ({Path(inside[-1].filename).relative_to(ROOT)}:{inside[-1].lineno})" if inside else ""
    return f"{type(error).__name__}: {text[0] if text else 'no message'}{where}"

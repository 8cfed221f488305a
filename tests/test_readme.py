"""README's table of variants against their files."""

import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| `(\w+)` \| `([^`]+)`(.*) \| `([^`]+)` \| (.*) \|$", re.M)


def rows() -> dict[str, tuple[str, str, str, str]]:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## The variants\n")[2].partition("\n## ")[0]
    return {name: tuple(rest) for name, *rest in ROW.findall(text)}


def test_every_row_of_the_table_is_read() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## The variants\n")[2].partition("\n## ")[0]
    assert len(rows()) == sum(line.startswith("| `") for line in text.splitlines()) >= 17


@pytest.mark.parametrize("name", rows())
def test_the_table_gives_the_equation_and_the_source_of_the_file(name: str) -> None:
    update, constants, out, source = rows()[name]
    path = ROOT / "conf" / "norm" / f"{name}.yaml"
    equation = OmegaConf.load(path).equation
    assert (update, out) == (equation.x, equation.out)
    formulas = [str(value) for value in equation.get("where", {}).values()] + [equation.get("gain", "")]
    assert all(formula in constants for formula in formulas)
    (paper,) = re.findall(r"arXiv:(\d+\.\d+)", path.read_text(encoding="utf-8").splitlines()[0])
    assert f"[{paper}](https://arxiv.org/abs/{paper})" in source

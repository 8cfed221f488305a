"""A variant that cannot be is refused in one line, which names its file and the remedy, before anything is written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tree import copied, files, python

CLASS = '''"""A variant."""

import torch

from experiments.placements.base import Placement


class Bad(Placement):
    final_norm = True

    def forward(self, stream, branch):
        return stream + branch(stream)
'''
YAML = """# x + f(x), a variant that cannot be
name: bad
placement: bad
label: Bad
color: "#123456"
linestyle: "-"
"""
CLASS_FILE, YAML_FILE = "experiments/placements/bad.py", "conf/norm/bad.yaml"


def changed(*pairs: tuple[str, str]) -> str:
    text = CLASS
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


UPDATE = "stream + branch(stream)"
BAD = {
    "no class": ('"""Nothing yet."""\n', [f"{CLASS_FILE} defines 0 Placement classes", "make it one"]),
    "two classes": (CLASS + CLASS.partition("\n\n\n")[2].replace("Bad", "Worse"), [f"{CLASS_FILE} defines 2", "make it one"]),
    "syntax": (changed(("return", "retrun")), [f"{CLASS_FILE} cannot be imported: SyntaxError", "correct it"]),
    "import": (changed(("import torch", "import touch")), [f"{CLASS_FILE} cannot be imported: ModuleNotFoundError", "touch"]),
    "final_norm": (changed(("    final_norm = True\n\n", "")), [f"{CLASS_FILE}: Bad lacks final_norm", "True or False"]),
    "shape": (changed((UPDATE, f"({UPDATE})[:, :-1]")), ["(1, 7, 64)", "(1, 8, 64)", f"correct {CLASS_FILE}"]),
    "streams": (changed((UPDATE, f"({UPDATE}, stream)")), ["norm=bad", f"correct {CLASS_FILE}"]),
    "nan": (changed((UPDATE, f"torch.log({UPDATE})")), ["not finite at initialisation", f"correct {CLASS_FILE}"]),
    "nan out": (
        CLASS + "\n    def leave(self, stream, final_norm):\n        return stream / 0\n",
        ["leave is not finite at initialisation", f"correct {CLASS_FILE}"],
    ),
    "matrix": (
        changed(
            (
                "    def forward",
                "    def __init__(self, make_norm, site):\n        super().__init__(make_norm, site)\n"
                "        self.gate = torch.nn.Linear(2, 1)\n\n    def forward",
            )
        ),
        ["gate is nn.Linear, which no init scheme draws", f"correct {CLASS_FILE}"],
    ),
    "raises": (changed((UPDATE, "stream.missing")), ["AttributeError", "missing", f"correct {CLASS_FILE}"]),
}


NUMBERS = ("data=random", "data.vocab=16", "train.steps=1", "schedule.warmup=0")
EACH = f"""
import contextlib, io, json, sys
from experiments.train import main
lines = {{}}
for name in sys.argv[1:]:
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        code = main([f"norm={{name}}", *{NUMBERS}])
    lines[name] = code, stderr.getvalue().splitlines()
print(json.dumps(lines))
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return copied(tmp_path)


def give(tree: Path, name: str, text: str, yaml: str = YAML) -> None:
    """Write the two files of a variant; where text is empty, the YAML file only."""
    (tree / YAML_FILE.replace("bad", name)).write_text(yaml.replace(": bad", f": {name}"))
    if text:
        (tree / CLASS_FILE.replace("bad", name)).write_text(text)


def refusal(tree: Path, *arguments: str) -> str:
    """The line that the command line prints in place of running."""
    before = files(tree)
    done = python(tree, "experiments.train", *arguments, *NUMBERS)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert files(tree) == before
    return line


def test_a_file_that_names_no_module_is_refused_with_the_remedy(tree: Path) -> None:
    give(tree, "bad", "")
    line = refusal(tree, "norm=bad")
    assert line.startswith("error: norm.placement=bad")
    for words in (YAML_FILE, f"there is no {CLASS_FILE}", "write it", "post, pre"):
        assert words in line


def test_a_class_that_is_no_placement_is_refused_with_the_remedy(tree: Path) -> None:
    """All in one process, through the function that the command line calls."""
    names = {fault: f"bad_{i}" for i, fault in enumerate(BAD)}
    for fault, name in names.items():
        give(tree, name, BAD[fault][0])
    before = files(tree)
    done = subprocess.run([sys.executable, "-c", EACH, *names.values()], cwd=tree, capture_output=True, text=True, check=True)
    assert files(tree) == before
    for fault, name in names.items():
        code, (line,) = json.loads(done.stdout)[name]
        assert code == 1
        assert line.startswith("error: ")
        for words in BAD[fault][1]:
            assert words.replace("bad", name) in line, fault


@pytest.mark.parametrize("arguments", [["norm=bad"], ["-m", "norm=pre,bad"]])
def test_a_variant_that_is_not_finite_starts_no_run(tree: Path, arguments: list[str]) -> None:
    text, wanted = BAD["nan"]
    give(tree, "bad", text)
    line = refusal(tree, *arguments)
    for words in wanted:
        assert words in line


def test_a_formula_that_cannot_be_read_is_refused(tree: Path) -> None:
    give(tree, "bad", CLASS, YAML + "equation:\n  x: x + f(norm(x)\n  out: x\n")
    assert "'x + f(norm(x)' is no formula" in refusal(tree, "norm=bad")

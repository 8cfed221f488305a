"""README's "Add a norm variant", executed as it stands in a copy of the project.

Expected there: ``make new NORM=... FROM=...``, then fenced blocks that name their file in a first line ``# path`` (or in the
text before them) and hold it in full, then ``make check NORM=...``.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tree import ROOT, check, copied, files, python

TITLE = "## Add a norm variant"
FILE = r"((?:experiments/placements|conf/norm)/\w+\.\w+)"
BLOCK = re.compile(r"^```(\w*)\n((?s:.*?))^```$", re.M)
COMMAND = re.compile(r"^make [a-z-]+(?: [A-Z]+=(?:'[^']*'|\S+))*", re.M)

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make")


def section() -> str:
    """The text under the title, up to the next of its kind."""
    _, _, rest = (ROOT / "README.md").read_text(encoding="utf-8").partition(f"{TITLE}\n")
    assert rest, f"README.md has no section {TITLE!r}"
    return rest.partition("\n## ")[0]


def example(text: str) -> dict[str, str]:
    """Path -> content of the files that the section shows."""
    found, end = {}, 0
    for block in BLOCK.finditer(text):
        first, _, rest = block[2].partition("\n")
        named, before = re.fullmatch(rf"# {FILE}", first.strip()), re.findall(f"`{FILE}`", text[end : block.start()])
        end = block.end()
        if named:
            found[named[1]] = rest.lstrip("\n")
        elif before:
            found[before[-1]] = block[2]
    return found


def commands(text: str) -> list[str]:
    """The ``make`` commands of the section, in order, from blocks, indented lines and code in the text."""
    code = [
        match[2] or match[3] or match[4]
        for match in re.finditer(rf"{BLOCK.pattern}|`([^`\n]+)`|^    (.+)$", text, BLOCK.flags)
    ]
    return [command for lines in code for command in COMMAND.findall(lines)]


def make(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """A command of the section, with this interpreter as the environment that is set up."""
    return subprocess.run([*shlex.split(command), "VENV=venv"], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    copied(tmp_path)
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    interpreter = tmp_path / "venv" / "bin" / "python"
    interpreter.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    interpreter.chmod(0o755)
    for stamp in (".begun-by-make", ".light-stamp", ".full-stamp"):
        (tmp_path / "venv" / stamp).touch()
        os.utime(tmp_path / "venv" / stamp, (time.time() + 60, time.time() + 60))
    return tmp_path


def followed(tree: Path) -> str:
    """The variant's name, after ``make new`` and the edits of the section."""
    text, before = section(), files(tree)
    new = next(command for command in commands(text) if command.startswith("make new"))
    name = re.search(r"NORM=(\w+)", new)[1]
    done = make(tree, new)
    assert done.returncode == 0, done.stderr
    assert files(tree) - before == set(example(text))
    for path, content in example(text).items():
        (tree / path).write_text(content, encoding="utf-8")
    return name


def test_the_section_shows_both_files_and_names_the_commands() -> None:
    text = section()
    assert [command.split()[1] for command in commands(text)][:2] == ["new", "check"]
    assert {Path(path).suffix for path in example(text)} == {".py", ".yaml"}
    for command in commands(text):
        assert make(ROOT, command.replace("make", "make -n", 1)).returncode == 0, command


def test_the_worked_example_obeys_the_laws(tree: Path) -> None:
    done = check(tree, followed(tree))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_worked_example_is_checked_by_its_command_and_well_written(tree: Path) -> None:
    name = followed(tree)
    done = make(tree, f"make check NORM={name}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(rf"{name}: \d+ laws hold", done.stdout.splitlines()[-1])
    for tool in (["ruff", "check"], ["ruff", "format", "--check"], ["mypy", "--follow-imports=silent"]):
        told = python(tree, *tool, f"experiments/placements/{name}.py")
        assert told.returncode == 0, told.stdout

"""``make new``: two files of a new variant that obey the laws as they are, or none."""

import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from tree import ROOT, check, copied, files, python

from experiments import new
from experiments.config import ConfigError
from experiments.validation import COLOR, LINESTYLE

VARIANTS = sorted(path.stem for path in (ROOT / "conf" / "norm").glob("*.yaml"))
WRITTEN = {"experiments/placements/mine.py", "conf/norm/mine.yaml"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return copied(tmp_path)


def test_two_files_are_written_and_nothing_else_is_touched(tree: Path) -> None:
    before = {name: (tree / name).read_bytes() for name in files(tree)}
    done = python(tree, "experiments.new", "mine", "--from", "post")
    assert done.returncode == 0
    assert not done.stderr
    assert files(tree) - before.keys() == WRITTEN
    assert all((tree / name).read_bytes() == content for name, content in before.items())
    for words in (*WRITTEN, "make check NORM=mine", "make depthcheck NORM=mine", "make quick ARGS=norm=post,mine"):
        assert words in done.stdout
    assert "class Mine(Placement):" in (tree / "experiments/placements/mine.py").read_text()
    assert "TODO the formula and its source" in (tree / "conf/norm/mine.yaml").read_text().splitlines()[0]


@pytest.mark.slow
def test_new_files_obey_every_law_at_once(tree: Path) -> None:
    assert python(tree, "experiments.new", "mine", "--from", "pre").returncode == 0
    done = check(tree, "mine", "-m", "")
    assert done.returncode == 0, done.stdout
    assert re.fullmatch(r"mine: \d+ laws hold", done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_the_laws_of_the_new_variant_follow_its_edited_files(tree: Path) -> None:
    """Edited to the formula of another variant in the YAML alone, it is broken until the class follows."""
    assert python(tree, "experiments.new", "mine", "--from", "pre").returncode == 0
    yaml, module = tree / "conf/norm/mine.yaml", tree / "experiments/placements/mine.py"
    yaml.write_text(yaml.read_text().replace("x + f(norm(x))", "norm(x + f(x))").replace("final(x)", "x"))
    broken = check(tree, "mine")
    assert broken.returncode == 1
    assert "Mine does not compute x: norm(x + f(x))" in broken.stdout
    assert "set final_norm = False in experiments/placements/mine.py" in broken.stdout
    text = module.read_text().replace("stream + branch(self.norm(stream))", "self.norm(stream + branch(stream))")
    module.write_text(text.replace("final_norm: ClassVar[bool] = True", "final_norm: ClassVar[bool] = False"))
    assert check(tree, "mine").returncode == 0


@pytest.mark.parametrize("source", VARIANTS)
def test_the_files_are_well_formed_whatever_they_start_from(source: str) -> None:
    (module, python_text), (yaml, yaml_text) = new.files("my_variant", source).items()
    assert (module.name, yaml.name) == ("my_variant.py", "my_variant.yaml")
    compile(python_text, module.name, "exec")
    theirs = (ROOT / "experiments" / "placements" / f"{source}.py").read_text()
    (old,) = re.findall(r"class (\w+)\(Placement\)", theirs)
    assert "class MyVariant(Placement):" in python_text
    assert not re.search(rf"\b{old}\b", python_text)
    assert python_text.count("TODO") == 2
    assert max(map(len, python_text.splitlines())) <= 127
    mine, norm = OmegaConf.create(yaml_text), OmegaConf.load(ROOT / "conf" / "norm" / f"{source}.yaml")
    assert (mine.name, mine.placement, mine.label) == ("my_variant", "my_variant", "My variant")
    assert COLOR.fullmatch(mine.color)
    assert LINESTYLE.fullmatch(mine.linestyle)
    for key in ("name", "placement", "label", "color", "linestyle"):
        del mine[key], norm[key]
    assert mine == norm


def test_colours_and_line_styles_stay_distinct_for_two_hundred_variants() -> None:
    norms = {path.stem: OmegaConf.load(path) for path in sorted((ROOT / "conf" / "norm").glob("*.yaml"))}
    text = (ROOT / "conf" / "norm" / "pre.yaml").read_text()
    for n in range(200 - len(norms)):
        norms[f"v{n}"] = OmegaConf.create(new.yaml_of(f"v{n}", "pre", text, norms))
    lines = [(norm.color.upper(), norm.linestyle) for norm in norms.values()]
    assert len(set(lines)) == len(lines) == 200
    assert len({norm.label for norm in norms.values()}) == 200


@pytest.mark.parametrize(
    "name", ["", "Mine", "2mine", "my-norm", "my norm", "../mine", "a" * 42, "é", "_mine", "mine.py", "mine\n"]
)
def test_a_name_that_is_no_module_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is no name of a module; use small letters"):
        new.files(name, "pre")


@pytest.mark.parametrize("name", ["class", "lambda", "on", "null", "true", "nan"])
def test_a_name_that_is_read_as_something_else_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"NORM={name} .* choose another name"):
        new.files(name, "pre")


@pytest.mark.parametrize("name", ["pre", "base"])
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"experiments/placements/{name}.py is there already; choose another name"):
        new.files(name, "pre")


def test_an_unknown_source_is_refused_with_the_known() -> None:
    with pytest.raises(ConfigError, match=r"FROM=sideways is not known; known are: .*post, .*pre"):
        new.files("mine", "sideways")


def test_a_class_is_not_called_as_what_its_module_imports() -> None:
    text = next(iter(new.files("site", "pre").values()))
    assert "class SiteNorm(Placement):" in text
    assert "site: Site" in text


def test_nothing_is_overwritten_and_both_files_are_written_or_none(tmp_path: Path) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.yaml"
    two.write_text("years of work")
    with pytest.raises(ConfigError, match=r"two.yaml: File exists; nothing was written"):
        new.write({one: "1", two: "2"})
    assert not one.exists()
    assert two.read_text() == "years of work"


def test_a_refusal_is_one_line(tree: Path) -> None:
    before = files(tree)
    done = python(tree, "experiments.new", "mine", "--from", "sideways")
    assert done.returncode == 1
    assert not done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: FROM=sideways is not known; known are: ")
    assert files(tree) == before

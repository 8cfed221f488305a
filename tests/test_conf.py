"""Every file in conf/ composes, validates and says what it is."""

from pathlib import Path

import pytest
from compose import config
from omegaconf import OmegaConf

from experiments.config import CONF, KNOWN, modules_in
from experiments.identity import run_id
from experiments.validation import validate

FACTORS = sorted(str(path.relative_to(CONF / "factor").with_suffix("")) for path in (CONF / "factor").rglob("*.yaml"))
STUDIES = {  # folder of factors: its study
    "init": "init_scaling", "collapse": "collapse", "deepnet": "deepnet_update", "variants": "variants",
}  # fmt: skip
REQUIRED = {"tokens": ["data.path=f", "data.vocab=9"], "text": ["data.path=f"]}  # what a data file leaves to the user
CHOICES = sorted(
    (group, path.stem)
    for group in ("norm", "model", "init", "data", "optim", "schedule", "probe", "scale", "study")
    for path in (CONF / group).glob("*.yaml")
)  # fmt: skip


@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_every_file_composes_and_validates(group: str, name: str) -> None:
    cfg = config(f"{group}={name}", *REQUIRED.get(name, []))
    validate(cfg)
    assert cfg[group].name == name if "name" in cfg[group] else group in ("probe", "model")


@pytest.mark.parametrize("path", sorted(CONF.rglob("*.yaml")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_file_begins_with_what_it_is(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("# @package")]
    assert lines[0].startswith("# ")
    assert len(lines[0]) > 20


@pytest.mark.parametrize("group", ["init", "data", "optim", "schedule"])
def test_files_of_a_group_are_what_the_code_knows(group: str) -> None:
    assert {name for found, name in CHOICES if found == group} == set(KNOWN[f"{group}.name"])


def test_every_norm_file_has_a_placement_of_its_own_label_and_line() -> None:
    norms = [config(f"norm={name}").norm for group, name in CHOICES if group == "norm"]
    assert {norm.placement for norm in norms} <= set(modules_in(CONF.parent / "experiments" / "placements"))
    assert len({(norm.label, norm.color, norm.linestyle) for norm in norms}) == len(norms)


def test_scale_overrides_the_study() -> None:
    study = config("study=depth_warmup")
    smoke = config("study=depth_warmup", "scale=smoke")
    assert (study.train.steps, study.schedule.warmup) == (study.scale.steps, study.scale.warmup)
    assert smoke.train.steps == smoke.scale.steps < study.train.steps
    assert config("study=init_scaling", "scale=smoke").train.steps == 0


def test_the_second_study_changes_the_initialisation_only() -> None:
    one, two = config("study=depth_warmup"), config("study=depth_warmup_xavier")
    assert two.init.name == "xavier"
    two.init, two.study = one.init, one.study
    assert one == two


@pytest.mark.parametrize("factor", FACTORS)
def test_every_factor_composes_in_its_study_under_its_own_name(factor: str) -> None:
    folder, _, name = factor.partition("/")
    cfg = config(f"study={STUDIES[folder]}", f"factor={factor}")
    validate(cfg)
    assert cfg.study.factor == name


@pytest.mark.parametrize("folder", STUDIES)
def test_a_study_sweeps_all_of_its_factors(folder: str) -> None:
    params = OmegaConf.load(CONF / "study" / f"{STUDIES[folder]}.yaml").hydra.sweeper.params
    assert sorted(params.factor.split(",")) == [factor for factor in FACTORS if factor.startswith(f"{folder}/")]


def test_a_factor_changes_the_science_and_the_base_does_not() -> None:
    """Each factor of a study gives runs of its own; the base is the study as it stands, at Xavier."""
    for folder in ("init", "collapse"):
        ids = {f: run_id(config(f"study={STUDIES[folder]}", f"factor={f}")) for f in FACTORS if f.startswith(f"{folder}/")}
        assert len(set(ids.values())) == len(ids)
        assert ids[f"{folder}/base"] == run_id(config(f"study={STUDIES[folder]}", "init=xavier"))

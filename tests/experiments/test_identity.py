"""Laws of a run's name: what changes it, and what does not."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import pytest
from compose import config
from omegaconf import DictConfig, OmegaConf

from experiments import identity
from experiments.config import CONF, Config, ConfigError, ModelConfig
from experiments.identity import config_difference, label, run_folder, run_id, run_name, science, variant

BASE = config()


def changed(**values: object) -> DictConfig:
    cfg = BASE.copy()
    for key, value in values.items():
        OmegaConf.update(cfg, key.replace("__", "."), value)
    return cfg


@pytest.mark.parametrize(
    "spellings",
    [
        ("optim.lr=1e-3", "optim.lr=0.001", "optim.lr=1.0e-03"),
        ("optim.lr=1", "optim.lr=1.0", "optim.lr=1e0"),
        ("model.dropout=0", "model.dropout=0.0", "seed=0"),
        ("optim.betas=[0,0.5]", "optim.betas=[0.0,5e-1]"),
        ("data.name=text", "data.name='text'"),
    ],
)
def test_two_spellings_of_one_value_are_one_run(spellings: Iterable[str]) -> None:
    assert len({run_name(config(spelling)) for spelling in spellings}) == 1


def test_an_interpolated_value_and_a_plain_one_are_one_run() -> None:
    plain = f"schedule.warmup={BASE.scale.warmup}"
    assert run_id(config("schedule.warmup=${scale.warmup}")) == run_id(config(plain))


@pytest.mark.parametrize(
    "override",
    [
        "results=elsewhere", "device=cpu", "threads=2", "sweep.jobs=3", "sweep.retry=true", "sweep.dry=true",
        "study.name=other", "scale.name=other", "norm.label=x", "norm.color=red", "norm.linestyle=':'",
    ],
)  # fmt: skip
def test_what_does_not_change_the_science_does_not_change_the_identity(override: str) -> None:
    assert run_id(config(override)) == run_id(BASE)


@pytest.mark.parametrize(
    "override",
    [
        "seed=1", "model.depth=13", "norm=post", "norm.kind=rmsnorm", "schedule.warmup=0", "train.steps=401", "init=xavier",
        "optim.betas=[0.9,0.99]", "train.clip=1.0", "model.bias=false", "model.final_norm=false", "probe.every=1",
    ],
)  # fmt: skip
def test_what_changes_the_science_changes_the_identity(override: str) -> None:
    assert run_id(config(override)) != run_id(BASE)


def test_seed_0_is_a_seed_in_the_hash() -> None:
    assert "seed" in science(BASE)
    assert len({run_id(config(f"seed={seed}")) for seed in range(3)}) == 3


def test_a_required_value_is_in_the_identity_and_an_option_at_its_default_is_not() -> None:
    keys = science(BASE).keys()
    assert {"norm.name", "model.depth", "optim.lr", "seed"} <= keys
    assert not {"model.dropout", "model.bias", "train.clip", "model.final_norm"} & keys


@dataclass
class LaterModel(ModelConfig):
    gate: str | None = None
    heat: float = 1.0


@dataclass
class Logger:
    name: str | None = None


@dataclass
class LaterConfig(Config):
    model: LaterModel = field(default_factory=LaterModel)
    logger: Logger = field(default_factory=Logger)
    tempo: int = 0


def test_a_new_key_at_its_default_keeps_old_identities() -> None:
    later = OmegaConf.merge(OmegaConf.structured(LaterConfig), OmegaConf.to_container(BASE, resolve=True))
    assert isinstance(later, DictConfig)
    assert run_id(later, LaterConfig) == run_id(BASE)
    later.logger.name = "any"
    assert run_id(later, LaterConfig) == run_id(BASE)
    later.model.heat = 2.0
    assert run_id(later, LaterConfig) != run_id(BASE)


def test_identity_survives_the_way_through_json() -> None:
    stored = OmegaConf.to_container(config("norm=post", "optim.lr=1", "train.clip=1"), resolve=True)
    assert isinstance(stored, dict)
    assert run_id(stored) == run_id(config("norm=post", "optim.lr=1", "train.clip=1"))


def test_the_hash_is_of_sorted_dotted_keys_as_json() -> None:
    text = '{"model.depth":6,"optim.betas":[0,0.5],"optim.lr":1,"seed":0}'
    cfg = {"seed": 0, "optim": {"lr": 1.0, "betas": [0.0, 0.5]}, "model": {"tied": False, "depth": 6}}
    assert run_id(cfg) == hashlib.sha256(text.encode()).hexdigest()[:8]


def test_a_thousand_configs_have_a_thousand_names() -> None:
    cfg = BASE.copy()
    names = set()
    axes = product(("pre", "post"), (6, 12, 24, 48, 96), (0, 50, 100, 200), range(5), (1e-3, 2e-3, 1e-2, 1e-1, 1.0))
    for cfg.norm.name, cfg.model.depth, cfg.schedule.warmup, cfg.seed, cfg.optim.lr in axes:
        names.add(run_name(cfg))
    assert len(names) == 1000


def test_a_name_tells_variant_depth_warmup_seed_and_hash(tmp_path: Path) -> None:
    cfg = config("norm=post", "model.depth=6", "schedule.warmup=7", "seed=3", f"results={tmp_path}")
    assert run_name(cfg) == f"post-L6-w7-s3-{run_id(cfg)}"
    assert run_folder(cfg) == tmp_path / "runs" / "single" / "laptop" / run_name(cfg)


def test_an_axis_is_in_the_variant_only_where_it_departs_from_the_norms_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert variant(BASE) == "pre"
    assert variant(config("norm.kind=rmsnorm")) == "pre-rmsnorm"
    assert label(config("norm.kind=rmsnorm")) == "Pre-LN (rmsnorm)"
    assert label(BASE) == "Pre-LN"
    (tmp_path / "norm").mkdir()
    (tmp_path / "config.yaml").write_text("norm: {kind: layernorm}\n")
    (tmp_path / "norm" / "pre.yaml").write_text("kind: rmsnorm\nqk: l2\n")
    monkeypatch.setattr(identity, "CONF", tmp_path)
    own = OmegaConf.create({"norm": {"name": "pre", "kind": "rmsnorm", "qk": "l2", "label": "Pre"}})
    assert variant(own) == "pre"
    own.norm.kind, own.norm.qk = "layernorm", "none"
    assert variant(own) == "pre-layernorm-qk_none"
    assert label(own) == "Pre (layernorm, qk_none)"


def test_a_norm_of_queries_is_not_taken_for_the_kind_of_all_norms() -> None:
    axes = ("norm.kind=rmsnorm", "norm.qk=rmsnorm", "norm.qk_axis=projection")
    assert [variant(config(axis)) for axis in axes] == ["pre-rmsnorm", "pre-qk_rmsnorm", "pre-qk_projection"]
    assert variant(config(*axes)) == "pre-rmsnorm-qk_rmsnorm-qk_projection"


def test_the_schema_of_results_knows_what_a_run_that_lacks_an_option_was_made_with() -> None:
    listed = json.loads((CONF.parent / "results" / "schema.json").read_text())["neutral"]
    groups = OmegaConf.to_container(OmegaConf.structured(Config))
    assert isinstance(groups, dict)
    options = {
        f"{group}.{key}": value for group, keys in groups.items() if isinstance(keys, dict) for key, value in keys.items()
    }
    outside = {key for key in options if key in identity.NOT_SCIENCE or key.split(".")[0] in identity.NOT_SCIENCE}
    assert listed == {key: value for key, value in options.items() if value != "???" and key not in outside}


def test_an_equation_is_no_part_of_what_a_run_finds() -> None:
    other = changed(norm__equation__x="norm(x)")
    assert run_id(other) == run_id(BASE)


@pytest.mark.parametrize("name", ["a/b", "../up", "a,b", "a b", "", ".hidden", "[x]", "é", "x" * 65])
def test_a_name_that_could_leave_its_folder_is_refused(name: str) -> None:
    for key in ("norm__name", "study__name", "scale__name"):
        with pytest.raises(ConfigError, match=r"cannot be part of a folder's name"):
            run_folder(changed(**{key: name}))


def test_a_difference_of_configs_names_its_keys() -> None:
    assert config_difference(BASE, config("device=cpu", "sweep.jobs=2")) == []
    assert config_difference(BASE, config("seed=1", "optim.lr=1", "train.clip=3")) == ["optim.lr", "seed", "train.clip"]
    stored = OmegaConf.to_container(BASE, resolve=True)
    assert isinstance(stored, dict)
    assert config_difference(stored, BASE) == []

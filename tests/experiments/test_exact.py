"""Exact checks hold, and each fails on an object that breaks its law."""

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from experiments import exact, placements
from experiments.config import modules_in
from experiments.exact import encoder, identity_path, jacobian, parameters, shape
from experiments.exact.__main__ import main
from experiments.exact.check import Check
from experiments.placements.base import Branch, Placement
from experiments.placements.post import PostLN
from experiments.placements.pre import PreLN


@pytest.fixture(scope="module")
def rows() -> list[Check]:
    return list(exact.checks())


def broken(checks: Iterable[Check]) -> set[str]:
    return {check.name for check in checks if not check.holds}


def test_all_hold(rows: list[Check]) -> None:
    assert broken(rows) == set()


def test_every_claim_has_checks_of_distinct_names(rows: list[Check]) -> None:
    assert {row.id for row in rows} == {"C7", "C13", "C14", "C15", "C16"}
    assert len({row.name for row in rows}) == len(rows)
    assert all(row.quantity and row.setting for row in rows)


def test_what_is_not_a_number_does_not_hold() -> None:
    row = Check("C0", "name", "quantity", "setting", 1.0, 1.1, 0.2)
    assert row.holds
    assert not replace(row, measured=1.3).holds
    assert not replace(row, measured=math.nan).holds
    assert not replace(row, measured=math.inf).holds


def test_a_norm_of_another_kind_breaks_the_jacobians_law() -> None:
    for norm, kind in ((nn.RMSNorm(16, eps=1e-30), "layernorm"), (nn.LayerNorm(16, eps=1e-30), "rmsnorm")):
        names = {f"{kind}_{name}_d16" for name in ("spectral_norm", "smallest_nonzero", "rank", "shift")}
        assert broken(jacobian.of_norm(norm.double(), kind, 16)) == names


def test_eps_or_gain_break_the_jacobians_law() -> None:
    assert "layernorm_scale_exponent_d16" in broken(jacobian.of_norm(nn.LayerNorm(16, eps=1.0).double(), "layernorm", 16))
    gained = nn.LayerNorm(16, eps=1e-30).double()
    with torch.no_grad():
        gained.weight[0] = 2.0
    assert "layernorm_spectral_norm_d16" in broken(jacobian.of_norm(gained, "layernorm", 16))


def test_singular_values_of_a_linear_map_are_its_matrix_own() -> None:
    linear = nn.Linear(3, 3, bias=False).double()
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[0.0, 3.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, -2.0]]))
    value_D = jacobian.singular_values(linear, torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(value_D, torch.tensor([3.0, 2.0, 0.5], dtype=torch.float64))


def test_block_with_another_width_or_biases_has_other_counts() -> None:
    for count in parameters.COUNTS:
        assert parameters.of_block("pre", count).holds
        assert not parameters.of_block("pre", replace(count, bias=not count.bias)).holds
        other = "gelu" if count.ffn == "swiglu" else "swiglu"
        same = count.width == 768 and not count.bias  # 8 d / 3 is whole there, and without biases both have 12 d² + 2 d
        assert parameters.of_block("pre", replace(count, ffn=other)).holds is same


def test_a_placement_that_owns_two_norms_breaks_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placements, "find", lambda _name: TwoNorms)
    assert not any(parameters.of_block("pre", count).holds for count in parameters.COUNTS)
    assert not parameters.final_norm().holds
    assert not parameters.gpt2_small().holds


def test_the_other_placement_breaks_the_identity_path() -> None:
    assert broken(identity_path.of_identity(PostLN)) == {"pre_gradient_0", "pre_gradient_1", "pre_output_0", "pre_output_1"}
    assert broken(identity_path.of_post(PreLN)) == {"post_gradient_0", "post_gradient_1", "post_gradient_deviation"}


def test_gradient_past_two_layer_norms_of_two_features_matches_finite_differences() -> None:
    def output(a: float, b: float) -> float:
        for delta in identity_path.DELTAS.values():
            a, b = a + delta[0], b + delta[1]
            mean = (a + b) / 2
            std = math.sqrt(((a - mean) ** 2 + (b - mean) ** 2) / 2 + 1e-5)
            a, b = (a - mean) / std, (b - mean) / std
        return 2 * a + 3 * b

    h = 1e-3
    slope = (8 * (output(1 + h, 1) - output(1 - h, 1)) - (output(1 + 2 * h, 1) - output(1 - 2 * h, 1))) / (12 * h)
    assert identity_path.post_gradient()[0] == pytest.approx(slope, rel=1e-3)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_the_other_norm_first_is_another_function(placement: str) -> None:
    block, other = encoder.perturbed_block(placement), {"pre": "post", "post": "pre"}[placement]
    names = {f"{placement}_{what}{suffix}" for what in ("output", "input_gradient") for suffix in ("", "_swapped")}
    assert broken(encoder.of_block(block, placement)) == set()
    assert broken(encoder.of_block(encoder.perturbed_block(other), placement)) == names


def test_torch_is_compared_with_all_weights() -> None:
    block = encoder.perturbed_block("pre")
    for name, _ in list(block.named_parameters()):
        if name.endswith("wk.bias"):  # shifts all logits of a query alike
            continue
        layer = encoder.encoder_layer(block, norm_first=True)
        changed = encoder.perturbed_block("pre")
        with torch.no_grad():
            changed.get_parameter(name).mul_(1.01)
        assert encoder.parity(changed, layer)[0] > 1e-6, name


def test_shapes_are_checked_for_every_placement(rows: list[Check]) -> None:
    known = modules_in(Path(placements.__file__).parent)
    assert {row.name for row in rows if row.id == "C16"} == {f"{name}_shape" for name in known}


def test_a_placement_that_drops_a_token_or_a_stream_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = shape.DEPTH * len(shape.SIZES) * len(shape.BRANCHES)
    for wrong, count in ((DropsToken, blocks), (DropsStream, blocks), (TwoNorms, 0)):
        monkeypatch.setattr(placements, "find", lambda _name, wrong=wrong: wrong)
        assert shape.violations("any") == count
        assert shape.of_placement("any").holds is (count == 0)


def test_command_writes_rows_with_commit_and_versions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--results", str(tmp_path / "new")]) == 0
    record = json.loads((tmp_path / "new" / "exact.json").read_text())
    assert record.keys() == {"schema", "commit", "versions", "checks"}
    assert torch.__version__.startswith(record["versions"]["torch"].partition("+")[0])
    fields = {"id", "name", "quantity", "setting", "expected", "measured", "tolerance"}
    assert all(row.keys() == fields for row in record["checks"])
    assert all(isinstance(row[key], float) for row in record["checks"] for key in ("expected", "measured", "tolerance"))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["exact.json"]
    assert "not as expected" not in capsys.readouterr().out


def test_command_names_what_does_not_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "CLAIMS", (identity_path,))
    monkeypatch.setattr(identity_path, "OUTPUT", (1.4, 1.2))
    assert main(["--results", str(tmp_path)]) == 0
    assert "not as expected: C14 pre_output_1" in capsys.readouterr().out


def test_results_that_cannot_be_written_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["--results", str(tmp_path / "file" / "results")]) == 1
    assert "cannot be written" in capsys.readouterr().err


class TwoNorms(Placement):
    """x + norm(f(norm(x)))."""

    final_norm = False

    def __init__(self, make_norm, site) -> None:
        super().__init__(make_norm, site)
        self.norm, self.norm2 = make_norm(site.width), make_norm(site.width)

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        return stream + self.norm2(branch(self.norm(stream)))


class DropsToken(Placement):
    """Attends to all tokens and returns one less, or an empty stream."""

    final_norm = False

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        return (stream + branch(stream))[:, 1:]


class DropsStream(Placement):
    """Two streams enter a block, one leaves it."""

    final_norm = False

    def forward(self, stream, branch: Branch):
        return (branch(stream[0]),)

    def enter(self, x_BTD: Tensor):
        return x_BTD, x_BTD

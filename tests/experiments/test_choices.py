"""A choice that conf/ does not have, or a norm's file that cannot be used, is one line that names it and the remedy."""

from pathlib import Path

import pytest

from experiments import choices
from experiments.choices import check_choices
from experiments.config import ConfigError

WHOLE = 'name: mine\nplacement: mine\nlabel: Mine\ncolor: "#123456"\nlinestyle: "-"\n'


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for group, names in {"norm": ("pre", "post"), "model": ("gpt2",), "factor": ()}.items():
        (tmp_path / "conf" / group).mkdir(parents=True)
        for name in names:
            (tmp_path / "conf" / group / f"{name}.yaml").write_text(WHOLE)
    monkeypatch.setattr(choices, "CONF", tmp_path / "conf")
    return tmp_path / "conf"


@pytest.mark.usefixtures("conf")
@pytest.mark.parametrize(
    "override", ["norm=pre", "norm=pre,post", "+norm='pre'", "norm=glob(*)", "factor=init/base", "study=null", "model.depth=3"]
)
def test_what_is_there_is_no_complaint(override: str) -> None:
    check_choices([override])


@pytest.mark.usefixtures("conf")
@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("norm=pots", "norm=pots is not known; did you mean post? known are: post, pre"),
        ("norm=pre,mix", "norm=mix is not known; known are: post, pre"),
        ("model=gpt9", "model=gpt9 is not known; did you mean gpt2? known are: gpt2"),
        ("norm=[pre,post]", "norm=[pre,post] is a list; choose one, as norm=pre, or sweep them with -m"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(override: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_choices(["seed=1", override])
    assert str(raised.value) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: [", "cannot be read: "),
        ("", "holds no options; write name, placement"),
        ("- 1\n", "holds no options"),
        (WHOLE + "colour: red\n", "colour is no option; options are: name, placement, kind"),
        (WHOLE.replace("label: Mine\n", ""), "label is missing"),
    ],
)
def test_a_norms_file_that_cannot_be_used_says_why(conf: Path, text: str, words: str) -> None:
    (conf / "norm" / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        check_choices(["norm=pre,mine"])
    assert str(raised.value).startswith(f"conf/norm/mine.yaml: {words}")
    assert "\n" not in str(raised.value)
    check_choices(["norm=pre"])

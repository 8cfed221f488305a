"""The conformance kit: laws that every variant in conf/norm obeys. ``make check NORM=mine`` runs it on one."""

import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from compose import config as composed
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from summary import Summary, reason

from experiments.choices import check_choices
from experiments.config import CONF, ConfigError
from experiments.trial import check_variants
from experiments.validation import validate

VARIANTS = sorted(path.stem for path in (CONF / "norm").glob("*.yaml"))
FOLDER = "tests/conformance/"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--norm", default="", metavar="NAME,...", help="only the laws, for these variants of conf/norm")
    group.addoption("--laws", action="store_true", help="print them law by law")


def chosen(config: pytest.Config) -> list[str]:
    """Variants that the command line asks for; all if it names none."""
    asked = [name for name in config.getoption("--norm", "").split(",") if name]
    return [name for name in VARIANTS if name in asked] if asked else VARIANTS


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    for error in complaints(config):
        print(f"error: {error}", file=sys.stderr)
        return 1
    return None


def complaints(config: pytest.Config) -> Iterator[str]:
    """What keeps the laws from being tried at all, in one line each."""
    for name in config.getoption("--norm", "").split(","):
        if name and name not in VARIANTS:
            yield f"NORM={name} is not known; known are: {', '.join(VARIANTS)}"
    for name in chosen(config) if config.getoption("--laws", False) else []:
        try:
            check_choices([f"norm={name}"])
            cfg = composed(f"norm={name}")
            validate(cfg)
            check_variants([cfg])
            if not (cfg.norm.equation.x and cfg.norm.equation.out):
                yield f"conf/norm/{name}.yaml has no equation; add what its class computes, as conf/norm/pre.yaml does"
        except ConfigError as error:
            yield str(error)
        except (HydraException, OmegaConfBaseException) as error:
            yield f"conf/norm/{name}.yaml: {str(error).strip().splitlines()[0]}"


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--laws", False):
        summary = Summary(config, chosen(config))
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(summary, "terminalreporter")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "variant" in metafunc.fixturenames:
        metafunc.parametrize("variant", chosen(metafunc.config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where variants are asked for, or sentences, only the laws; each variant's together."""
    if not config.getoption("--norm", "") and not config.getoption("--laws", False):
        return
    laws = [item for item in items if is_law(item)]
    config.hook.pytest_deselected(items=[item for item in items if not is_law(item)])
    items[:] = sorted(laws, key=lambda item: VARIANTS.index(item.callspec.params["variant"]))


def is_law(item: pytest.Item) -> bool:
    return item.nodeid.startswith(FOLDER) and "variant" in getattr(getattr(item, "callspec", None), "params", {})


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """More only wait for each other at these sizes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Adds a line to what the summary says about a law."""
    request.node.notes = []
    return request.node.notes.append


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    report = yield
    if is_law(item):
        law = " ".join((item.function.__doc__ or item.name).split())
        report.user_properties = [("variant", item.callspec.params["variant"]), ("law", law)]
        if call.excinfo is not None:
            report.user_properties.append(("reason", reason(call.excinfo.value)))
        if getattr(item, "notes", []):
            report.user_properties.append(("notes", "\n".join(dict.fromkeys(item.notes))))
    return report

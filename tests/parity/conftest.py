"""Other people's code: offline, and imported only where slow tests are wanted, as the imports take seconds."""

import os
from collections.abc import Iterator

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    return True if "not slow" in config.option.markexpr else None


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    """Their models draw their weights from torch's global generator."""
    import torch  # noqa: PLC0415

    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield

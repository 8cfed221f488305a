"""Laws that hold to rounding, without training or statistics; one module a claim.

Float64, on the CPU. Each check is a number with an expectation from a closed form that uses nothing of the model, or from an
implementation not ours; the analysis judges |measured - expected| <= tolerance.
"""

from collections.abc import Iterator

from experiments.exact import encoder, identity_path, jacobian, parameters, shape
from experiments.exact.check import Check

CLAIMS = (jacobian, parameters, identity_path, encoder, shape)


def checks() -> Iterator[Check]:
    """Every exact check, by claim."""
    for claim in CLAIMS:
        yield from claim.checks()

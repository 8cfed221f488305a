"""The ledger: claims as entries. Adding a claim is adding an entry to one of the modules; nothing else is edited."""

import re

from analysis.ledger import collapse, exact, gradients, stream, training, variants
from analysis.ledger.entry import Claim, Test

__all__ = ["CLAIMS", "Claim", "Test"]


def _place(claim: Claim) -> tuple[int, str]:
    number = re.search(r"\d+", claim.id)
    return int(number.group()) if number else 0, claim.id


MODULES = (gradients, collapse, stream, training, variants, exact)
CLAIMS: tuple[Claim, ...] = tuple(sorted((claim for module in MODULES for claim in module.CLAIMS), key=_place))

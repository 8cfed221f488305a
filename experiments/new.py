"""Two files of a new norm variant, after those of one that is there: ``python -m experiments.new mine --from pre``."""

import argparse
import ast
import keyword
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from experiments.config import CONF, PACKAGE, ConfigError

ROOT = PACKAGE.parent
NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
READ_OTHERWISE = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})
# Tol's muted colours, then Okabe and Ito's without their yellow, last their light blue, which warmup's tint of Pre-LN is near.
COLORS = (
    *("#882255", "#999933", "#44AA99", "#117733", "#AA4499", "#332288"),
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#000000", "#56B4E9"),
)
LINESTYLES = ("-", "--", "-.", ":", "(0, (5, 1))", "(0, (3, 1, 1, 1))", "(0, (1, 1))")
LONGEST = 110  # characters of a line in a docstring
TODO = "TODO the formula and its source (paper, equation)"


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0 when both files are written, 1 when none is."""
    parser = argparse.ArgumentParser(prog="python -m experiments.new", description=__doc__)
    parser.add_argument("name", help="of the new variant")
    parser.add_argument("--from", dest="source", default="pre", help="variant whose files it starts from (default: pre)")
    given = parser.parse_args(arguments)
    try:
        texts = files(given.name, given.source)
        write(texts)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path in texts:
        print(f"wrote {path.relative_to(ROOT)}")
    print(next_steps(given.name, given.source))
    return 0


def next_steps(name: str, source: str) -> str:
    steps = {
        "edit both": f"they are {source} as yet; the class computes what the YAML's equation says",
        f"make check NORM={name}": "law by law, whether it does",
        f"make depthcheck NORM={name}": "what depth does to it at initialisation",
        f"make quick ARGS=norm={source},{name}": f"trained beside {source}, with figures",
    }
    width = max(map(len, steps))
    return "next:\n" + "\n".join(f"  {step:<{width}}  {why}" for step, why in steps.items())


def files(name: str, source: str) -> dict[Path, str]:
    """Path -> text of the class and of the YAML file. ConfigError if the name cannot be taken or the source is not there."""
    if not NAME.fullmatch(name):
        raise ConfigError(f"NORM={name} is no name of a module; use small letters, digits and _, 41 at most, a letter first")
    if name in READ_OTHERWISE or keyword.iskeyword(name):
        raise ConfigError(f"NORM={name} is a word of Python, YAML or the command line; choose another name")
    norms = {path.stem: _norm(path) for path in sorted((CONF / "norm").glob("*.yaml"))}
    if source not in norms:
        raise ConfigError(f"FROM={source} is not known; known are: {', '.join(norms)}")
    paths = PACKAGE / "placements" / f"{name}.py", CONF / "norm" / f"{name}.yaml"
    for path in paths:
        if path.exists():
            raise ConfigError(f"{path.relative_to(ROOT)} is there already; choose another name, as NORM={name}_2")
    yaml = (CONF / "norm" / f"{source}.yaml").read_text(encoding="utf-8")
    return {paths[0]: class_of(name, source, norms[source]), paths[1]: yaml_of(name, source, yaml, norms)}


def _norm(path: Path) -> DictConfig:
    try:
        found = OmegaConf.load(path)
    except Exception as error:  # whatever a parser says of somebody's file
        raise ConfigError(f"{path.relative_to(ROOT)} cannot be read: {' '.join(str(error).split())}") from None
    return found if isinstance(found, DictConfig) else OmegaConf.create({})


def class_of(name: str, source: str, norm: DictConfig) -> str:
    """The module of another variant's placement with its class renamed, and docstrings that say what is to be done."""
    path = PACKAGE / "placements" / f"{norm.get('placement')}.py"
    try:
        python = path.read_text(encoding="utf-8")
        module = ast.parse(python)
    except (OSError, SyntaxError) as error:
        raise ConfigError(f"FROM={source}: {path.relative_to(ROOT)} cannot be read: {error}") from None
    classes = [n for n in module.body if isinstance(n, ast.ClassDef) and "Placement" in map(ast.unparse, n.bases)]
    if len(classes) != 1:
        raise ConfigError(f"FROM={source}: {path.relative_to(ROOT)} defines {len(classes)} Placement classes; make it one")
    lines = python.splitlines()
    for node, text in ((classes[0], class_docstring(source, norm)), (module, [f'"""{TODO}."""'])):  # the later first
        first = node.body[0]
        if ast.get_docstring(node) is not None:
            lines[first.lineno - 1 : first.end_lineno] = text
    return re.sub(rf"\b{classes[0].name}\b", title(name, module), "\n".join(lines) + "\n")


def title(name: str, module: ast.Module) -> str:
    """The class's name: the words of the module's name, unless the module imports something of that name."""
    imports = [node for node in ast.walk(module) if isinstance(node, ast.Import | ast.ImportFrom)]
    words = "".join(part.capitalize() for part in name.split("_"))
    return f"{words}Norm" if words in {alias.asname or alias.name for node in imports for alias in node.names} else words


def class_docstring(source: str, norm: DictConfig) -> list[str]:
    formula = (norm.get("equation") or {}).get("x", "")
    text = textwrap.wrap(f"So far it is {source}: {formula}.", LONGEST, break_long_words=False)
    return [f'    """{TODO}.', "", *(f"    {line}" for line in text), '    """']


def yaml_of(name: str, source: str, yaml: str, norms: Mapping[str, DictConfig]) -> str:
    """Another variant's YAML file with its own name, label, colour and line style."""
    color, linestyle = _free_line(norms)
    words = name.replace("_", " ").capitalize()
    label = words if words not in {norm.get("label") for norm in norms.values()} else f"{words} ({name})"
    own = {"name": name, "placement": name, "label": label, "color": f'"{color}"', "linestyle": f'"{linestyle}"'}
    lines = yaml.splitlines()
    while lines and lines[0].startswith("#"):
        lines.pop(0)
    kept = [line for line in lines if line.partition(":")[0] not in own]
    head = f"# {TODO}, and whether there is a final norm; so far it is {source}"
    return "\n".join([head, *(f"{key}: {value}" for key, value in own.items()), *kept]) + "\n"


def _free_line(norms: Mapping[str, DictConfig]) -> tuple[str, str]:
    """The rarest colour, with a line style that no variant has beside it."""
    taken = {(str(norm.get("color")).upper(), norm.get("linestyle")) for norm in norms.values()}
    uses = Counter(color for color, _ in taken)
    color = min(COLORS, key=lambda color: uses[color])
    dashes = (f"(0, ({n}, 2))" for n in count(2))
    return color, next(style for style in chain(LINESTYLES, dashes) if (color, style) not in taken)


def write(texts: Mapping[Path, str]) -> None:
    """All files or none; never over one that is there."""
    begun: list[Path] = []
    try:
        for path, text in texts.items():
            with path.open("x", encoding="utf-8") as file:
                begun.append(path)
                file.write(text)
    except BaseException as error:
        for path in begun:
            path.unlink()
        if isinstance(error, OSError):
            raise ConfigError(f"{error.filename}: {error.strerror}; nothing was written") from None
        raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

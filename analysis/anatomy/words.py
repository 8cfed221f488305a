"""What stands in the boxes and beside the lines of an anatomy, in matplotlib's mathematical notation where it helps."""

import re

from analysis.anatomy.graph import Graph, Node, Shape

GREEK = {
    *("alpha", "beta", "gamma", "delta", "epsilon", "eta", "theta", "lambda", "mu"),
    *("rho", "sigma", "tau", "phi", "psi", "omega"),
}
MATRICES = {"wq": "W_Q", "wk": "W_K", "wv": "W_V", "wo": "W_O", "w1": "W_1", "w2": "W_2", "wg": "W_G"}
LETTERS = dict.fromkeys(("l", "block", "layer"), r"\ell")  # the number of the block
HEADS = {"wq": "Q", "wk": "K", "wv": "V"}
NORMS = {"LN": "LayerNorm"}
BRANCHES = {"attn": "Causal self-attention", "cross": "Cross-attention", "ffn": "Feed-forward"}
INKED = {"add": "", "product": r"entrywise product  $\odot$", "values": r"weighted sum  $AV$", "rotary": "rotary positions"}


def symbol(name: str) -> str:
    """A name in mathematical notation: a Greek letter, a single letter, or an upright word; what follows ``_`` is set low."""
    if name in LETTERS:
        return LETTERS[name]
    if (call := re.fullmatch(r"(\w+)\((.+)\)", name)) is not None:
        return rf"\sqrt{{{symbol(call[2])}}}" if call[1] == "sqrt" else rf"{symbol(call[1])}({symbol(call[2])})"
    head, _, tail = name.partition("_")
    letter = "\\" + head if head in GREEK else head if len(head) == 1 else rf"\mathrm{{{head}}}"
    return rf"{letter}_{{\mathrm{{{tail.replace('_', ' ')}}}}}" if tail else letter


def text(graph: Graph, node: Node) -> str:
    """What stands in a node's box."""
    match node.kind:
        case "linear":
            said = f"${MATRICES.get(node.name, symbol(node.name))}$"
        case "norm":
            said = NORMS.get(node.label, node.label)
        case "scores":
            width = graph.carried[graph.inputs[node.id][0], node.id][-1][-1]
            said = rf"scores  $QK^{{\mathrm{{T}}}} / \sqrt{{{width}}}$"
        case "softmax":
            said = "causal mask + softmax" if graph.branches[node.join or 0] == "attn" else "softmax"
        case "scale":
            said = scale(node)
        case "memory":
            said = f"memory  {shape(node.shape)}"
        case _:
            said = INKED.get(node.kind, node.label)
    return said


def scale(node: Node) -> str:
    """``x alpha`` or ``/ alpha``; the value where the constant has no name."""
    what = symbol(node.constant) if node.constant else f"{node.value:.3g}" if node.value is not None else r"\mathrm{constant}"
    return rf"$/\,{what}$" if node.divides else rf"$\times\,{what}$"


def value(node: Node) -> str:
    """What is known of a scale's number: ``alpha = 2.213``, ``learnt, from 0``."""
    if node.learnt:
        return "learnt" if node.value is None else f"learnt, from {node.value:g}"
    return f"${symbol(node.constant)}$ = {node.value:.4g}" if node.constant and node.value is not None else ""


def shape(found: Shape) -> str:
    """``(B, T, 768)``."""
    return f"({', '.join(map(str, found))})"


def edge(graph: Graph, source: int, target: int) -> str:
    """The shapes that an edge carries; with an arrow where the heads are put side by side on the way."""
    shapes = graph.carried[source, target]
    joins_heads = len(shapes) == 2 and len(shapes[0]) > len(shapes[1])
    return " → ".join(map(shape, shapes if joins_heads else shapes[-1:]))


def heading(graph: Graph, join: int) -> str:
    """``Causal self-attention, 12 heads``."""
    name = BRANCHES.get(graph.branches[join], graph.branches[join])
    scores = [node for node in graph.nodes.values() if node.join == join and node.kind == "scores"]
    return f"{name}, {scores[0].shape[1]} heads" if scores else name

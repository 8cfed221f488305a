"""What the steps of a ledger are called, and what is said of them."""

from collections.abc import Sequence

from experiments.ledger.graph import Part, Parts
from experiments.ledger.parts import TURNS

ORDINALS = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth")
HEADS = {"wq": "Q", "wk": "K", "wv": "V"}
MATRICES = {"wq": "W_Q", "wk": "W_K", "wv": "W_V", "wo": "W_O", "w1": "W_1", "w2": "W_2", "wg": "W_G"}
NORM_NOTES = {
    "LN": "mean 0 and variance 1 over {over}",
    "RMSNorm": "mean square 1 over {over}",
    "DyT": "tanh(alpha x), entry by entry, alpha learnt",
    "L2 norm": "length 1 over {over}",
}
LEARNT = {"weight": "gain", "bias": "bias", "scale": "a learnt scale"}
INSIDE = {"memory": "Memory", "scores": "Scaled dot products", "values": "Value aggregation", "product": "Gate"}


class Namer:
    """Names the steps of one block. branches : kind of branch of each join. streams : names."""

    def __init__(self, graph: Parts, branches: Sequence[str], streams: Sequence[str]) -> None:
        self.parts, self.branches, self.streams = graph.parts, branches, streams
        norms = [part for part in graph.parts if part.kind == "norm" and not part.inside]
        self.norms = {part.id: f"{part.label}{number}" for number, part in enumerate(norms, start=1)}
        self.sums: dict[int, tuple[int, str]] = {}  # of each add on a stream: which one, and the name of its result
        for stream, name in enumerate(streams):
            adds = [part for part in graph.parts if part.kind == "add" and part.stream == stream]
            self.sums |= {part.id: (number, f"{name}{number}") for number, part in enumerate(adds, start=1)}

    def operation(self, row: Sequence[Part]) -> str:
        """What a step does, by name."""
        return self._operation_inside(row) if row[0].inside else self._operation_outside(row)

    def note(self, row: Sequence[Part]) -> str:
        """What the shapes of a step do not say."""
        if row[0].kind == "norm":
            return self._norm_note(row)
        return self._note_inside(row) if row[0].inside else self._note_outside(row)

    def _operation_outside(self, row: Sequence[Part]) -> str:
        part = row[0]
        match part.kind:
            case "input":
                text = f"Block input {', '.join(self.streams[int(found.name)] for found in row)}"
            case "norm":
                text = f"{self.norms[part.id]}({self._inner(part)})"
            case "add" if part.id in self.sums:
                which = ORDINALS[min(self.sums[part.id][0], len(ORDINALS)) - 1]
                to = f" to {self.streams[part.stream or 0]}" if len(self.streams) > 1 else ""
                text = f"{which} residual add{to}"
            case "scale":
                text = f"{'Divide' if part.divides else 'Multiply'} by {constant(part)}"
            case "fresh":
                text = f"Set {self.streams[part.stream or 0]} to {part.label}"
            case _:
                text = (part.label or part.name).capitalize()
        return text

    def _operation_inside(self, row: Sequence[Part]) -> str:
        part, of = row[0], self._of(row)
        match part.kind:
            case "norm":
                text = f"{part.label} {of or f'before {self._reader(part)}'}"
            case "linear":
                text = self._linear(row)
            case "rotary":
                text = f"Rotary positions {of}"
            case "reshape":
                text = f"{self._reshape(part)} {of if len(row) < len(HEADS) else ''}".rstrip()
            case "softmax":
                text = "Causal mask + softmax" if _masked(part) else "Softmax"
            case "activation":
                text = f"Activation {part.label}"
            case _:
                text = INSIDE.get(part.kind, (part.label or part.name).capitalize())
        return text

    def _note_outside(self, row: Sequence[Part]) -> str:
        part = row[0]
        match part.kind:
            case "input":
                many = f"{len(row)} residual streams; branches read {self.streams[0]}"
                text = "the residual stream" if len(row) == 1 else many
            case "add" | "product":
                text = self._sum(part)
            case "scale" if part.learnt:
                text = "learnt" if part.value is None else f"learnt, starts at {part.value:g}"
            case "scale":
                text = "a constant of the placement"
            case _:
                text = ""
        return text

    def _note_inside(self, row: Sequence[Part]) -> str:
        part = row[0]
        match part.kind:
            case "memory":
                text = f"{part.shape[1].plain} fixed tokens, the same for every sequence"
            case "linear":
                text = self._linear_note(row)
            case "rotary":
                text = "turns pairs of features by an angle that grows with the position"
            case "reshape":
                text = self._reshape_note(part)
            case "scores":
                text = f"Q K^T / sqrt({self.parts[part.inputs[0]].shape[-1].plain})"
            case "softmax":
                text = f"each token weighs {'itself and those before' if _masked(part) else 'the memory'}"
            case "values":
                text = "weights times V"
            case "product":
                text = self._sum(part)
            case "activation":
                text = "entry by entry"
            case _:
                text = ""
        return text

    def _norm_note(self, row: Sequence[Part]) -> str:
        """What it normalises, and what it learns: gain, bias, scale."""
        part = row[0]
        over = ("all heads together" if part.axes > 1 else "each head") if len(part.shape) == 4 else "the features"
        names = {path.rpartition(".")[2] for found in row for path in found.parameters}
        learnt = [word for name, word in LEARNT.items() if name in names]
        text = NORM_NOTES[part.label].format(over=over)
        return text + (f"; {' and '.join(learnt)}" if learnt else "")

    def _sum(self, part: Part) -> str:
        """``x1 = x + attn``."""
        text = (" + " if part.kind == "add" else " * ").join(self._value(i) for i in part.inputs)
        return f"{self.sums[part.id][1]} = {text}" if part.id in self.sums else text

    def _inner(self, part: Part) -> str:
        return ", ".join(self._value(i) for i in part.inputs)

    def _value(self, number: int) -> str:
        """A part's result in terms of the streams, the sums on them, the norms and the branches."""
        part = self.parts[number]
        match part.kind:
            case _ if part.inside:
                text = self._inside_value(part)
            case "input":
                text = self.streams[int(part.name)]
            case "add":
                text = self.sums[number][1] if number in self.sums else f"({self._sum(part)})"
            case "norm":
                text = self.norms[number]
            case "scale":
                name, inner = part.constant or constant(part), self._inner(part)
                text = f"{inner} / {name}" if part.divides else f"{name} {inner}"
            case _:
                text = f"{part.label or part.name}({self._inner(part)})"
        return text

    def _inside_value(self, part: Part) -> str:
        """Of a branch, only its result has a name outside."""
        names = {"activation": part.label, "linear": MATRICES.get(part.name, part.name)}
        last = all(part.id not in other.inputs for other in self.parts if other.inside)
        return self.branches[part.join or 0] if last else names.get(part.kind, part.kind)

    def _linear(self, row: Sequence[Part]) -> str:
        names = [part.name for part in row]
        if set(names) <= HEADS.keys():
            return f"{', '.join(HEADS[name] for name in names)} projection{'s' if len(row) > 1 else ''}"
        matrices = ", ".join(MATRICES.get(name, name) for name in names)
        if names == ["wo"]:
            return f"Output projection {matrices}"
        return f"FFN {'projection' if names == ['w2'] else 'expansion'} {matrices}" if self._ffn(row) else f"Linear {matrices}"

    def _linear_note(self, row: Sequence[Part]) -> str:
        biases = sum(path.endswith(".bias") for part in row for path in part.parameters)
        with_bias = f"with {'biases' if biases > 1 else 'bias'}" if biases else "no bias"
        if self._ffn(row):
            wide = self.parts[row[0].inputs[0]].shape[-1].factor
            ratio = row[0].shape[-1].factor / wide
            return f"{ratio:.3g} times as wide, {with_bias}" if ratio > 1 else f"back to the width, {with_bias}"
        return f"mixes the heads, {with_bias}" if row[0].name == "wo" else with_bias

    def _ffn(self, row: Sequence[Part]) -> bool:
        return self.branches[row[0].join or 0] == "ffn"

    def _reshape(self, part: Part) -> str:
        given, turned = len(self.parts[part.inputs[0]].shape), bool(TURNS & set(part.operations))
        if given == len(part.shape):
            return "Transpose"
        if len(part.shape) < given:
            return "Transpose & concat" if turned else "Concat"
        return "Reshape & transpose" if turned else "Reshape"

    def _reshape_note(self, part: Part) -> str:
        apart, joined = sorted((part.shape, self.parts[part.inputs[0]].shape), key=len, reverse=True)
        if len(apart) == len(joined):
            return "the heads before the tokens"
        heads = joined[-1].factor // apart[-1].factor
        return f"{heads} heads of width {apart[-1].plain}" + ("" if apart == part.shape else ", side by side")

    def heads(self, part: Part) -> str:
        """Which of Q, K and V a part of attention carries; empty for all else."""
        while part.kind != "linear" and part.inside and len(part.inputs) == 1:
            part = self.parts[part.inputs[0]]
        return HEADS.get(part.name, "") if part.kind == "linear" else ""

    def _of(self, row: Sequence[Part]) -> str:
        names = [name for part in row if (name := self.heads(part))]
        return f"of {', '.join(names)}" if names else ""

    def _reader(self, part: Part) -> str:
        readers = [other for other in self.parts if part.id in other.inputs]
        return MATRICES.get(readers[0].name, readers[0].name) if readers else "the join"


def constant(part: Part) -> str:
    """``alpha = 2.213``, the name alone where each entry has its own value, or the value alone where it has no name."""
    value = "" if part.value is None else f"{part.value:.4g}"
    return " = ".join(text for text in (part.constant or "", value) if text) or "a constant"


def _masked(part: Part) -> bool:
    return len(part.operations) > 1

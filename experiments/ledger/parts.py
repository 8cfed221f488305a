"""Operations gathered into the parts of a block: one for each call of a norm or a linear map, for the scores, the softmax and
the sums over values, and for each sum, product or activation outside of a module."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import nn

from experiments.branches import Rotary
from experiments.ledger import symbols
from experiments.ledger.graph import Part, Parts
from experiments.ledger.operations import ATTENTION, Call, Operation, Recording
from experiments.ledger.symbols import Counts, Shape
from experiments.model import Block
from experiments.norms import DyT, Unit
from experiments.placements.base import Placement

COPIES = {"clone", "detach", "alias", "_to_copy"}  # the same tensor once more
VIEWS = {"view", "_unsafe_view", "reshape", "_reshape_alias", "transpose", "permute", "t", "expand", "unsqueeze", "squeeze"}
TURNS = {"transpose", "permute", "t"}
ACTIVATIONS = {"gelu": "GELU", "silu": "SiLU", "relu": "ReLU", "tanh": "tanh", "sigmoid": "sigmoid"}
NORMS: Mapping[type[nn.Module], str] = {nn.LayerNorm: "LN", nn.RMSNorm: "RMSNorm", DyT: "DyT", Unit: "L2 norm"}
SUMS, PRODUCTS = {"add", "sub"}, {"mul", "div"}
FRESH = {"zeros_like": "0", "ones_like": "1"}  # read of a tensor nothing but its shape


class Place(NamedTuple):
    """Where an operation happens: in the turn of which join, inside its branch or not, and in which module of either."""

    join: int
    inside: bool
    child: Call | None


class Gatherer:
    """Builds the graph of a block recorded at symbols.PAIRS. values: of constants, by their path in the block."""

    def __init__(self, recordings: Sequence[Recording], block: Block, values: Mapping[str, float]) -> None:
        self.recordings, self.first, self.values = recordings, recordings[0], values
        self.modules: dict[str, nn.Module] = dict(block.named_modules())
        self.learnt = {path for path, _ in block.named_parameters()}
        self.counted: set[str] = set()
        self.parts: list[Part] = []
        self.by_key: dict[tuple[str, int], Part] = {}
        self.source: dict[int, Part] = {}  # tensor -> the part it comes from
        self.made_of: dict[int, frozenset[str]] = {}  # constant tensor -> the stored ones it derives from
        self.formula: dict[int, str] = {}  # constant tensor -> what it is called
        for number, tensor in enumerate(self.first.streams):
            self.source[tensor] = self._new("input", str(number), None, False, tensor)
        for tensor, path in self.first.stored.items():
            match path.split("."):
                case ["branches", join, name] if path not in self.learnt and len(self.first.sizes[tensor]) > 1:
                    self.source[tensor] = self._new("memory", name.partition("_")[0], int(join), True, tensor)
                case _:
                    self.made_of[tensor], self.formula[tensor] = frozenset({path}), path.rpartition(".")[2]

    def gather(self) -> Parts:
        for index, operation in enumerate(self.first.operations):
            self._add(index, operation)
        outputs = [[self.source[tensor].id for tensor in self.first.joins[join]] for join in sorted(self.first.joins)]
        for join, found in enumerate(outputs):
            for stream in reversed(range(len(found))):
                for part in self._past_the_branch(join, found[stream]):
                    part.stream = stream
        return Parts(self.parts, outputs)

    def _add(self, index: int, operation: Operation) -> None:
        """Give an operation to its part; one on constants only waits for the operation that reads its result."""
        data = [self.source[tensor] for tensor in operation.inputs if tensor in self.source]
        stored = frozenset[str]().union(*(self.made_of.get(tensor, frozenset()) for tensor in operation.inputs))
        if not data:
            self.made_of.update(dict.fromkeys(operation.outputs, stored))
            self.formula[operation.outputs[0]] = f"{operation.name}({', '.join(map(self._called, operation.inputs))})"
            return
        place = self._place(operation)
        part = data[0] if self._passes(operation, place, data[0]) else self._part(place, index, operation, data)
        self.source.update(dict.fromkeys(operation.outputs, part))
        data = [] if part.kind == "fresh" else data
        part.inputs += [i for i in dict.fromkeys(found.id for found in data) if i not in {*part.inputs, part.id}]
        part.operations.append(operation.name)
        part.shape = self._shape(operation.outputs[0])
        part.flops = symbols.total([part.flops, self._flops(index)])
        new = sorted((stored & self.learnt) - self.counted)
        part.parameters += new
        self.counted.update(new)

    def _place(self, operation: Operation) -> Place:
        paths = [call.path for call in operation.calls]
        joins = [i for i, path in enumerate(paths) if isinstance(self.modules.get(path), Placement)]
        branches = [i for i, path in enumerate(paths) if path.startswith("branches.") and path.count(".") == 1]
        join = int(paths[joins[0]].split(".")[1])
        below = operation.calls[(branches or joins)[-1] + 1 :]
        return Place(join, bool(branches), below[0] if below else None)

    @staticmethod
    def _passes(operation: Operation, place: Place, part: Part) -> bool:
        """Whether the operation only hands a tensor on: a copy, or a view outside of a branch or of a memory."""
        here = place.child is None and (operation.name in COPIES or (operation.name in VIEWS and not place.inside))
        return here or (part.kind == "memory" and place.child is None and operation.name in VIEWS)

    def _part(self, place: Place, index: int, operation: Operation, data: list[Part]) -> Part:
        if place.child is not None and place.child.path == ATTENTION:
            return self._attention(place, place.child, operation)
        if place.child is not None:
            part = self._once(("call", place.child.number), *self._of_module(place.child.path), place)
            part.axes = _axes(self._inner(place.child.path))
            return part
        if operation.name in VIEWS:
            reshaped = data[0].kind == "reshape"
            return data[0] if reshaped else self._once(("operation", index), "reshape", "", "", place)
        part = self._once(("operation", index), *_of_operation(operation, len({found.id for found in data})), place)
        if part.kind == "scale":
            self._constant(part, operation, place)
        return part

    def _attention(self, place: Place, call: Call, operation: Operation) -> Part:
        """The scores end at the first matrix product, views included; the weights at the softmax."""
        phases = [self.by_key.get((phase, call.number)) for phase in ("scores", "softmax")]
        scored, weighted = (
            (part is not None and mark(part)) for part, mark in zip(phases, (_has_product, _has_softmax), strict=True)
        )
        if weighted:
            phase = "values"
        elif scored and not (operation.name in VIEWS and phases[1] is None):
            phase = "softmax"
        else:
            phase = "scores"
        return self._once((phase, call.number), phase, "", "", place)

    def _of_module(self, path: str) -> tuple[str, str, str]:
        """Kind, name and label of a module's part."""
        inner, name = self._inner(path), path.rpartition(".")[2]
        if isinstance(inner, nn.Linear):
            return "linear", name, ""
        if isinstance(inner, Rotary):
            return "rotary", name, ""
        label = NORMS.get(type(inner))
        return ("norm", name, label) if label else ("other", name, type(inner).__name__)

    def _inner(self, path: str) -> nn.Module:
        """A module without the gauge before it."""
        module = self.modules[path]
        return module[-1] if isinstance(module, nn.Sequential) else module

    def _constant(self, part: Part, operation: Operation, place: Place) -> None:
        """Name and value of the number by which a part multiplies or divides."""
        part.divides = operation.name == "div"
        join = self.modules[f"joins.{place.join}"]
        for tensor in operation.inputs:
            if tensor in self.made_of:
                part.constant = self._called(tensor)
                part.learnt = bool(self.made_of[tensor] & self.learnt)
                known = self.values.get(self.first.stored.get(tensor, ""))
                later = part.learnt and isinstance(join, Placement) and type(join).calibrate is not Placement.calibrate
                part.value = None if later else self.first.values.get(tensor, known)
        if operation.numbers:
            part.value = operation.numbers[0]
            names = [name for name, value in vars(join).items() if isinstance(value, float) and value == part.value]
            part.constant = names[0] if names else None

    def _called(self, tensor: int) -> str:
        return self.formula.get(tensor, "constant")

    def _once(self, key: tuple[str, int], kind: str, name: str, label: str, place: Place) -> Part:
        if key not in self.by_key:
            self.by_key[key] = self._new(kind, name, place.join, place.inside)
            self.by_key[key].label = label
        return self.by_key[key]

    def _new(self, kind: str, name: str, join: int | None, inside: bool, tensor: int | None = None) -> Part:
        part = Part(len(self.parts), kind, name, join, inside, shape=() if tensor is None else self._shape(tensor))
        self.parts.append(part)
        return part

    def _past_the_branch(self, join: int, output: int) -> list[Part]:
        """The parts of a join that are on a way from its input to this output, and not in its branch."""
        own = {part.id: part for part in self.parts if part.join == join and not part.inside}
        ahead: set[int] = set()
        for part in own.values():
            if not part.inputs or any(i in ahead or self.parts[i].join != join for i in part.inputs):
                ahead.add(part.id)
        found, todo = [], [output]
        while todo:
            i = todo.pop()
            if i in own and i in ahead:
                found.append(own[i])
                todo += own[i].inputs
        return found

    def _shape(self, tensor: int) -> Shape:
        return symbols.shape([recording.sizes[tensor] for recording in self.recordings])

    def _flops(self, index: int) -> Counts:
        flops = [recording.operations[index].flops for recording in self.recordings]
        return symbols.counts([symbols.size(flops)] if any(flops) else [])


def _of_operation(operation: Operation, inputs: int) -> tuple[str, str, str]:
    """Kind, name and label of an operation that is a part of its own."""
    name = operation.name
    if name in FRESH:
        return "fresh", name, FRESH[name]
    if name in ACTIVATIONS:
        return "activation", name, ACTIVATIONS[name] + (" (tanh)" if "tanh" in operation.words else "")
    if inputs > 1 and name in SUMS | {"mul"}:
        return ("add" if name in SUMS else "product"), name, ""
    return ("scale", name, "") if name in PRODUCTS else ("other", name, name.strip("_"))


def _axes(norm: nn.Module) -> int:
    """How many of the last dimensions a norm takes together."""
    if isinstance(norm, nn.LayerNorm | nn.RMSNorm):
        return len(norm.normalized_shape)
    return len(norm.dims) if isinstance(norm, Unit) else 1


def _has_product(part: Part) -> bool:
    return bool(part.flops)


def _has_softmax(part: Part) -> bool:
    return any("softmax" in name for name in part.operations)

"""What a block computes, operation by operation: the built model, without memory for its weights, run on empty tensors."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from experiments import walk
from experiments.model import Block, Transformer
from experiments.placements.base import streams_of

ATTENTION = "attention"  # name of the pseudo module in which the scores, the softmax and their sums happen


class Call(NamedTuple):
    """One call of a module of the block."""

    number: int  # of this call among all
    path: str


@dataclass(frozen=True)
class Operation:
    """A primitive operation of torch. Tensors are numbered in the order they appear."""

    name: str
    calls: tuple[Call, ...]  # it happened in, outermost first
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    numbers: tuple[float, ...]  # plain numbers among its arguments
    words: tuple[str, ...]  # plain words among its options
    flops: int  # of a matrix product, else 0


@dataclass
class Recording:
    """The operations of one forward pass of a block, and its tensors by number."""

    operations: list[Operation] = field(default_factory=list)
    sizes: list[tuple[int, ...]] = field(default_factory=list)  # of each tensor
    streams: list[int] = field(default_factory=list)  # tensors that enter the block
    stored: dict[int, str] = field(default_factory=dict)  # parameters and buffers, by path
    values: dict[int, float] = field(default_factory=dict)  # of the scalars, which alone have values
    joins: dict[int, list[int]] = field(default_factory=dict)  # tensors that leave each join


@contextmanager
def hollow() -> Iterator[None]:
    """Models built inside hold no weights: what torch would leave uninitialised is on the meta device, and the rest, such
    as the constants of a placement, has its value."""

    class Hollow(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            options = dict(kwargs or {})
            if func is torch.empty and options.get("device") is None:
                options["device"] = "meta"
            return func(*args, **options)

    with Hollow():
        yield


def strip(model: Transformer) -> dict[str, float]:
    """Move to the meta device, in place, every parameter and buffer but scalars. The value of each whose entries are
    known and all equal, by path."""
    values: dict[str, float] = {}
    moved: dict[int, tuple[Tensor, Tensor]] = {}  # the old one is kept, so that its id stays its own
    for path, module in model.named_modules():
        for stored in (module._parameters, module._buffers):
            for name, tensor in cast("dict[str, Tensor | None]", stored).items():
                if tensor is None or tensor.device.type == "meta":
                    continue
                first = tensor.detach().reshape(-1)[:1]
                if first.numel() and bool((tensor == first).all()):
                    values[f"{path}.{name}"] = float(first)
                if tensor.dim() and id(tensor) not in moved:
                    there = tensor.detach().to("meta")
                    learnt = isinstance(tensor, nn.Parameter)
                    moved[id(tensor)] = tensor, nn.Parameter(there, tensor.requires_grad) if learnt else there
                if tensor.dim():
                    setattr(module, name, moved[id(tensor)][1])
    return values


def record(model: Transformer, layer: int, batch: int, tokens: int) -> Recording:
    """Run a block of a stripped model on ``batch`` sequences of ``tokens`` tokens."""
    block = cast("Block", model.blocks[layer])
    x_BTD = torch.empty(batch, tokens, model.wte.embedding_dim, device="meta")
    with torch.no_grad():
        entered = walk.enter(model, x_BTD)
        streams = [torch.empty_like(s) for s in streams_of(entered)]
        recorder = _Recorder(block, streams)
        model.eval()
        with ExitStack() as stack:
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            stack.enter_context(recorder.hooked(block))
            stack.enter_context(_Attention(recorder))
            stack.enter_context(recorder)
            block(tuple(streams) if isinstance(entered, tuple) else streams[0])
    return recorder.found


class _Recorder(TorchDispatchMode):
    """Writes down every operation, with the modules that it happens in."""

    def __init__(self, block: Block, streams: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = Recording()
        self.calls: list[Call] = []
        self.called = 0
        self._alive: list[Tensor] = []  # a tensor that is let go gives its id to another
        self._number: dict[int, int] = {}
        self.found.streams = [self.number(stream) for stream in streams]
        for path, tensor in [*block.named_parameters(), *block.named_buffers()]:
            self.found.stored[self.number(tensor)] = path

    def number(self, tensor: Tensor) -> int:
        if id(tensor) not in self._number:
            self._number[id(tensor)] = len(self._alive)
            self._alive.append(tensor)
            self.found.sizes.append(tuple(tensor.shape))
            if not tensor.dim() and tensor.device.type != "meta":
                self.found.values[self._number[id(tensor)]] = float(tensor.detach())
        return self._number[id(tensor)]

    def enter(self, path: str) -> None:
        self.calls.append(Call(self.called, path))
        self.called += 1

    @contextmanager
    def hooked(self, block: Block) -> Iterator[None]:
        """Follow the calls of the block's modules."""
        joins = {id(join): index for index, join in enumerate(block.joins)}
        with ExitStack() as stack:
            for path, module in block.named_modules():

                def before(_module: nn.Module, _inputs: Any, path: str = path) -> None:
                    self.enter(path)

                def after(module: nn.Module, _inputs: Any, output: Any) -> None:
                    self.calls.pop()
                    if id(module) in joins:
                        self.found.joins[joins[id(module)]] = [self.number(tensor) for tensor in streams_of(output)]

                stack.callback(module.register_forward_pre_hook(before).remove)
                stack.callback(module.register_forward_hook(after).remove)
            yield

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        out = func(*args, **options)
        given = list(_leaves([*args, *options.values()]))
        flops = flop_registry.get(func.overloadpacket)
        self.found.operations.append(
            Operation(
                name=func.overloadpacket.__name__,
                calls=tuple(self.calls),
                inputs=tuple(self.number(value) for value in given if isinstance(value, Tensor)),
                outputs=tuple(self.number(value) for value in _leaves(out) if isinstance(value, Tensor)),
                numbers=tuple(float(value) for value in given if type(value) in {int, float} and math.isfinite(value)),
                words=tuple(value for value in options.values() if isinstance(value, str)),
                flops=0 if flops is None else int(flops(*args, **options, out_val=out)),
            )
        )
        return out


class _Attention(TorchFunctionMode):
    """Makes torch's fused attention look like a module of its own."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        self.recorder.enter(ATTENTION)
        out = func(*args, **(kwargs or {}))
        self.recorder.calls.pop()
        return out


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value

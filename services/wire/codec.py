"""Enums of the wire and their short names; tensors of the wire and their bytes."""

import math
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from google.protobuf.descriptor import EnumDescriptor
from tandem.v1 import types_pb2

from services.errors import InvalidRequest
from services.wire.ring import Lease, Ring

DRAFT_PROTOCOL_VERSION = 1
"""Of the stream between target and drafter; both sides must have the same."""

Value = TypeVar("Value", bound=int)


class Names(Generic[Value]):
    """A proto enum by short names: `ngram` is SPECULATION_MODE_NGRAM. `None` is UNSPECIFIED, both ways."""

    def __init__(self, enum: EnumDescriptor, *, prefix: str, renamed: dict[str, str] | None = None) -> None:
        self._prefix = prefix.lower().rstrip("_")
        numbers = {value.name: value.number for value in enum.values}
        short = {value: name.removeprefix(prefix).lower() for name, value in numbers.items() if value}
        self._names = {value: (renamed or {}).get(name, name) for value, name in short.items()}
        self._values = {name: value for value, name in self._names.items()}
        self.legal = tuple(self._values)

    def name(self, value: Value, *, field: str | None = None) -> str | None:
        """The short name. A number that this version does not know is refused, never passed on."""
        if value == 0:
            return None
        if value not in self._names:
            raise self._refusal(str(value), field)
        return self._names[value]

    def value(self, name: str | None, *, field: str | None = None) -> Value:
        """The number of a short name; an unknown name is refused with the legal ones."""
        if name is None:
            return 0  # type: ignore[return-value]
        if name not in self._values:
            raise self._refusal(repr(name), field)
        return self._values[name]  # type: ignore[return-value]

    def _refusal(self, what: str, field: str | None) -> InvalidRequest:
        return InvalidRequest(f"{what} is not a {self._prefix}; legal are {', '.join(self.legal)}", field=field)


MODES: Names[types_pb2.SpeculationMode.ValueType] = Names(
    types_pb2.SpeculationMode.DESCRIPTOR, prefix="SPECULATION_MODE_"
)
REASONS: Names[types_pb2.SpeculationReason.ValueType] = Names(
    types_pb2.SpeculationReason.DESCRIPTOR, prefix="SPECULATION_REASON_"
)
ORIGINS: Names[types_pb2.Origin.ValueType] = Names(types_pb2.Origin.DESCRIPTOR, prefix="ORIGIN_")
FINISH_KINDS: Names[types_pb2.FinishKind.ValueType] = Names(types_pb2.FinishKind.DESCRIPTOR, prefix="FINISH_KIND_")
DATA_TYPES: Names[types_pb2.DataType.ValueType] = Names(
    types_pb2.DataType.DESCRIPTOR,
    prefix="DATA_TYPE_",
    renamed={"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"},
)

ITEM_BYTES = {"bf16": 2, "fp32": 4, "fp16": 2}


@dataclass(frozen=True, slots=True)
class TensorBytes:
    """A dense row-major little-endian tensor, as bytes; `torch.frombuffer` and `view` make a tensor of it.

    With a `lease`, `data` is memory of the tap ring: it is what was meant as long as the lease holds."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview
    lease: Lease | None = None

    def split(self, rows: int) -> tuple["TensorBytes", "TensorBytes"]:
        """The first `rows` rows, and the others."""
        row, cut = self.shape[1:], rows * ITEM_BYTES[self.dtype] * math.prod(self.shape[1:])
        head = replace(self, shape=(rows, *row), data=self.data[:cut])
        return head, replace(self, shape=(self.shape[0] - rows, *row), data=self.data[cut:])


def tensor_message(tensor: TensorBytes) -> types_pb2.Tensor:
    """The message that carries `tensor` inline."""
    dtype = DATA_TYPES.value(tensor.dtype)
    return types_pb2.Tensor(dtype=dtype, shape=tensor.shape, inline=bytes(tensor.data))


def tensor_of(message: types_pb2.Tensor, *, ring: Ring | None = None, field: str = "tensor") -> TensorBytes:
    """The tensor of a message, whose bytes are exactly those that its dtype and shape need; those of a ring's slot are
    not copied."""
    payload = message.WhichOneof("payload")
    if payload is None or (payload == "ring" and ring is None):
        raise InvalidRequest("a tensor must come inline: no ring is mapped", field=f"{field}.payload")
    dtype = DATA_TYPES.name(message.dtype, field=f"{field}.dtype")
    if dtype is None:
        raise InvalidRequest(f"a dtype is needed; legal are {', '.join(DATA_TYPES.legal)}", field=f"{field}.dtype")
    shape = tuple(message.shape)
    size = message.ring.size_bytes if payload == "ring" else len(message.inline)
    needed = math.prod(shape) * ITEM_BYTES[dtype]
    if size != needed:
        raise InvalidRequest(
            f"{dtype} of shape {list(shape)} takes {needed} bytes, not {size}", field=f"{field}.{payload}"
        )
    if payload == "inline" or ring is None:
        return TensorBytes(dtype, shape, message.inline)
    return TensorBytes(dtype, shape, *ring.read(message.ring, field=f"{field}.ring"))

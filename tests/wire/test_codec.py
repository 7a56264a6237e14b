import pytest
from tandem.v1 import types_pb2

from services.errors import InvalidRequest
from services.wire.codec import (
    DATA_TYPES,
    FINISH_KINDS,
    MODES,
    ORIGINS,
    REASONS,
    TensorBytes,
    tensor_message,
    tensor_of,
)

ENUMS = {
    "modes": (MODES, types_pb2.SpeculationMode),
    "reasons": (REASONS, types_pb2.SpeculationReason),
    "origins": (ORIGINS, types_pb2.Origin),
    "finish kinds": (FINISH_KINDS, types_pb2.FinishKind),
    "data types": (DATA_TYPES, types_pb2.DataType),
}


@pytest.mark.parametrize(("names", "enum"), ENUMS.values(), ids=ENUMS)
def test_every_value_has_a_name_of_its_own_and_comes_back(names, enum):
    for number in enum.values():
        assert names.value(names.name(number)) == number
    assert len(names.legal) == len(enum.values()) - 1
    assert names.name(0) is None


def test_names_are_the_words_that_people_write():
    assert MODES.legal == ("auto", "none", "ngram", "mtp", "dflash", "dflash2")
    assert REASONS.name(types_pb2.SPECULATION_REASON_DRAFTER_NOT_LOADED) == "drafter_not_loaded"
    assert ORIGINS.name(types_pb2.ORIGIN_FIRST) == "first"
    assert FINISH_KINDS.name(types_pb2.FINISH_KIND_STOP_STRING) == "stop_string"
    assert DATA_TYPES.legal == ("bf16", "fp32", "fp16")


def test_an_unknown_name_or_number_is_refused_with_the_legal_ones_and_the_field():
    with pytest.raises(InvalidRequest, match=r"'turbo'.*auto, none, ngram, mtp, dflash, dflash2") as by_name:
        MODES.value("turbo", field="speculation.mode")
    with pytest.raises(InvalidRequest, match="99") as by_number:
        MODES.name(99, field="turn.mode")
    assert (by_name.value.field, by_number.value.field) == ("speculation.mode", "turn.mode")


@pytest.mark.parametrize(
    "tensor",
    [
        TensorBytes("bf16", (2, 3), bytes(range(12))),
        TensorBytes("fp32", (1,), b"\0\0\x80\x3f"),
        TensorBytes("fp16", (4, 0, 2), b""),
        TensorBytes("fp32", (), b"abcd"),
    ],
)
def test_a_tensor_comes_back_bit_for_bit(tensor):
    message = types_pb2.Tensor.FromString(tensor_message(tensor).SerializeToString())
    assert tensor_of(message) == tensor


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (types_pb2.Tensor(dtype=1, shape=[2], inline=b"abc"), "taps.inline"),
        (types_pb2.Tensor(dtype=1, shape=[2**40, 2**40], inline=b"abcd"), "taps.inline"),
        (types_pb2.Tensor(shape=[1], inline=b"ab"), "taps.dtype"),
        (types_pb2.Tensor(dtype=77, shape=[1], inline=b"ab"), "taps.dtype"),
        (types_pb2.Tensor(dtype=1, shape=[1], ring=types_pb2.RingSlot(slot=3)), "taps.payload"),
        (types_pb2.Tensor(dtype=1, shape=[1]), "taps.payload"),
    ],
)
def test_a_broken_tensor_names_what_is_broken(message, field):
    with pytest.raises(InvalidRequest) as refused:
        tensor_of(message, field="taps")
    assert refused.value.field == field


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_tensor_is_split_between_rows(rows):
    tensor = TensorBytes("bf16", (3, 1, 2), bytes(range(12)))
    head, rest = tensor.split(rows)
    assert (head.shape, rest.shape) == ((rows, 1, 2), (3 - rows, 1, 2))
    assert (head.data, rest.data) == (tensor.data[: 4 * rows], tensor.data[4 * rows :])

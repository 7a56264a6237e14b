"""Rotary settings of a config.json, in the present form (`rope_parameters`) or the older flat one."""

from services.engine.ops.rope import Llama3Scaling, Rope
from services.engine.weights.config import Keys

KINDS = ("default", "linear", "llama3")


def read_rope(keys: Keys) -> Rope:
    """Raises BadCheckpoint for a kind of scaling that is not implemented, and for heads that turn only in part."""
    for place in (_table(keys), keys):
        if place.number("partial_rotary_factor", 1.0) != 1.0:
            raise place.wrong("partial_rotary_factor", "1.0")
    return read_partial_rope(keys, 1.0)[0]


def read_partial_rope(keys: Keys, default: float) -> tuple[Rope, float]:
    """The same, and the leading share of every head that it turns."""
    table = _table(keys)
    share = (table if "partial_rotary_factor" in table else keys).number("partial_rotary_factor", default)
    return _rope(table, keys), share


def _table(keys: Keys) -> Keys:
    return keys.table("rope_parameters" if "rope_parameters" in keys else "rope_scaling")


def _rope(table: Keys, keys: Keys) -> Rope:
    theta = (table if "rope_theta" in table else keys).number("rope_theta", 10000.0)
    match table.one_of("type" if "type" in table and "rope_type" not in table else "rope_type", KINDS, "default"):
        case "linear":
            return Rope(theta, table.number("factor"))
        case "llama3":
            return Rope(theta, _llama3(table, keys))
        case _:
            return Rope(theta)


def _llama3(table: Keys, keys: Keys) -> Llama3Scaling:
    scaling = Llama3Scaling(
        factor=table.number("factor"),
        low_freq_factor=table.number("low_freq_factor"),
        high_freq_factor=table.number("high_freq_factor"),
        original_context=table.number("original_max_position_embeddings", keys.integer("max_position_embeddings")),
    )
    if scaling.high_freq_factor <= scaling.low_freq_factor:
        raise table.wrong("high_freq_factor", "above low_freq_factor")
    return scaling

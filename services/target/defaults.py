"""Generation defaults of a checkpoint: the fields of generation_config.json that sampling knows."""

import json

from tandem.v1.types_pb2 import Sampling

from services.errors import BadCheckpoint, InvalidRequest
from services.target.admission import check
from services.text.files import TokenizerFiles
from services.wire.bounds import SAMPLING

FILE = "generation_config.json"


def default_sampling(files: TokenizerFiles) -> Sampling:
    """Absent keys stay absent, which is neutral. Raises BadCheckpoint for a value no request could ask for."""
    config = json.loads(files.files.get(FILE, b"{}"))
    sampling = Sampling()
    try:
        for name in ("top_k", *SAMPLING):
            if config.get(name) is not None:
                setattr(sampling, name, config[name])
                if name in SAMPLING:
                    check(sampling, name)
    except (InvalidRequest, TypeError, ValueError) as error:
        raise BadCheckpoint(f"{FILE}: {name}: {error}") from error
    return sampling

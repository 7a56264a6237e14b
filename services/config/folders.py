"""Where this user's files are kept."""

import os
from pathlib import Path

from services.errors import BadConfig


def cache_root() -> Path:
    """`$TANDEM_CACHE`, else the user's cache directory as the XDG rules find it (a relative one there is ignored)."""
    try:
        if own := os.environ.get("TANDEM_CACHE"):
            return Path(own).expanduser().absolute()
        shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
        return (shared if shared.is_absolute() else Path.home() / ".cache") / "tandem"
    except RuntimeError as error:
        raise BadConfig(f"{error}; TANDEM_CACHE must name a folder") from error

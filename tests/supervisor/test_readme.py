"""What the README tells a newcomer to do works as it is written, but for the port."""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()


def block(containing):
    """The code block that has this in it."""
    return next(text for text in re.findall(r"```\w*\n(.*?)```", README, re.DOTALL) if containing in text)


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def children(pid):
    """A handle for each child of a process, readable when that child has ended."""
    return [os.pidfd_open(int(child)) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.usefixtures("embedded_model")
def test_both_requests_are_answered_and_sigterm_leaves_nothing_behind(tmp_path):
    serve = [sys.executable, "-m", "services.cli", "serve", "--port", "0"]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(serve, stdout=-1, stderr=log, text=True) as process:
        ready = next(line for line in process.stdout if " is ready on " in line)
        http, grpc = re.fullmatch(
            r"SmolLM2-135M-Instruct is ready on http://(\S+) and gRPC (\S+)\. Try:\n", ready
        ).groups()
        ends = children(process.pid)
        assert len(ends) == 3

        if shutil.which("curl"):
            *_, last, done, _ = run("sh", "-c", block("curl -N").replace("127.0.0.1:8000", http)).stdout.split("\n\n")
            assert json.loads(last.removeprefix("data: "))["speculation"]["resolved"] == "ngram"
            assert done == "data: [DONE]"
        script = run(sys.executable, "-c", block("GenerationServiceStub").replace("127.0.0.1:8001", grpc))
        assert "Tokyo" in script.stdout, script.stderr

        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert all(select.select([end], [], [], 30)[0] for end in ends)
    for end in ends:
        os.close(end)

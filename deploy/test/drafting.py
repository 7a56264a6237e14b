"""What the drafters that ship must do in a running stack."""

import json

from asking import TOKENS, Answer, ask, drafters
from images import docker
from stack import Stack

from services.shipped.companions import ROOT

SHIPPED = sorted(folder.name for folder in ROOT.iterdir() if folder.is_dir())


def check_loaded(stack: Stack) -> None:
    """The drafter's log has every folder that ships, and the target offers every drafter."""
    log = stack.compose("logs", "drafter")
    for name in SHIPPED:
        assert f"loaded {name} from " in log, log
    states = drafters(stack)
    assert sorted(states) == SHIPPED, states
    assert all(state.up and not state.refusal for state in states.values()), states


def check_modes(stack: Stack, plain: Answer) -> str:
    """Every mode gives the answer without drafts, and drafted it itself; a line of what each brought."""
    brought = []
    for mode in (*SHIPPED, "auto"):
        answer = ask(stack, mode, strict=True)
        assert answer.ids == plain.ids, mode
        assert answer.text == plain.text, mode
        assert answer.reason is None, (mode, answer.reason)
        assert answer.drafted, f"{mode} never drafted"
        if mode != "auto":
            assert answer.resolved == mode, answer.resolved
            assert answer.drafted.keys() == {mode}, answer.drafted
        accepted, drafted = sum(answer.accepted.values()), sum(answer.drafted.values())
        assert accepted > 0, f"nothing that {mode} drafted was right"
        by = f" (by {', '.join(answer.drafted)})" if mode == "auto" else ""
        brought.append(f"{mode}{by} {accepted} of {drafted}")
    return "; ".join(brought)


def check_taps(stack: Stack, mode: str) -> str:
    """Both programs map a file of the shared tmpfs, and what `mode` needs of the layers does not come by socket."""
    for name in ("target", "drafter"):
        assert inside(stack, name, "stat --file-system --format=%T /taps") == "tmpfs"
    assert mapped_taps(stack, "target") & mapped_taps(stack, "drafter"), "they map no file together"
    config = json.loads((ROOT / mode / "config.json").read_bytes())
    position_bytes = len(config["dflash_config"]["target_layer_ids"]) * config["hidden_size"] * 2  # bf16
    before = received(stack)
    answer = ask(stack, mode, TOKENS, strict=True)
    came = received(stack) - before
    # All but the last round's positions were fed, and each round again what it may have missed.
    needed = (answer.prompt_tokens + len(answer.ids)) * position_bytes
    assert came < needed / 2, f"the drafter received {came} bytes for {needed} bytes of taps"
    return f"{needed / 1e3:.0f} KB of taps for {mode}; the drafter received {came / 1e3:.0f} KB"


def mapped_taps(stack: Stack, service: str) -> set[tuple[str, str]]:
    """(device, inode) of the files in /taps that its programs map. Their names differ: a ring is made without one."""
    columns = [line.split() for line in inside(stack, service, "cat /proc/[0-9]*/maps").splitlines()]
    return {(device, inode) for _, _, _, device, inode, *name in columns if name and name[0].startswith("/taps/")}


def received(stack: Stack) -> int:
    """Bytes that came to the drafter's container over its network."""
    return int(inside(stack, "drafter", "cat /sys/class/net/eth0/statistics/rx_bytes"))


def inside(stack: Stack, service: str, script: str) -> str:
    return docker("exec", stack.container(service), "sh", "-c", script)

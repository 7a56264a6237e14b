"""What a figure depends on besides the code: the machine, its software, and who else used it meanwhile."""

import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

BUSY = 0.25  # processors that others may use before a figure is doubted
ROOT = Path(__file__).parent.parent


def openmp(threads: int) -> dict[str, str]:
    """The same for every process that computes. Threads spin as briefly as `tandem` lets those of a target."""
    return {"OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": "20000"}


def facts(threads: int) -> dict[str, Any]:
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "grpcio")},
        "system": f"{platform.system()} {platform.release()}",
        "commit": _git("rev-parse", "--short=12", "HEAD"),
        "uncommitted changes": bool(_git("status", "--porcelain")),
    }


@dataclass(frozen=True, slots=True)
class Use:
    """Processor time up to a moment, in seconds: of everybody on this machine, and of ourselves with every child that
    has ended. `stolen`: what the machine below gave to others."""

    wall: float
    everybody: float
    stolen: float
    ours: float

    @classmethod
    def now(cls) -> Self:
        # proc(5): user, nice, system, idle, iowait, irq, softirq, steal
        ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        second = os.sysconf("SC_CLK_TCK")
        own = os.times()
        used = own.user + own.system + own.children_user + own.children_system
        busy = sum(ticks) - ticks[3] - ticks[4] - ticks[7]
        return cls(own.elapsed, busy / second, ticks[7] / second, used)

    def since(self, begin: "Use") -> dict[str, float]:
        """Processors that others used, on average."""
        wall = max(self.wall - begin.wall, 1e-9)
        others = self.everybody - begin.everybody - (self.ours - begin.ours)
        return {"others": round(max(others, 0) / wall, 3), "stolen": round((self.stolen - begin.stolen) / wall, 3)}


def doubts(load: float, used: Mapping[str, float]) -> list[str]:
    """Why a figure of this run should not be trusted. `load` is the load average before it."""
    found = []
    if load > BUSY:
        found.append(f"the load average was {load:.2f} before anything was started")
    for who, words in (("others", "other processes used"), ("stolen", "the host withheld")):
        if used[who] > BUSY:
            found.append(f"{words} {used[who]:.2f} processors on average")
    return found


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _git(*words: str) -> str | None:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None

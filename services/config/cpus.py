"""How many CPUs this process may use: what a container grants, not what the machine has."""

from pathlib import Path


def cpu_quota(cgroups: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> int | None:
    """Whole CPUs of the control group's quota, at least one. None: no quota."""
    own = next((line[4:] for line in _text(membership).splitlines() if line.startswith("0::/")), "")
    # The tightest group of those around this process holds; inside a container the path is usually just `/`.
    limits = [_text(cgroups / folder / "cpu.max") for folder in (Path(own), *Path(own).parents)]
    limits.append(_text(cgroups / "cpu/cpu.cfs_quota_us") + _text(cgroups / "cpu/cpu.cfs_period_us"))  # version 1
    quotas = [cpus for limit in limits if (cpus := _cpus(limit)) is not None]
    return max(1, int(min(quotas))) if quotas else None


def _cpus(limit: str) -> float | None:
    """`quota period` as CPUs; the quota is `max` or -1 where there is no limit."""
    words = limit.split()
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0].isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""

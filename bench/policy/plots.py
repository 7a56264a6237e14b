"""Two small pictures as SVG: how each policy does in each scenario, and how speed goes on in one."""

from collections.abc import Mapping, Sequence

from bench import svg
from bench.policy.measure import ADAPTIVE, UNTOLD, Result

COLOURS = {"controller": "#1b6ca8", "gate": "#d9822b", "best fixed": "#8a8f98"}
WIDTH, ROW, LEFT = 760, 36, 220


def bars(results: Mapping[str, Mapping[str, Result]]) -> str:
    """Speed over plain decoding by scenario: controller, gate, and the best of the fixed choices."""
    series = {name: _speeds(by_policy) for name, by_policy in results.items()}
    most = max(max(speeds.values()) for speeds in series.values())
    scale = (WIDTH - LEFT - 60) / most
    height = ROW * len(series) + 56
    parts = [svg.text(LEFT, 16, "speed over plain decoding", "start", bold=True), *_legend(30)]
    for index, (name, speeds) in enumerate(series.items()):
        top = 48 + index * ROW
        parts.append(svg.text(LEFT - 8, top + 18, name, "end"))
        for place, (policy, speed) in enumerate(speeds.items()):
            y = top + place * 10
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{speed * scale:.1f}" height="9" fill="{COLOURS[policy]}"/>')
            parts.append(svg.text(LEFT + speed * scale + 4, y + 8, f"{speed:.2f}", "start", size=9))
    parts.append(f'<line x1="{LEFT + scale:.1f}" y1="44" x2="{LEFT + scale:.1f}" y2="{height - 8}" stroke="#999"/>')
    return svg.picture(WIDTH, height, parts)


def course(name: str, by_policy: Mapping[str, Result]) -> str:
    """Tokens a second as one scenario goes on."""
    speeds = {policy: by_policy[policy].run.speed for policy in ("controller", "gate")} | {
        "best fixed": _best_fixed(by_policy).run.speed
    }
    most, height = max(max(each) for each in speeds.values()), 260
    parts = [svg.text(60, 16, f"tokens/s: {name}", "start", bold=True), *_legend(30)]
    for policy, values in speeds.items():
        step = (WIDTH - 80) / max(len(values) - 1, 1)
        points = " ".join(f"{60 + i * step:.1f},{240 - 190 * value / most:.1f}" for i, value in enumerate(values))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[policy]}" stroke-width="1.5"/>')
    for part in (0.0, 0.5, 1.0):
        parts.append(svg.text(54, 244 - 190 * part, f"{most * part:.0f}", "end", size=10))
    return svg.picture(WIDTH, height, parts)


def _speeds(by_policy: Mapping[str, Result]) -> Mapping[str, float]:
    return {
        "controller": by_policy["controller"].vs_plain,
        "gate": by_policy["gate"].vs_plain,
        "best fixed": _best_fixed(by_policy).vs_plain,
    }


def _best_fixed(by_policy: Mapping[str, Result]) -> Result:
    adaptive = (*ADAPTIVE, UNTOLD)
    return max((each for name, each in by_policy.items() if name not in adaptive), key=lambda each: each.vs_plain)


def _legend(y: int) -> Sequence[str]:
    parts = []
    for index, (name, colour) in enumerate(COLOURS.items()):
        x = LEFT + index * 110
        parts += [
            f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}"/>',
            svg.text(x + 14, y, name, "start"),
        ]
    return parts

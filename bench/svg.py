"""Pictures as SVG, written by hand so that they stay small and can be compared line by line."""

from collections.abc import Sequence
from html import escape


def text(x: float, y: float, words: str, anchor: str, *, size: int = 12, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{weight}>{escape(words)}</text>'


def picture(width: int, height: int, parts: Sequence[str]) -> str:
    """`parts` on a white ground."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">'
    ground = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    return "\n".join([head, ground, *parts, "</svg>", ""])

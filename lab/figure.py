"""Figure of the accuracy page, drawn as SVG from the recorded scores.

python -m lab.figure            # write docs/accuracy.svg
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from gpuplan.plan.accuracy import load_packaged_record

from .summary import FIGURE, OVERVIEW, find_best_rule

PATH = Path(__file__).parents[1] / "docs" / FIGURE
LEFT, RIGHT, TOP, ROW, WIDTH = 290, 30, 64, 30, 780  # pixels
STEP = 0.1  # between lines of the axis, as a share
BLUE, GREY, ORANGE = "#0072b2", "#d0d7de", "#b35900"  # also distinct without colour vision


def draw(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the figure as SVG: a row per setting.

    Its dot is the median, its bar ends at the 90th percentile, its diamond is the best simple rule.
    """
    rows = [(label, settings[name]) for name, label in OVERVIEW.items() if name in settings]
    values = [value for _, scores in rows for value in (scores["summary"]["p90_ape"], find_best_rule(scores) or 0)]
    steps = int(max(values) / STEP) + 1
    scale = (WIDTH - LEFT - RIGHT) / (steps * STEP)
    height = TOP + ROW * len(rows) + 34
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" font-family="sans-serif" font-size="13">',
        "<title>Errors of the predictions by what was left out of the fit</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
        *_iter_legend(),
        *_iter_axis(steps, scale, height - 34),
        *(
            part
            for i, (label, scores) in enumerate(rows)
            for part in _iter_row(label, scores, TOP + ROW * i, scale)
        ),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _iter_legend() -> Iterator[str]:
    yield '<text x="20" y="28" font-weight="bold">left out of the fit</text>'
    yield f'<circle cx="{LEFT + 6}" cy="24" r="5" fill="{BLUE}"/><text x="{LEFT + 18}" y="28">median error</text>'
    yield f'<rect x="{LEFT + 120}" y="19" width="26" height="10" fill="{GREY}"/>'
    yield f'<text x="{LEFT + 152}" y="28">90 % of the errors</text>'
    yield _diamond(LEFT + 290, 24) + f'<text x="{LEFT + 302}" y="28">best simple rule, median</text>'


def _iter_axis(steps: int, scale: float, bottom: float) -> Iterator[str]:
    for i in range(steps + 1):
        x = LEFT + i * STEP * scale
        yield f'<line x1="{x:.1f}" y1="{TOP - 12}" x2="{x:.1f}" y2="{bottom}" stroke="#eaeef2"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle" fill="#444">{100 * i * STEP:.0f} %</text>'


def _iter_row(label: str, scores: Mapping[str, Any], y: float, scale: float) -> Iterator[str]:
    summary, rule = scores["summary"], find_best_rule(scores)
    length = summary["p90_ape"] * scale
    middle = y + ROW / 2 - 4
    yield f'<text x="20" y="{middle + 4:.1f}">{escape(label)}</text>'
    yield f'<rect x="{LEFT}" y="{middle - 5:.1f}" width="{length:.1f}" height="10" fill="{GREY}"/>'
    yield f'<circle cx="{LEFT + summary["median_ape"] * scale:.1f}" cy="{middle:.1f}" r="5" fill="{BLUE}"/>'
    if rule is not None:
        yield _diamond(LEFT + rule * scale, middle)


def _diamond(x: float, y: float) -> str:
    points = f"{x - 6:.1f},{y:.1f} {x:.1f},{y - 6:.1f} {x + 6:.1f},{y:.1f} {x:.1f},{y + 6:.1f}"
    return f'<polygon points="{points}" fill="none" stroke="{ORANGE}" stroke-width="2"/>'


def main() -> None:
    """Write the figure."""
    PATH.write_text(draw(load_packaged_record()["settings"]), encoding="utf-8")


if __name__ == "__main__":
    main()

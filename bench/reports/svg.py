# SPDX-License-Identifier: Apache-2.0
"""Bars as SVG, without a library: how much of its bar each comparison uses, with its spread."""

import html
import math

from .rows import MET, MISSED

WIDTH, ROW, TOP, LABELS, RIGHT = 900, 20, 44, 330, 90
COLOURS = {MET: "#4c956c", MISSED: "#d1495b"}
OTHER = "#8fb8de"  # For information.


def text(x, y, words, anchor="start", size=12):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{html.escape(words)}</text>'


def rectangle(x, y, width, height, colour, title=""):
    return (f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}">'
            f"<title>{html.escape(title)}</title></rect>")


def line(x_1, y_1, x_2, y_2, colour, width=1):
    return (f'<line x1="{x_1:.1f}" y1="{y_1:.1f}" x2="{x_2:.1f}" y2="{y_2:.1f}" stroke="{colour}" '
            f'stroke-width="{width}"/>')


def scale(rows):
    """A function from a share of the bar to x; the scale is logarithmic and has the bar itself, 1, in it."""
    shares = [row.used for row in rows] + [row.used * (1 + row.spread) for row in rows]
    low = min(0.5, *shares)
    high = max(2.0, *shares)
    span = math.log(high / low)
    return low, high, lambda share: LABELS + (WIDTH - LABELS - RIGHT) * math.log(max(share, low) / low) / span


def ticks(low, high):
    steps = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
    return [step for step in steps if low <= step <= high]


def bars(title, rows):
    """One line for each row: ratio divided by bar. The line at 1 is the bar; beyond it is missed."""
    rows = [row for row in rows if row.used is not None and row.used > 0]
    if not rows:
        return ""
    low, high, place = scale(rows)
    height = TOP + ROW * len(rows) + 30
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
             f'height="{height}" font-family="sans-serif">',
             rectangle(0, 0, WIDTH, height, "white"),
             text(10, 18, title, size=14)]
    for tick in ticks(low, high):
        parts.append(line(place(tick), TOP - 8, place(tick), height - 24, "#222" if tick == 1 else "#ddd"))
        parts.append(text(place(tick), height - 8, "the bar" if tick == 1 else f"{tick:g} of it", "middle", 11))
    for number, row in enumerate(rows):
        y = TOP + ROW * number
        begin, end = place(low), place(row.used)
        half = row.used * row.spread / 2
        told = f"{row.name}: ratio {row.ratio:.3f}, bar {row.bar:.2f}, spread {row.spread:.1%}"
        parts += [text(LABELS - 8, y + 11, row.name, "end", 11),
                  rectangle(begin, y + 2, max(end - begin, 1), ROW - 8, COLOURS.get(row.verdict, OTHER), told),
                  line(place(row.used - half), y + 8, place(row.used + half), y + 8, "#222", 2),
                  text(max(end, place(row.used + half)) + 6, y + 12, f"{row.ratio:.3f}", "start", 11)]
    return "\n".join([*parts, "</svg>", ""])

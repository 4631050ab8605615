# SPDX-License-Identifier: Apache-2.0
"""Pictures of results, as SVG, without a library: what an operator's page shows."""

import math

from . import measure

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 300, 70, 60, 40
COLOURS = {"alone": "#8fb8de", "beside": "#d1495b"}


def bar(x, width, height, colour, title):
    return (f'<rect x="{x:.1f}" y="{HEIGHT - BOTTOM - height:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" fill="{colour}"><title>{title}</title></rect>')


def text(x, y, words, anchor="middle", size=12):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{words}</text>'


def figures(us):
    return f"{us / 1000:.3g} ms" if us >= 1000 else f"{us:.0f} us"


def latencies(rounds):
    """The victim's median alone and beside the flood, for each side; a logarithmic scale."""
    sides = list(rounds[0])
    found = {(side, when): measure.median([each[side][when]["latency_us"]["p50"] for each in rounds])
             for side in sides for when in COLOURS}
    low = 10 ** math.floor(math.log10(max(min(found.values()), 1)))
    high = 10 ** math.ceil(math.log10(max(*found.values(), low * 10)))
    room = HEIGHT - BOTTOM - TOP

    def scaled(us):
        return max(2.0, room * math.log10(max(us, low) / low) / math.log10(high / low))

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
             'font-family="sans-serif">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             text(WIDTH / 2, 20, "Half of a modest tenant's requests are answered within", size=14)]
    tick = low
    while tick <= high:
        y = HEIGHT - BOTTOM - room * math.log10(tick / low) / math.log10(high / low)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(text(LEFT - 8, y + 4, figures(tick), "end"))
        tick *= 10
    step = (WIDTH - LEFT - 20) / len(sides)
    for number, side in enumerate(sides):
        for place, when in enumerate(COLOURS):
            us = found[side, when]
            x = LEFT + step * number + step * (0.15 + 0.36 * place)
            parts.append(bar(x, step * 0.32, scaled(us), COLOURS[when], f"{side} {when}"))
            parts.append(text(x + step * 0.16, HEIGHT - BOTTOM - scaled(us) - 5, figures(us)))
        parts.append(text(LEFT + step * (number + 0.5), HEIGHT - BOTTOM + 20, side))
    for place, (when, words) in enumerate((("alone", "alone"), ("beside", "beside a flood"))):
        parts.append(f'<rect x="{LEFT + 160 * place}" y="{HEIGHT - 26}" width="12" height="12" '
                     f'fill="{COLOURS[when]}"/>')
        parts.append(text(LEFT + 18 + 160 * place, HEIGHT - 16, words, "start"))
    return "\n".join([*parts, "</svg>", ""])

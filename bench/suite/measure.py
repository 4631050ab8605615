# SPDX-License-Identifier: Apache-2.0
"""Figures: how runs become a ratio with a spread, and how they are shown.

The definitions are those of bench/harness.h. `ratio` is the median over the rounds of ours / peer
within a round; `spread` is (p75 - p25) / median of those ratios. tests/bench checks that the two
implementations agree.
"""

# What the object on the last line must have; the issue tracker and `make bench` rely on it.
REQUIRED = ("bench", "ratio", "peer", "bar", "ok", "runs", "spread")


def quantile(samples, fraction):
    """Interpolates between the neighbouring samples."""
    ordered = sorted(samples)
    position = fraction * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def median(samples):
    return quantile(samples, 0.5)


def spread(samples):
    """(p75 - p25) / median, 0 if the median is 0."""
    middle = median(samples)
    return (quantile(samples, 0.75) - quantile(samples, 0.25)) / middle if middle > 0 else 0.0


def alternate(sides, number):
    """The sides in the order of one round: who goes first changes, so that drift meets all."""
    return list(sides) if number % 2 == 0 else list(reversed(sides))


def compare(name, ours, theirs, *, peer, bar, unit):
    """The result object of two lists of runs, where the n-th of each were made in one round."""
    ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
    ratio = median(ratios)
    return {"bench": name, "ratio": round(ratio, 4), "better": "lower", "peer": peer, "bar": bar,
            "ok": ratio <= bar, "runs": len(ratios), "spread": round(spread(ratios), 4),
            "ours_ns": round(median(ours), 2), "peer_ns": round(median(theirs), 2), "unit": unit}


def combine(name, parts):
    """One object for several: that of the part that uses most of its bar, and all in `parts`.
    Parts that are only there for information, or could not be measured, do not count."""
    judged = [part for part in parts if part["ratio"] is not None and not part.get("informational")]
    fields = {"ratio": None, "better": "lower", "peer": None, "bar": None, "runs": 0,
              "spread": None}
    if judged:
        worst = max(judged, key=lambda part: part["ratio"] / part["bar"])
        fields.update({key: worst.get(key, value) for key, value in fields.items()})
        fields["worst"] = worst["bench"]
    ok = all(part["ok"] for part in parts if not part.get("informational"))
    return {"bench": name, **fields, "ok": ok, "parts": parts}


def print_table(title, rows):
    """Rows of (name, samples); the unit is in the title."""
    print(f"{title}\n  {'':28} {'median':>10} {'min':>10} {'p25':>10} {'p75':>10} {'max':>10} "
          f"{'spread':>8}")
    for name, samples in rows:
        figures = [median(samples), min(samples), quantile(samples, 0.25), quantile(samples, 0.75),
                   max(samples)]
        print(f"  {name:28}", *(f"{figure:10.2f}" for figure in figures),
              f"{spread(samples):8.1%}")


def print_overview(results):
    """One line for each benchmark, and one more for each of its parts."""
    print(f"\n  {'':34} {'ratio':>8} {'bar':>8} {'spread':>8}")
    for result in results:
        if "unavailable" in result:
            print(f"  {result['bench']:34} could not be measured: {result['unavailable']}")
            continue
        verdict = "ok" if result["ok"] else "NOT MET"
        if result.get("informational"):
            verdict += ", for information"
        print(f"  {result['bench']:34} {result['ratio']:8.3f} {result['bar']:8.2f} "
              f"{result['spread']:8.1%}  {verdict}")

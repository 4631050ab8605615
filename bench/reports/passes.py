# SPDX-License-Identifier: Apache-2.0
"""One result of several, that were measured minutes apart in processes of their own.

Rounds within one process agree better than they should: they share its memory's layout and the machine's mood of that
minute. How far a repetition comes out elsewhere is seen only by repeating. So the pass whose ratio is in the middle speaks
for all, comparison by comparison, and the spread is that between the passes where it is larger than that of the rounds.
"""

import math

from suite import measure

SPREAD_MAX = 100.0  # Also of passes of which one found no bound.


def spread(ratios):
    """(max - min) / median: of so few, quartiles would hide the outermost."""
    if not math.isfinite(max(ratios)):
        return SPREAD_MAX
    middle = measure.median(ratios)
    return min((max(ratios) - min(ratios)) / middle, SPREAD_MAX) if middle > 0 else 0.0


def merge_part(passes):
    """Of one comparison in each pass."""
    measured = sorted((part for part in passes if part.get("ratio") is not None), key=lambda part: part["ratio"])
    if not measured:
        return passes[0]
    middle = measured[len(measured) // 2]  # Of an even number the worse one.
    between = spread([part["ratio"] for part in measured])
    return {**middle, "runs": sum(part.get("runs", 0) for part in measured), "passes": len(measured),
            "spread": round(max(middle.get("spread") or 0.0, between), 4)}


def merge_measured(measured):
    """Of passes that were measured."""
    if not any("parts" in result for result in measured):
        return merge_part(measured)
    by_name = {}
    for result in measured:
        for part in result.get("parts", ()):
            by_name.setdefault(part["bench"], []).append(part)
    return {**measured[0], **measure.combine(measured[0]["bench"], [merge_part(parts) for parts in by_name.values()])}


def merge(results):
    """Of one benchmark's results. If some passes could not be measured, the others speak, and `lost` says why."""
    lost = [result["unavailable"] for result in results if "unavailable" in result]
    if len(lost) == len(results):
        return results[0]
    merged = merge_measured([result for result in results if "unavailable" not in result])
    return {**merged, "lost": lost} if lost else merged

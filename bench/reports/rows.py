# SPDX-License-Identifier: Apache-2.0
"""Results as rows: one for each comparison, with a verdict."""

import dataclasses
import math
import typing

MET, MISSED, TOLD, NOT_MEASURED = "met", "missed", "for information", "not measured"
TOLERANCE = 0.10  # Two runs that differ by less agree, however small their own spread was.


@dataclasses.dataclass
class Row:
    """One comparison. `ratio` is ours / the peer's: lower is better."""
    bench: str  # The benchmark that it belongs to, as bench/run knows it.
    name: str
    verdict: str
    ratio: typing.Optional[float] = None
    bar: typing.Optional[float] = None
    spread: float = 0.0
    runs: int = 0
    peer: str = ""
    ours: typing.Optional[float] = None
    theirs: typing.Optional[float] = None
    unit: str = ""
    why: str = ""  # It was not measured.
    bar_ns: typing.Optional[float] = None  # What `ours` must not exceed, too.

    @property
    def group(self):
        return self.bench.split("-")[0]

    @property
    def used(self):
        """How much of the bar is used, of the one that is nearer: above 1 it is missed."""
        if self.ratio is None or not self.bar:
            return None
        return max(self.ratio / self.bar, self.ours / self.bar_ns if self.bar_ns else 0.0)


def verdict(result):
    if result.get("ratio") is None or "unavailable" in result:
        return NOT_MEASURED
    if result.get("informational"):
        return TOLD
    return MET if result["ok"] else MISSED


def rows_of(result):
    """Those of one benchmark: its parts, or itself if it has none."""
    for part in result.get("parts") or [result]:
        found = verdict(part)
        if result.get("informational") and found != NOT_MEASURED:
            found = TOLD
        ratio = part.get("ratio")
        yield Row(result["bench"], part["bench"], found,
                  ratio if ratio is not None and math.isfinite(ratio) else None, part.get("bar"),
                  part.get("spread") or 0.0, part.get("runs", 0), part.get("peer") or "",
                  part.get("ours_ns"), part.get("peer_ns"), part.get("unit", ""), part.get("unavailable", ""),
                  part.get("bar_ns"))


def rows(results):
    return [row for result in results for row in rows_of(result)]


@dataclasses.dataclass
class Pair:
    """The same comparison in two reports."""
    name: str
    first: float
    second: float
    allowed: float  # By how much they may differ, as a share of the first.

    @property
    def differs_by(self):
        return abs(self.second - self.first) / self.first if self.first else 0.0

    @property
    def agrees(self):
        return self.differs_by <= self.allowed


def pairs(first, second):
    """Of what was measured both times. The spread of either run is allowed, and no less than TOLERANCE."""
    others = {row.name: row for row in second if row.ratio is not None}
    for row in first:
        other = others.get(row.name)
        if row.ratio is not None and other is not None:
            yield Pair(row.name, row.ratio, other.ratio, max(row.spread, other.spread, TOLERANCE))

# SPDX-License-Identifier: Apache-2.0
"""Goal: an exported trace is what viewers read, and says what the foms did, when, and what they waited for.
Method: a play on one core by a clock that only its ticks move, see trace_program.c; every slice, wait
and arrow is compared with the play, to the nanosecond."""

import json
import subprocess

import pytest


@pytest.fixture(scope="module")
def events(build):
    done = subprocess.run([build / "tests" / "engine" / "trace_program"], stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=120, check=True)
    trace = json.loads(done.stdout)
    assert trace["displayTimeUnit"] == "ns"
    return trace["traceEvents"]


def ns(microseconds):
    return round(microseconds * 1000)


def of(events, *phases):
    return [event for event in events if event["ph"] in phases]


def fom_ids(events):
    """The id of each actor's fom, by the name of its type."""
    return {event["name"].split(":")[0]: event["args"]["fom"] for event in of(events, "X")
            if event["cat"] == "tick"}


def test_every_event_has_what_viewers_need(events):
    for event in events:
        assert {"ph", "name", "cat", "pid", "tid", "ts"} <= event.keys()
        assert event["ts"] >= 0
        assert ("dur" in event) == (event["ph"] == "X")
        assert ("id" in event) == (event["ph"] in "bensf")
    names = [event["args"]["name"] for event in of(events, "M") if event["name"] == "thread_name"]
    assert names == ["core 0"]


def test_ticks(events):
    """The standard phases take no time here, and are looked at apart."""
    ticks = [(event["name"], ns(event["ts"]), ns(event["dur"]), event["args"]["step"])
             for event in of(events, "X") if event["cat"] == "tick"]
    standard = ("INITIALISE", "AUTHENTICATE", "AUTHORISE")
    assert [tick for tick in ticks if not tick[0].endswith(standard)] == [
        ("script:SETUP", 0, 100, "yield"),
        ("reader:READ", 100, 1000, "wait"),
        ("sleeper:NAP", 1100, 10, "wait"),
        ("laggard:LATE", 1110, 5, "wait"),
        ("script:SIGNAL", 1115, 2000, "yield"),
        ("reader:REST", 3115, 300, "again"),
        ("script:LEAP", 3415, 10_000_000, "yield"),
        ("script:TELL", 10_003_415, 50, "again"),
        ("sleeper:WOKEN", 10_003_465, 20, "block"),
        ("laggard:FAILED", 10_003_485, 0, "again"),
        ("sleeper:WOKEN", 10_003_492, 0, "again"),
    ]
    for actor in ("script", "reader", "sleeper", "laggard"):
        assert [tick[0] for tick in ticks if tick[0].startswith(actor)][:3] == [
            f"{actor}:{phase}" for phase in standard]
    assert all(tick[2:] == (0, "again") for tick in ticks if tick[0].endswith(standard))


def test_next_phases(events):
    chosen = {event["name"]: event["args"]["next"] for event in of(events, "X")
              if event["cat"] == "tick" and "next" in event["args"]}
    assert chosen["script:SETUP"] == "SIGNAL"
    assert chosen["reader:AUTHORISE"] == "READ"
    assert chosen["reader:READ"] == "REST"
    assert chosen["reader:REST"] == "FINISHED"
    assert chosen["laggard:FAILED"] == "FINISHED"


def test_what_each_fom_did_between_its_ticks(events):
    ids = fom_ids(events)
    def track(actor):
        return [(event["ph"], event["name"], ns(event["ts"]), event.get("args", {}))
                for event in of(events, "b", "e", "n") if event["id"] == ids[actor]]
    assert track("reader") == [
        ("b", "reader", 0, {"by": "started", "waker": ids["script"]}),
        ("b", "reader:REST waits", 1100, {"for": "event", "on": ["left", "right"]}),
        ("e", "reader:REST waits", 1115, {"by": "event", "waker": ids["script"]}),
        ("n", "halfway", 3115, {}),
        ("e", "reader", 3415, {}),
    ]
    assert track("sleeper") == [
        ("b", "sleeper", 0, {"by": "started", "waker": ids["script"]}),
        ("b", "sleeper:WOKEN waits", 1110, {"for": "event or deadline", "on": [], "until": 5000}),
        ("e", "sleeper:WOKEN waits", 10_003_465, {"by": "deadline"}),
        ("b", "sleeper:WOKEN blocks", 10_003_485, {}),
        ("e", "sleeper:WOKEN blocks", 10_003_492, {}),
        ("e", "sleeper", 10_003_492, {}),
    ]
    assert track("laggard") == [
        ("b", "laggard", 0, {"by": "started", "waker": ids["script"]}),
        ("b", "laggard:LATE waits", 1115,
         {"for": "event, limited", "on": ["a channel without a name"], "until": 9000}),
        ("e", "laggard:LATE waits", 10_003_465, {"by": "overdue"}),
        ("n", "laggard:LATE is failed", 10_003_485, {"errno": 110}),
        ("e", "laggard", 10_003_485, {}),
    ]
    assert [entry[:2] for entry in track("script")] == [("b", "script"), ("e", "script")]


def test_arrows_from_who_wakes_to_who_is_woken(events):
    """The script started three foms in its first tick, and woke the reader in its second."""
    begins = {event["id"]: ns(event["ts"]) for event in of(events, "s")}
    ends = {event["id"]: ns(event["ts"]) for event in of(events, "f")}
    assert begins.keys() == ends.keys()
    assert sorted((begins[arrow], ends[arrow]) for arrow in begins) == [
        (0, 100), (0, 1100), (0, 1110), (1115, 3115)]

# SPDX-License-Identifier: Apache-2.0
"""Goal: bench/run keeps its contract (the JSON object on the last line, the exit status), computes
figures as the harness does, and never leaves a process behind.
Method: run it with --quick, which measures something but judges nothing; feed its arithmetic with
known samples; end it in the middle and look through /proc.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from suite import Context, Unavailable, measure, servers
from suite.context import busy
from support.patience import PATIENCE_S


def bench_run(source, build, *arguments):
    return subprocess.run([source / "bench" / "run", "--build", build, *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S,
                          check=False)


@pytest.mark.parametrize("after, share", [
    ("cpu 110 0 20 985 105 0 0 0 0 0", 0.1),  # Ten ticks of a hundred.
    ("cpu 100 0 20 1000 100 0 0 0 0 0", 0.0),
    ("cpu 100 0 20 950 100 0 0 50 0 0", 0.5),  # Another guest's.
    ("cpu 100 0 20 900 100 0 0 0 0 0", 0.0),  # No time has passed.
])
def test_who_is_busy_is_seen_at_once(tmp_path, after, share):
    stat = tmp_path / "stat"
    stat.write_text("cpu 100 0 20 900 100 0 0 0 0 0\ncpu0 1 2 3\n")
    assert busy(stat, lambda _: stat.write_text(after + "\n")) == pytest.approx(share)


def contract(output):
    """The object on the last line, checked for what everyone may rely on."""
    result = json.loads(output.splitlines()[-1])
    assert set(measure.REQUIRED) <= set(result)
    assert isinstance(result["bench"], str)
    assert isinstance(result["ratio"], float) and result["ratio"] > 0
    assert isinstance(result["bar"], float) and result["bar"] > 0
    assert result["ok"] is (result["ratio"] <= result["bar"])
    assert isinstance(result["peer"], str)
    assert isinstance(result["runs"], int) and result["runs"] >= 1
    assert isinstance(result["spread"], float) and result["spread"] >= 0
    assert result["better"] == "lower"
    return result


def test_list(source, build):
    done = bench_run(source, build, "--list")
    assert done.returncode == 0
    names = done.stdout.splitlines()
    assert {"noise", "reactor", "cache-1", "cache-16", "http-cost", "idle-connections"} <= set(names)
    assert len(names) == len(set(names))


def test_a_missing_peer_is_listed_and_says_what_to_install(source, tmp_path):
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "list").write_text("engine-engine !bench\n")
    assert "engine-engine" in bench_run(source, tmp_path, "--list").stdout.splitlines()
    done = bench_run(source, tmp_path, "engine-engine")
    assert done.returncode == 2
    assert "`make packages GROUP=bench`" in json.loads(done.stdout.splitlines()[-1])["unavailable"]


def test_the_list_does_not_depend_on_what_is_installed(source, build):
    """Each micro-benchmark of the tree is listed, built or not."""
    listed = set(bench_run(source, build, "--list").stdout.splitlines())
    found = {path.relative_to(source / "src").with_suffix("") for path in (source / "src").rglob("*_bench.c")}
    assert {f"{path.parent}-{path.name.removesuffix('_bench')}" for path in found} <= listed


def test_micro_benchmark(source, build):
    done = bench_run(source, build, "noise", "--quick")
    assert done.returncode == 0, done.stderr
    result = contract(done.stdout)
    assert result["bench"] == "noise" and result["quick"] is True
    assert result["ours_ns"] > 0 and result["peer_ns"] > 0
    assert result["command"] == "bench/run noise --quick"
    assert result["machine"]["processors"] >= 1


def test_runs(source, build):
    done = bench_run(source, build, "noise", "--quick", "--runs", "5")
    assert contract(done.stdout)["runs"] == 5
    done = bench_run(source, build, "noise", "--passes", "3")
    assert contract(done.stdout)["runs"] == 7, "11 divided by 3 would say too little"
    assert bench_run(source, build, "noise", "--passes", "0").returncode == 2


@pytest.mark.needs("memcached")
def test_servers(source, build):
    done = bench_run(source, build, "reactor", "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    result = contract(done.stdout)
    assert [part["bench"] for part in result["parts"]] == ["reactor-1", "reactor-16"]
    assert result["ratio"] == max(part["ratio"] for part in result["parts"])
    assert result["bare_to_memcached_1"] > 0 and result["bare_to_memcached_16"] > 0
    assert result["bar"] == 1.1


@pytest.mark.needs("io-uring")
def test_uring_beside_epoll(source, build):
    done = bench_run(source, build, "reactor-uring", "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    result = contract(done.stdout)
    assert result["peer"] == "epoll" and result["informational"] is True
    for part in result["parts"]:
        assert part["control_ratio"] > 0 and part["control_spread"] is not None
        for side in ("ours", "peers"):
            latencies = [part[side][f"latency_{name}_us"] for name in ("p50", "p99", "p99.9", "max")]
            assert latencies == sorted(latencies) and latencies[0] > 0
            assert 0 <= part[side]["server_idle_share"] < 1


def test_unknown_name(source, build):
    done = bench_run(source, build, "nonsense")
    assert done.returncode == 2
    assert "nonsense" in done.stderr and "--list" in done.stderr


def test_missing_build(source, tmp_path):
    done = bench_run(source, tmp_path, "noise")
    assert done.returncode == 2
    assert "make" in done.stderr


def test_nothing_asked(source, build):
    assert bench_run(source, build).returncode == 2
    assert bench_run(source, build, "--all", "noise").returncode == 2


def processes_of_session(session):
    """Process numbers of a session, without zombies."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, of, *_ = stat.read_text().rpartition(") ")[2].split()
            if int(of) == session and state != "Z":
                found.append(int(stat.parent.name))
    return found


@pytest.mark.needs("memcached")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind(source, build, number):
    """Ended while servers are up. Whatever bench/run cannot end any more, all of them after SIGKILL,
    the kernel ends, which may be a moment after bench/run itself is gone."""
    process = subprocess.Popen(
        [source / "bench" / "run", "--build", build, "reactor", "--runs", "100", "--quick"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)
    with process:
        for line in process.stdout:
            if "round 2" in line:
                break
        while len(processes_of_session(process.pid)) == 1:  # Servers are started anew every few rounds.
            pass
        process.send_signal(number)
    assert process.returncode != 0
    deadline = time.monotonic() + PATIENCE_S
    while (left := processes_of_session(process.pid)) and time.monotonic() < deadline:
        pass
    for survivor in left:
        os.kill(survivor, signal.SIGKILL)
    assert left == []


@pytest.mark.parametrize("failure", [None, RuntimeError, KeyboardInterrupt])
def test_a_server_ends_with_its_block(context, failure):
    with contextlib.suppress(RuntimeError, KeyboardInterrupt):
        with servers.running(servers.bare_loop, context) as server:
            assert server.process.poll() is None
            if failure is not None:
                raise failure
    assert server.process.poll() is not None


def test_a_server_that_does_not_start(context):
    def command(_context, port):
        return ["sh", "-c", f"echo no room on {port} >&2; exit 3"]

    with pytest.raises(Unavailable, match="no room on"):
        with servers.running(command, context):
            pytest.fail("it did not start")


def test_summary_is_the_harness_s():
    """The same samples and answers as in bench/harness_test.c."""
    odd = [5, 1, 4, 2, 3]
    assert [measure.quantile(odd, q) for q in (0.25, 0.5, 0.75)] == [2, 3, 4]
    assert measure.spread(odd) == 2 / 3
    even = [40, 10, 20, 30]
    assert [measure.quantile(even, q) for q in (0.25, 0.5, 0.75)] == [17.5, 25, 32.5]
    assert measure.spread(even) == 15 / 25
    assert measure.median([7]) == 7 and measure.spread([7]) == 0
    assert measure.spread([0, 0, 0]) == 0


def test_ratio_is_taken_within_rounds():
    """A machine that is twice as slow in some rounds does not move the ratio."""
    result = measure.compare("x", [10, 20, 10, 40, 10], [20, 40, 20, 80, 20], peer="p", bar=0.6,
                             unit="u")
    assert result["ratio"] == 0.5 and result["spread"] == 0 and result["ok"]
    assert result["runs"] == 5 and result["ours_ns"] == 10 and result["peer_ns"] == 20
    result = measure.compare("x", [13, 12, 14], [20, 20, 20], peer="p", bar=0.6, unit="u")
    assert result["ratio"] == 0.65 and not result["ok"]


def test_combined_result_is_the_worst():
    def part(name, ratio, bar, **more):
        return {"bench": name, "ratio": ratio, "bar": bar, "ok": ratio <= bar, "peer": "p",
                "runs": 5, "spread": 0.01, **more}

    parts = [part("a", 0.9, 1.0), part("b", 0.5, 0.4), part("c", 2.0, 4.0)]
    result = measure.combine("all", parts)
    assert (result["worst"], result["ratio"], result["bar"]) == ("b", 0.5, 0.4)
    assert result["ok"] is False and result["parts"] == parts
    parts[1]["informational"] = True
    result = measure.combine("all", parts)
    assert result["worst"] == "a" and result["ok"] is True
    missing = {"bench": "d", "ratio": None, "ok": False}
    assert measure.combine("all", [*parts, missing])["ok"] is False


def test_passes_divide_the_rounds(build):
    def of(**more):
        return Context(build, **{"runs": None, "quick": False, "passes": 3, **more})

    assert [of().rounds(default) for default in (1, 3, 5, 7, 25)] == [1, 1, 2, 2, 8]
    assert of(runs=9).rounds(7) == 9 and of(quick=True).rounds(7) == 1 and of(passes=1).rounds(7) == 7
    assert of().options() == ["--passes 3"] and of(passes=1).options() == []


def test_sides_take_turns():
    assert measure.alternate(["a", "b", "c"], 0) == ["a", "b", "c"]
    assert measure.alternate(["a", "b", "c"], 1) == ["c", "b", "a"]

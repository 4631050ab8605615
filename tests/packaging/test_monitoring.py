# SPDX-License-Identifier: Apache-2.0
"""Goal: alerts fire when they should and dashboards show something: what they name exists, and Prometheus reads what they ask.
Method: promtool, and the metrics of a master and its slave that run."""

import json
import re
import subprocess

import pytest
from served import wait_for
from test_http import Watched, metric
from test_repl import replication_address

RULES, TESTS, DASHBOARD = "fairway.rules.yml", "fairway.rules.test.yml", "fairway.dashboard.json"


@pytest.fixture(scope="module")
def folder(source):
    return source / "packaging" / "monitoring"


@pytest.fixture(scope="module")
def live(fairway):
    """The names of all metrics of a master and its slave, without what a histogram adds to its own."""
    replicated = ["-t", "1", "--repl-enable", "--repl-listen", "127.0.0.1:0"]
    with Watched(fairway, *replicated) as master:
        with Watched(fairway, *replicated, "--repl-master", replication_address(master)) as slave:
            wait_for(lambda: metric(slave.ask("/metrics").text, "fairway_repl_link_up") == 1)
            wait_for(lambda: metric(master.ask("/metrics").text, "fairway_repl_slaves") == 1)
            pages = master.ask("/metrics").text + slave.ask("/metrics").text
    return set(re.findall(r"^# TYPE (\S+)", pages, re.MULTILINE))


def named(text):
    """All metrics that a text names."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\bfairway_[a-z0-9_]+", text)}


def expressions(folder):
    panels = json.loads((folder / DASHBOARD).read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


@pytest.mark.parametrize("name", [RULES, DASHBOARD])
def test_what_is_asked_for_exists(folder, live, name):
    asked = named((folder / name).read_text())
    assert len(asked) > 10
    assert asked - live == set()


def test_the_manual_names_metrics_that_exist(source, live):
    asked = named((source / "docs" / "monitoring.md").read_text())
    assert asked and asked - live == set()


@pytest.mark.needs("promtool")
def test_alerts_fire_when_they_should(folder):
    for command in (["check", "rules", RULES], ["test", "rules", TESTS]):
        done = subprocess.run(["promtool", *command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        assert done.returncode == 0, done.stdout


def test_every_alert_is_tested_and_explained(source, folder):
    alerts = set(re.findall(r"alert: (\w+)", (folder / RULES).read_text()))
    assert set(re.findall(r"alertname: (\w+)", (folder / TESTS).read_text())) == alerts
    assert set(re.findall(r"`(Fairway\w+)`", (source / "docs" / "monitoring.md").read_text())) == alerts


@pytest.mark.needs("promtool")
def test_prometheus_reads_the_dashboard(folder, tmp_path):
    """Each of its expressions, as a rule, with what Grafana would put in for its variables."""
    lines = ["groups:", "- name: dashboard", "  rules:"]
    for i, expression in enumerate(expressions(folder)):
        lines += [f"  - record: x{i}", f"    expr: {json.dumps(expression.replace('$__rate_interval', '5m'))}"]
    rules = tmp_path / "rules.yml"
    rules.write_text("\n".join(lines) + "\n")
    done = subprocess.run(["promtool", "check", "rules", rules], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout


def test_the_dashboard_is_laid_out(folder):
    """Panels have a number each, do not lie on each other, and ask the Prometheus that the user chose."""
    panels = json.loads((folder / DASHBOARD).read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [(x, y) for panel in panels
             for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
             for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])]
    assert len(set(taken)) == len(taken) and max(x for x, _ in taken) < 24
    asked = [target["datasource"]["uid"] for panel in panels for target in panel.get("targets", [])]
    assert set(asked) == {"${datasource}"}

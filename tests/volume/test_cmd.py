# SPDX-License-Identifier: Apache-2.0
"""Goal: `fairway volume` takes people through the life of a group, and explains what it cannot do.
Method: the program on files; every action once in the right way, and in the wrong ways people try."""

import fcntl
import json
import pathlib
import random
import re
import struct
import subprocess
import threading

import pytest

from group import FAILED, OK, USAGE, Group, owners, placed

F_OFD_SETLK = 37  # Not in Python's fcntl: a lock of an opening, not of the process.
OPERATOR_LOCKS = (1023, 1024)  # Which bytes of the file: volume/remote.h.


@pytest.fixture
def group(fairway, tmp_path):
    group = Group(fairway, tmp_path / "group")
    group.make()
    return group


def fails(group, says, action, *arguments):
    done = group.run(action, *arguments)
    assert done.returncode == FAILED and says in done.stderr, done.stderr
    assert done.stderr.startswith(b"fairway: ") and done.stderr.count(b"fairway: ") == 1


def test_life_of_a_group(group):
    path = group.path
    group.do("create", "--extents", "10", path, "web")
    group.do("connect", path, "one")
    told = json.loads(group.do("list", "--json", path))
    assert [(volume["name"], volume["size"], volume["placed"], volume["open_on"])
            for volume in told["volumes"]] == [("web", 10, 0, [])]
    assert len(told["volumes"][0]["uuid"]) == 32
    manager = group.manager()
    agent = group.agent("one", "--wait", "60s")
    assert agent.ask("open web") == "ok"
    assert agent.ask("allocate 3 2") == "ok"
    mapped = dict(map(int, pair.split(":")) for pair in agent.ask("map").split()[:-1])
    assert list(mapped) == [3, 4]
    dump = group.dump()
    assert placed(dump, "web") == mapped
    assert dump["volumes"][0]["open_on"] == ["one"]
    assert len(owners(dump)) == len(set(owners(dump))) == dump["extents"] - dump["free"]
    table = group.do("list", path).split(b"\n")[1].split()
    assert table == [b"web", b"10", b"2", b"one"]
    assert agent.ask("discard 3 1") == "ok"
    assert agent.ask("allocate 9 2").startswith("failed: 'web' has 10 extents")
    assert agent.ask("sing").startswith("failed: open VOLUME")
    assert agent.end() == OK
    assert manager.end() == OK
    dump = group.dump()
    assert list(placed(dump, "web")) == [4]
    assert dump["free"] == dump["extents"] - 1 - dump["hosts"][0]["pool"]
    assert b"sound" in group.do("check", path)
    fails(group, b"data at extent 4", "resize", "--extents", "4", path, "web")
    group.do("resize", "--extents", "5", path, "web")
    group.do("remove", path, "web")
    group.do("flush", path)
    assert group.dump()["volumes"] == []
    pool = group.dump()["hosts"][0]["pool"]
    assert group.do("hosts", path).split(b"\n")[1].split() == [b"one", b"%d" % pool, b"0"]


def test_a_volume_has_a_size(group):
    """One of no extents would be good for nothing."""
    group.do("create", "--extents", "10", group.path, "web")
    for action, name in (("create", "new"), ("resize", "web")):
        for options in ([], ["--extents", "0"]):
            done = group.run(action, *options, group.path, name)
            assert done.returncode == USAGE and b"by --extents" in done.stderr, done
    assert [(volume["name"], volume["size"]) for volume in group.dump()["volumes"]] == [("web", 10)]


def test_hosts_go(group):
    path = group.path
    group.do("connect", path, "one")
    group.do("connect", path, "two")
    fails(group, b"connected already", "connect", path, "one")
    fails(group, b"there is no host", "disconnect", path, "three")
    fails(group, b"has not answered", "disconnect", path, "one")
    group.do("reclaim", path, "one")
    manager = group.manager()
    agent = group.agent("two", "--wait", "60s")
    fails(group, b"runs on this host already", "manager", path)
    fails(group, b"runs on this host already", "agent", path, "two")
    fails(group, b"there is no host", "agent", path, "three")
    assert manager.end() == OK
    fails(group, b"lives", "reclaim", path, "two")
    group.do("disconnect", "--wait", "60s", path, "two")
    agent.kill()
    told = json.loads(group.do("hosts", "--json", path))
    assert told["hosts"] == []
    dump = group.dump()
    assert dump["free"] == dump["extents"]


def tells_whom_it_waits_for(group, host):
    """Asks the host to go, which does not answer, and gives up when the command says that it waits for it."""
    with subprocess.Popen([group.fairway, "volume", "disconnect", "--wait", "1h", group.path, host],
                          stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        line = process.stderr.readline()
        process.terminate()
    assert line.startswith(f"{group.path}: waiting for {host}, ".encode()), line


def test_long_work_tells_of_itself(group):
    """A host is asked to go that is not there to answer: whoever asked learns what is waited for."""
    group.do("connect", group.path, "one")
    tells_whom_it_waits_for(group, "one")


def test_beside_a_manager(group):
    """What changes a group works while its manager runs, which does it; until it is told to end."""
    path = group.path
    manager = group.manager()
    group.do("connect", path, "one")
    group.do("connect", path, "two")
    agent = group.agent("one", "--wait", "60s")
    group.do("create", "--extents", "10", path, "web")
    fails(group, b"there is a volume 'web' already", "create", "--extents", "10", path, "web")
    fails(group, b"is no name", "create", "--extents", "10", path, "we b")
    assert agent.ask("open web") == "ok"
    assert agent.ask("allocate 3 1") == "ok"
    group.do("flush", path)
    group.do("resize", "--extents", "12", path, "web")
    fails(group, b"has 'web' open", "remove", path, "web")
    fails(group, b"lives", "reclaim", path, "one")
    told = group.run("shutdown", path, "two")
    assert told.returncode == FAILED and b"has not answered" in told.stderr
    tells_whom_it_waits_for(group, "two")
    group.do("reclaim", path, "two")
    group.do("shutdown", "--manager-only", path)
    assert manager.process.stdout.readline() == b"an operator has shut the manager down\n"
    assert manager.process.wait(timeout=60) == OK
    assert agent.ask("allocate 4 1") == "ok"  # It goes on from its pool.
    manager = group.manager()
    fails(group, b"host 'one' has 'web' open, so nothing was shut down", "shutdown", "--wait", "60s", path)
    fails(group, b"host 'one' has 'web' open", "shutdown", "--wait", "60s", path, "one")
    fails(group, b"host 'one' has 'web' open", "disconnect", "--wait", "60s", path, "one")
    assert agent.ask("allocate 5 1") == "ok"  # Nothing has changed.
    assert group.dump()["volumes"][0]["open_on"] == ["one"]
    assert agent.ask("close") == "ok"
    group.do("shutdown", "--wait", "60s", path)
    assert manager.process.wait(timeout=60) == OK
    assert agent.ask("open web").startswith("failed: ")
    agent.end()
    dump = group.dump()
    assert dump["hosts"] == [] and dump["volumes"][0]["size"] == 12
    assert list(placed(dump, "web")) == [3, 4, 5] and dump["free"] == dump["extents"] - 3


def test_rings_of_an_agent_that_has_not_ended(group):
    """They are not given to another host: it would write to them once more when it ends."""
    path = group.path
    group.do("format", "--replace", "--hosts", "1", "--extent-size", "16k", "--ring-size", "64k", path)
    manager = group.manager()
    group.do("connect", path, "one")
    agent = group.agent("one")
    group.do("disconnect", "--wait", "60s", path, "one")
    fails(group, b"has not ended", "connect", path, "two")
    assert agent.end() == OK
    group.do("connect", path, "two")
    agent = group.agent("two", "--wait", "60s")
    group.do("create", "--extents", "2", path, "web")
    assert agent.ask("open web") == "ok" and agent.ask("allocate 0 2") == "ok"
    assert agent.end() == OK and manager.end() == OK
    assert b"sound" in group.do("check", path)


def test_operators_take_turns(group):
    manager = group.manager()
    operators = [threading.Thread(target=group.do, args=("create", "--extents", "1", group.path, f"v{i}"))
                 for i in range(6)]
    for operator in operators:
        operator.start()
    for operator in operators:
        operator.join()
    assert sorted(volume["name"] for volume in group.dump()["volumes"]) == [f"v{i}" for i in range(6)]
    assert manager.end() == OK


def sleeps(pid):
    """How often the process has slept."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)$", status, re.MULTILINE)[1])


def test_a_manager_waits_for_a_command(group):
    """An operator is the manager until its command is done, however long the disk takes for that. Here the test has
    the locks of such an operator, until the manager that was started has looked for its own again and again."""
    command = [group.fairway, "volume", "manager", "--interval", "10ms", group.path]
    with open(group.path, "r+b") as operator:
        for byte in OPERATOR_LOCKS:
            fcntl.fcntl(operator, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, byte, 1, 0))
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as manager:
            while sleeps(manager.pid) < 500:
                assert manager.poll() is None, manager.stderr.read()
            operator.close()
            assert manager.stdout.readline() == b"managing\n"
            manager.terminate()
    assert manager.returncode == OK


def test_what_is_no_group(group, tmp_path):
    fails(group, b"there is a group of volumes already", "format", group.path)
    group.do("format", "--replace", group.path, "--extent-size", "16k", "--ring-size", "64k")
    fails(group, b"No such file", "list", tmp_path / "nothing")
    empty = tmp_path / "empty"
    empty.write_bytes(bytes(65536))
    for action in ("list", "manager", "check"):
        fails(group, b"'fairway volume format' makes one", action, empty)
    fails(group, b"too few", "format", "--size", "64k", tmp_path / "small")
    assert not (tmp_path / "small").exists()  # What it made for nothing it takes away.
    fails(group, b"too few", "format", "--replace", empty)
    assert empty.read_bytes() == bytes(65536)


def test_damage_is_explained_and_left_alone(group):
    group.do("create", "--extents", "10", group.path, "web")
    with open(group.path, "r+b") as file:
        file.seek(40)
        file.write(b"\xff")
    before = group.path.read_bytes()
    for action in ("list", "manager", "dump", "flush"):
        fails(group, b"block 0 (head)", action, group.path)
    assert group.path.read_bytes() == before


def spoil_ring(path, number):
    """Changes the first byte of the head of a ring. 0 is the redo log; those of the first host begin with 3."""
    data = bytearray(path.read_bytes())
    heads = [match.start() for match in re.finditer(b"fairway ring 2\n", data)]
    data[heads[number]] ^= 1
    path.write_bytes(data)


def test_a_ring_without_a_head_is_not_empty(group):
    """What is in a ring that cannot be found must not be taken for what was never said: here a placement."""
    path = group.path
    group.do("create", "--extents", "10", path, "web")
    group.do("create", "--extents", "10", path, "mail")
    group.do("connect", path, "one")
    group.do("connect", path, "two")
    manager = group.manager()
    agent = group.agent("one", "--wait", "60s")
    assert agent.ask("open web") == "ok" and agent.ask("allocate 0 1") == "ok"
    assert manager.end() == OK
    assert agent.ask("allocate 1 1") == "ok"
    assert agent.end() == OK
    whole = path.read_bytes()
    spoil_ring(path, 0)
    for action in ("list", "check", "dump", "flush"):
        assert group.run(action, path).returncode == FAILED
    path.write_bytes(whole)
    spoil_ring(path, 3)
    for action in ("list", "check", "dump"):
        fails(group, b"a ring of host 'one' is damaged", action, path)
    agent = group.agent("two")  # The others can go on, and so can the manager.
    assert agent.ask("open mail") == "ok" and agent.end() == OK
    group.do("reclaim", path, "one")
    assert b"sound" in group.do("check", path)
    assert list(placed(group.dump(), "web")) == [0]


def test_cut_short(group, tmp_path):
    cut = tmp_path / "cut"
    cut.write_bytes(group.path.read_bytes()[:-16384])
    for action in ("list", "check", "flush", "manager"):
        fails(group, b"and this one has", action, cut)


def test_damage_anywhere_is_an_answer(group):
    """Whatever block is lost: an answer, not a crash; and what says that all is well is right. The damage is done in
    place: a copy would be another disk, whose lease each command takes over only after a while."""
    group.do("create", "--extents", "10", group.path, "web")
    group.do("connect", group.path, "one")
    whole = group.path.read_bytes()
    end = group.dump()["data_offset"]
    for offset in range(0, end, 13 * 4096):
        group.path.write_bytes(whole[:offset] + bytes([255]) * 4096 + whole[offset + 4096:])
        for action, *rest in (["check"], ["create", "--extents", "1", "new"]):
            done = group.run(action, *rest[:-1], group.path, *rest[-1:])
            assert done.returncode in (OK, FAILED), (offset, action, done)
            assert done.returncode == OK or done.stderr.startswith(b"fairway: "), (offset, done)
        if done.returncode == OK:
            assert [volume["name"] for volume in json.loads(group.do("list", "--json", group.path))["volumes"]
                    ] == ["web", "new"], offset


def test_killed_in_a_command(group):
    """At any moment: the volume is there whole, or it is not; and the next command works."""
    chance = random.Random(3)
    for number in range(12):
        command = [group.fairway, "volume", "create", "--extents", "2", group.path, f"v{number}"]
        with subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL) as process:
            try:
                process.wait(timeout=chance.uniform(0, 0.02))
            except subprocess.TimeoutExpired:
                process.kill()
        assert b"sound" in group.do("check", group.path)
    made = len(group.dump()["volumes"])
    group.do("create", "--extents", "2", group.path, "last")
    assert len(group.dump()["volumes"]) == made + 1


@pytest.mark.parametrize("arguments", [[], ["create", "x"], ["twist", "x"], ["list", "a", "b"],
                                       ["format", "--hosts", "0", "x"], ["format", "--hold", "999ms", "x"],
                                       ["format", "--hold", "601s", "x"]])
def test_wrong_calls(group, arguments):
    done = group.run(*(arguments or [""]))
    assert done.returncode == USAGE
    assert done.stderr.startswith(b"fairway: ") and done.stderr.count(b"\n") == 1

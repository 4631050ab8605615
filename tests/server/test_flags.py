# SPDX-License-Identifier: Apache-2.0
"""Goal: whatever a script starts memcached with starts this too: every flag is taken, those that mean
nothing here are named once in the log, and the rest do what they say.
Method: start the built program with the flags, and look at the process, its files and its log."""

import os
import pathlib
import pwd
import signal
import struct
import subprocess

import pytest

from served import START_S, Client, Served, wait_for

# From memcached's own help, with values that scripts use.
MEANINGLESS = [
    ["-U", "0"], ["-f", "1.25"], ["-n", "48"], ["-L"], ["-D", ":"], ["-W"],
    ["-o", "modern"], ["-o", "no_modern"], ["-o", "hashpower=20"],
    ["-o", "tail_repair_time=0"], ["-o", "hash_algorithm=murmur3"], ["-o", "lru_crawler"],
    ["-o", "no_lru_crawler"], ["-o", "lru_crawler_sleep=100"], ["-o", "lru_crawler_tocrawl=0"],
    ["-o", "lru_maintainer,hot_lru_pct=20,warm_lru_pct=40,hot_max_factor=0.2"],
    ["-o", "warm_max_factor=2.0,temporary_ttl=61"], ["-o", "slab_reassign,slab_automove"],
    ["-o", "slab_automove=2"], ["-o", "no_slab_reassign"], ["-o", "slab_chunk_max=512"],
    ["-o", "watcher_logbuf_size=256,worker_logbuf_size=64"],
    ["-o", "no_hashexpand"], ["-o", "no_inline_ascii_resp"],
    ["-o", "no_drop_privileges"], ["-o", "ext_path=/tmp/none:1G,ext_threads=1"],
]


@pytest.mark.parametrize("flags", MEANINGLESS, ids=lambda flags: " ".join(flags))
def test_flags_without_a_meaning(fairway, flags):
    with Served(fairway, *flags) as server, server.connect() as client:
        assert client.get(b"k") is None
        log = server.read_log()
    count = flags[1].count(",") + 1 if flags[0] == "-o" else 1
    assert log.count("is accepted for memcached's sake") == count


def test_no_evictions(fairway):
    with Served(fairway, "-M", "-m", "16") as server, server.connect() as client:
        answers = set()
        for number in range(3000):
            answers.add(client.ask(b"set key-%d 0 0 8000\r\n%s\r\n" % (number, b"x" * 8000)))
        assert answers == {b"STORED\r\n", b"SERVER_ERROR out of memory storing object\r\n"}
        assert client.get(b"key-0") == b"x" * 8000


def test_item_size(fairway):
    with Served(fairway, "-I", "4m", "-m", "64") as server, server.connect() as client:
        client.set(b"k", b"x" * 3_000_000)
        assert client.get(b"k") == b"x" * 3_000_000
    with Served(fairway, "-I", "2k") as server, server.connect() as client:
        assert client.ask(b"set k 0 0 3000\r\n%s\r\n" % (b"x" * 3000)) == (
            b"SERVER_ERROR object too large for cache\r\n")


def test_text_login(fairway, tmp_path):
    users = tmp_path / "users"
    users.write_text("alice:secret\n")
    users.chmod(0o600)
    with Served(fairway, "-Y", str(users)) as server, server.connect() as client:
        assert client.ask(b"get k\r\n") == b"CLIENT_ERROR unauthenticated\r\n"
        assert client.ask(b"set a 0 0 12\r\nalice secret\r\n") == b"STORED\r\n"
        assert client.get(b"k") is None


def sasl_plain(user, password):
    """A request of the binary protocol: opcode 0x21 with the mechanism as its key."""
    body = b"PLAIN" + b"\0" + user + b"\0" + password
    return struct.pack(">BBHBBHIIQ", 0x80, 0x21, len(b"PLAIN"), 0, 0, 0, len(body), 0, 0) + body


@pytest.mark.parametrize("how", ["option", "environment"])
def test_sasl(fairway, tmp_path, monkeypatch, how):
    users = tmp_path / "users"
    users.write_text("alice:secret\n")
    users.chmod(0o600)
    flags = ["--sasl-file", str(users)] if how == "option" else []
    if how == "environment":
        monkeypatch.setenv("MEMCACHED_SASL_PWDB", str(users))
    with Served(fairway, "-S", *flags) as server:
        for password, status in ((b"wrong", 0x20), (b"secret", 0)):
            with server.connect() as client:
                client.send(sasl_plain(b"alice", password))
                header = client.file.read(24)
                assert header[:2] == b"\x81\x21"
                assert struct.unpack(">H", header[6:8])[0] == status


@pytest.fixture
def folder():
    """One that any user may write to: pytest's are root's own."""
    path = pathlib.Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    path.chmod(0o777)
    yield path
    subprocess.run(["rm", "-r", str(path)], check=True)


def run(fairway, *arguments, folder=None):
    return subprocess.run([str(fairway), "serve", *map(str, arguments)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=START_S, check=False, cwd=folder)


def test_daemon(fairway, folder):
    """The command returns when the daemon serves; the daemon has a session of its own."""
    pid_file, socket_file = folder / "pid", folder / "socket"
    done = run(fairway, "-d", "-s", socket_file, "-P", "pid", "--log-file", "log", folder=folder)
    assert done.returncode == 0 and done.stdout == ""
    pid = int(pid_file.read_text())
    try:
        with Client(f"unix:{socket_file}") as client:
            client.set(b"k", b"v")
            assert client.get(b"k") == b"v"
        assert os.getsid(pid) == pid != os.getsid(0)
        assert os.readlink(f"/proc/{pid}/fd/2") == "/dev/null"
        (folder / "log").unlink()  # Names are those of the folder it was started in, later too.
        os.kill(pid, signal.SIGHUP)
        wait_for((folder / "log").exists)
    finally:
        os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not pid_file.exists() and not socket_file.exists())


def test_daemon_without_standard_files(fairway, folder):
    """What it opens gets none of their numbers, which it gives up when it serves."""
    command = f'exec "{fairway}" serve -d -s "{folder}/socket" -P pid <&- >&- 2>&-'
    done = subprocess.run(["sh", "-c", command], cwd=folder, timeout=START_S, check=False)
    assert done.returncode == 0
    pid = int((folder / "pid").read_text())
    try:
        with Client(f"unix:{folder / 'socket'}") as client:
            client.set(b"k", b"v")
            assert client.get(b"k") == b"v"
    finally:
        os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not (folder / "pid").exists())


def test_daemon_that_cannot_serve_says_so(fairway, folder):
    with Served(fairway) as server:
        done = run(fairway, "-d", "-l", server.addresses[0], "-P", folder / "pid")
        assert done.returncode == os.EX_OSERR
        assert "in use" in done.stderr.lower()
        assert not (folder / "pid").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="root: only root can become another user")
def test_user(fairway, folder):
    program = folder / "fairway"  # Where that user can reach it.
    program.write_bytes(fairway.read_bytes())
    program.chmod(0o755)
    nobody = pwd.getpwnam("nobody")
    with Served(program, "-u", "nobody") as server, server.connect() as client:
        assert client.get(b"k") is None
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
        assert status.split("Uid:")[1].split()[:4] == [str(nobody.pw_uid)] * 4
        assert status.split("Gid:")[1].split()[:4] == [str(nobody.pw_gid)] * 4
    done = run(fairway, "-u", "nobody-of-that-name")
    assert done.returncode == 1 and "nobody-of-that-name" in done.stderr


def test_refusals(fairway):
    assert "no TLS" in run(fairway, "-Z").stderr
    done = run(fairway, "-S")
    assert done.returncode == os.EX_USAGE and "--sasl-file" in done.stderr
    assert run(fairway, "-Y", "/none/users").returncode == 1
    assert run(fairway, "-R", "0").returncode == os.EX_USAGE


def test_what_only_prints(fairway):
    assert run(fairway, "-V").stdout.startswith("fairway ")
    assert "Apache" in run(fairway, "-i").stdout
    text = run(fairway, "-h").stdout
    for flag in "plsambcdutPIMvhVSYRoAXFCkrZi":
        assert f" -{flag}, --" in text, flag
    assert "slab" not in text


def test_descriptors_are_raised(fairway):
    """memcached's -c raises the limit of descriptors by itself, and so does this."""
    with Served(fairway, "-c", "3000", descriptors=(200, 4000)) as server:
        limits = pathlib.Path(f"/proc/{server.process.pid}/limits").read_text()
        line = next(line for line in limits.splitlines() if line.startswith("Max open files"))
        assert int(line.split()[3]) >= 3000

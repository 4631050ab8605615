# SPDX-License-Identifier: Apache-2.0
"""Goal: nobody gets in without a password: -Y for the text protocol, -S for the binary one (SASL PLAIN).
Method: real logins, right and wrong, and each kind of command before, between and after.

Fairway and upstream's memcached read the users of -S from the file that MEMCACHED_SASL_PWDB names.
Debian's memcached asks Cyrus SASL, for which the fixture makes a small database; the server under
test gets both and takes the one it knows."""

import subprocess
import sys

import pytest

import binary as b
from binary import BinaryClient, packet, store

USERS = "joe:secret\njane:another\n"

CYRUS = """
import ctypes, sys
path, *users = sys.argv[1:]
options = {b"sasldb_path": path.encode(), b"auxprop_plugin": b"sasldb"}
sasl = ctypes.CDLL("libsasl2.so.2")
class Callback(ctypes.Structure):
    _fields_ = [("id", ctypes.c_ulong), ("function", ctypes.c_void_p), ("context", ctypes.c_void_p)]
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p,
                  ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(ctypes.c_uint))
def option(context, plugin, name, result, size):
    if name not in options:
        return -1
    result[0] = options[name]
    return 0
callbacks = (Callback * 2)(Callback(1, ctypes.cast(option, ctypes.c_void_p), None))
connection = ctypes.c_void_p()
assert sasl.sasl_server_init(callbacks, b"memcached") == 0
assert sasl.sasl_server_new(b"memcached", *[None] * 5, 0, ctypes.byref(connection)) == 0
for user in users:
    name, password = user.encode().split(b":")
    assert sasl.sasl_setpass(connection, name, password, len(password), None, 0, 1) == 0
"""


@pytest.fixture(scope="module")
def text_server(start, tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "users"
    path.write_text(USERS)
    path.chmod(0o600)
    with start("-Y", path) as peer:
        yield peer


@pytest.fixture(scope="module")
def sasl_server(start, command, tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("sasl")
    path = tmp_path / "users"
    path.write_text(USERS)
    path.chmod(0o600)
    environment = {"MEMCACHED_SASL_PWDB": str(path), "SASL_CONF_PATH": str(tmp_path)}
    if command[0].endswith("memcached"):
        database = str(tmp_path / "cyrus")
        subprocess.run([sys.executable, "-c", CYRUS, database, *USERS.split("\n")[:2]], check=True)
        (tmp_path / "memcached.conf").write_text(
            "mech_list: plain\npwcheck_method: auxprop\nauxprop_plugin: sasldb\n"
            f"sasldb_path: {database}\n")
    with start("-S", environment=environment) as peer:
        yield peer


def log_in(client, words, reply=b"STORED\r\n"):
    client.ask(b"set any 0 0 %d\r\n%s\r\n" % (len(words), words), reply)


def test_text_nothing_works_before_the_login(text_server):
    with text_server.connect() as client:
        for line in (b"get k", b"mg k v", b"mn", b"version", b"stats", b"delete k", b"flush_all",
                     b"foo", b"set k 0 0 x", b"incr k 1", b"quit"):
            client.ask(line + b"\r\n", b"CLIENT_ERROR unauthenticated\r\n")
        log_in(client, b"joe secret")
        client.settled()


def test_text_login(text_server):
    with text_server.connect() as client:
        log_in(client, b"joe secret")
        assert client.get(b"any") is None  # The login stored nothing.
        client.set(b"any", b"v")
        assert client.get(b"any") == b"v"
    with text_server.connect() as other:  # Each connection logs in by itself.
        other.ask(b"get any\r\n", b"CLIENT_ERROR unauthenticated\r\n")
        log_in(other, b"jane another")
        assert other.get(b"any") == b"v"


def test_text_wrong_passwords(text_server):
    with text_server.connect() as client:
        for words in (b"joe secre", b"joe secrets", b"jane secret", b"Joe secret",
                      b"nobody secret"):
            log_in(client, words, b"CLIENT_ERROR authentication failure\r\n")
        log_in(client, b"joesecret", b"CLIENT_ERROR bad authentication token format\r\n")
        log_in(client, b"x" * 2000, b"CLIENT_ERROR bad authentication token format\r\n")
        client.ask(b"get k\r\n", b"CLIENT_ERROR unauthenticated\r\n")
        log_in(client, b"joe secret")


def test_text_split_login(text_server):
    with text_server.connect() as client:
        for byte in b"set any 0 0 10\r\njoe secret\r\nmn\r\n":
            client.send(bytes([byte]))
        client.expect(b"STORED\r\nMN\r\n")


def test_text_is_the_only_protocol_then(text_server):
    with text_server.connect() as client:
        client.ask(packet(b.NOOP), b"CLIENT_ERROR unauthenticated\r\n")


def plain(name, password):
    return packet(b.SASL_AUTH, b"PLAIN", b"\0" + name + b"\0" + password)


def test_sasl_login(sasl_server):
    with BinaryClient(sasl_server.address) as client:
        assert b"PLAIN" in client.succeed(packet(b.SASL_LIST)).value.split()
        assert client.succeed(plain(b"joe", b"secret")).value == b"Authenticated"
        client.succeed(store(b.SET, b"k", b"v"))
        client.settled()
    with BinaryClient(sasl_server.address) as other:
        assert other.succeed(packet(b.VERSION)).value  # For strangers too.
        other.succeed(plain(b"jane", b"another"))
        assert other.succeed(packet(b.GET, b"k")).value == b"v"


@pytest.mark.parametrize("packed", [
    packet(b.GET, b"k"), store(b.SET, b"k", b"v"), packet(b.NOOP), packet(b.FLUSH),
    packet(b.STAT), packet(b.QUIT), packet(b.GETQ, b"k")],
    ids=["get", "set", "noop", "flush", "stat", "quit", "getq"])
def test_sasl_nothing_works_before_the_login(sasl_server, packed):
    with BinaryClient(sasl_server.address) as client:
        client.fail(packed, b.AUTH_ERROR)
        assert client.ended()


def test_sasl_wrong_passwords(sasl_server):
    with BinaryClient(sasl_server.address) as client:
        client.fail(plain(b"joe", b"secre"), b.AUTH_ERROR)
        client.fail(plain(b"joe", b""), b.AUTH_ERROR)
        client.fail(plain(b"nobody", b"secret"), b.AUTH_ERROR)
        client.fail(packet(b.SASL_AUTH, b"PLAIN", b"joe"), b.AUTH_ERROR)
        client.fail(packet(b.SASL_AUTH, b"UNHEARD-OF", b"x"), b.AUTH_ERROR)
        client.fail(packet(b.SASL_STEP, b"PLAIN", b"x"), b.AUTH_ERROR)
        client.fail(packet(b.SASL_AUTH, b"x" * 33, b"x"), b.INVALID)
        client.succeed(plain(b"joe", b"secret"))
        client.settled()
    with BinaryClient(sasl_server.address) as client:
        client.fail(plain(b"joe", b"wrong"), b.AUTH_ERROR)
        client.fail(packet(b.GET, b"k"), b.AUTH_ERROR)
        assert client.ended()


def test_sasl_pipelined(sasl_server):
    with BinaryClient(sasl_server.address) as client:
        client.send(plain(b"joe", b"wrong") + plain(b"joe", b"secret") + packet(b.GET, b"no"))
        assert [client.reply().status for _ in range(3)] == [b.AUTH_ERROR, b.OK, b.NOT_FOUND]


def test_sasl_is_off_by_default(shared):
    with BinaryClient(shared.address) as client:
        client.fail(packet(b.SASL_LIST), b.UNKNOWN)
        client.fail(plain(b"joe", b"secret"), b.UNKNOWN)
        client.succeed(packet(b.NOOP))

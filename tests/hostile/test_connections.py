# SPDX-License-Identifier: Apache-2.0
"""Goal: a tenant that opens all the connections it can leaves others theirs. Method: a server with few places and a
tenant that takes whatever it gets, then a client of another tenant; limits by address, by login, and by what is left
once guaranteed places are set aside; and what a change of the file does to those who are there."""

import contextlib
import socket
import subprocess

import pytest

from served import Client, Served, wait_for

LIMIT = 60
REFUSAL = b"ERROR Too many open connections\r\n"


def flood_config(options):
    return f"""
[tenant flood]
match = address 127.0.0.2
{options}
[tenant modest]
match = address 127.0.0.1
{"connections-guaranteed = 10" if options == "" else ""}
"""


class From(Client):
    """A client with an address of its own."""

    def __init__(self, address, source):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), source_address=(source, 0))
        self.file = self.socket.makefile("rb")


def is_in(client):
    """Whether the server serves the client. It sends a refused client an error and closes the connection."""
    try:
        client.send(b"mn\r\n")
        answer = client.line()
    except ConnectionError:
        return False
    assert answer in (b"MN\r\n", REFUSAL, b"")
    return answer == b"MN\r\n"


def crowd(server, source, count):
    clients = [From(server.addresses[0], source) for _ in range(count)]
    inside = [client for client in clients if is_in(client)]
    for client in clients:
        if client not in inside:
            client.close()
    return inside


def close(clients):
    for client in clients:
        client.close()


def tenant_rows(client):
    client.send(b"stats tenants\r\n")
    return dict(line.decode().rstrip().split(maxsplit=2)[1:] for line in iter(client.line, b"END\r\n"))


@pytest.fixture
def serve(fairway, tmp_path):
    def serve(text, *arguments, **more):
        path = tmp_path / "fairway.conf"
        path.write_text(text)
        return Served(fairway, "-t", "2", "-c", str(LIMIT), "--config", str(path), *arguments, **more)
    return serve


@pytest.mark.parametrize("options, most", [("connections = 40", 40), ("", LIMIT - 10)], ids=["limit", "guaranteed"])
@pytest.mark.parametrize("fast", ["yes", "no"])
def test_others_find_a_place(serve, options, most, fast):
    with serve(flood_config(options), f"--maxconns-fast={fast}") as server:
        flood = crowd(server, "127.0.0.2", 2 * LIMIT)
        assert len(flood) == most
        modest = crowd(server, "127.0.0.1", 10)
        assert len(modest) == 10
        rows = tenant_rows(modest[0])
        assert int(rows["flood:connections"]) == most and int(rows["modest:connections"]) == 10
        assert int(rows["flood:connections_refused"]) == 2 * LIMIT - most
        flood.pop().close()  # Its place is its tenant's again.
        wait_for(lambda: int(tenant_rows(modest[0])["flood:connections"]) == most - 1)
        assert len(crowd(server, "127.0.0.2", 1)) == 1
        close(flood + modest)


def test_after_a_login_it_is_the_user_s(serve, tmp_path):
    """Until then it is counted by its address. A user that has all its connections is refused another."""
    users = tmp_path / "users"
    users.write_text("batch:secret\nweb:secret\n")
    users.chmod(0o600)
    text = "[tenant batch]\nmatch = login batch\nconnections = 3\n[tenant web]\nmatch = login web\n[tenant default]\nconnections = 20\n"
    with serve(text, "--auth-file", str(users)) as server:
        def log_in(user):
            client = server.connect()
            with contextlib.suppress(ConnectionError):  # It may be refused before.
                client.send(b"set a 0 0 %d\r\n%s secret\r\n" % (len(user) + 7, user))
                client.line()
            return client, is_in(client)
        batch = [log_in(b"batch") for _ in range(6)]
        assert [entry[1] for entry in batch] == [True] * 3 + [False] * 3
        # They were told before they were closed.
        wait_for(lambda: int(tenant_rows(batch[0][0])["default:connections"]) == 0)
        strangers = [server.connect() for _ in range(30)]
        web = [log_in(b"web") for _ in range(5)]
        assert not any(entry[1] for entry in web)  # Strangers have all places before the login,
        close(strangers[:20])
        wait_for(lambda: int(tenant_rows(batch[0][0])["default:connections"]) < 20)
        web = [log_in(b"web")]
        assert web[0][1]  # and users have theirs behind it.
        close(strangers + [entry[0] for entry in batch + web])


def test_a_change_closes_nobody(serve, tmp_path):
    with serve("[tenant flood]\nmatch = address 127.0.0.2\n") as server:
        flood = crowd(server, "127.0.0.2", 20)
        assert len(flood) == 20
        (tmp_path / "fairway.conf").write_text(flood_config("connections = 5"))
        server.process.send_signal(1)
        wait_for(lambda: tenant_rows(flood[0]).get("flood:connections_limit") == "5")
        assert all(is_in(client) for client in flood)
        assert crowd(server, "127.0.0.2", 1) == []
        with server.connect() as modest:
            wait_for(lambda: int(tenant_rows(modest)["modest:connections"]) == 1)
            close(flood[4:])
            wait_for(lambda: int(tenant_rows(modest)["flood:connections"]) == 4)
            flood[4:] = crowd(server, "127.0.0.2", 3)
            assert len(flood) == 5
        close(flood)


def test_guarantees_have_to_fit(fairway, tmp_path):
    path = tmp_path / "fairway.conf"
    path.write_text("[tenant a]\nconnections-guaranteed = 40\n[tenant b]\nconnections-guaranteed = 30\n")
    answer = subprocess.run([fairway, "serve", "-c", "60", "--config", str(path)], capture_output=True, text=True)
    assert answer.returncode != 0 and "connections-guaranteed" in answer.stderr

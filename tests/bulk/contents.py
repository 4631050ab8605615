# SPDX-License-Identifier: Apache-2.0
"""Items to fill a server with, and what a server has of them: the same for every memcached."""

import base64

LATER_S = 5000  # When those expire that do; far more than a test takes.


class Item:
    def __init__(self, key, value, flags=0, ttl=-1):
        self.key, self.value, self.flags, self.ttl = key, value, flags, ttl

    def word(self):
        """The key as the meta protocol wants it."""
        return base64.b64encode(self.key) + b" b" if self.is_binary() else self.key

    def is_binary(self):
        return any(byte <= 32 for byte in self.key)


def some(count=2000):
    """Items of all kinds: short and long, empty, with flags and times, with odd keys and values."""
    lengths = [0, 1, 10, 100, 8192, 8193, 70000, 300000]
    items = [Item(b"item:%d" % i, b"%d," % i * (i % 40), flags=i % 5, ttl=LATER_S if i % 3 == 0 else -1)
             for i in range(count)]
    items += [Item(b"long:%d" % length, b"x" * length, flags=length) for length in lengths]
    items += [Item(b"lines", b"\r\nEN\r\nVA 3 kfoo\r\nMN\r\n"), Item(b"a b\n", b"binary"), Item(b"\xff" * 250, b"k"),
              Item(b"most", b"1", flags=2**32 - 1)]
    return items


def fill(client, items):
    for item in items:
        word, _, flag = item.word().partition(b" ")
        ttl = 0 if item.ttl < 0 else item.ttl
        client.send(b"ms %s %d F%d T%d q %s\r\n%s\r\n" % (word, len(item.value), item.flags, ttl, flag, item.value))
    client.settled()


def check(client, items):
    """Demands that each of the items is there, as it was."""
    for item in items:
        client.send(b"mg %s f t v\r\n" % item.word())
        head = client.line().split()
        assert head[:1] == [b"VA"], (item.key, head)
        value = client.read(int(head[1]) + 2)
        told = {word[:1]: int(word[1:]) for word in head[2:] if word != b"b"}
        assert value == item.value + b"\r\n", item.key
        assert told[b"f"] == item.flags, item.key
        assert told[b"t"] == -1 if item.ttl < 0 else item.ttl - 600 < told[b"t"] <= item.ttl, item.key

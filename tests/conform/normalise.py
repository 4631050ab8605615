# SPDX-License-Identifier: Apache-2.0
"""What two servers answered, made comparable.

A reply stream becomes a list of units (lines, values, packets) without what must differ between two
servers, and beside it a list of the values taken out: CAS values, which must correspond one to one
per key, and times, which may differ by the seconds between the two clocks' ticks. Taken out are
further the version, and of `me` the size and class of an item, which describe a server's inside.

A number that was counted down is padded with spaces or not; memcached does either, depending on
whether an earlier reply still holds the item. So the spaces behind a number do not count.
"""

import re
import typing

import binary as b

CLOCK_TOLERANCE_S = 60  # One server may be told long after the other.
VALUE = re.compile(rb"VALUE (\S+) (\d+) (\d+)(?: (\d+))?\r\n")
META_VALUE = re.compile(rb"VA (\d+)( .*)?\r\n")
META = re.compile(rb"(?:HD|EN|NS|EX|NF)(?: .*)?\r\n")
DEBUG = re.compile(rb"ME (\S+) exp=(\S+) la=\d+ cas=(\d+) fetch=(\w+) cls=\d+ size=\d+\r\n")
PADDED = re.compile(rb"\d{1,20} +")


class Replies(typing.NamedTuple):
    units: list
    cas: list  # Pairs (key or None, value), in order of appearance.
    times: list


def of_text(data):
    """The text protocols. What cannot be read, say because the connection ended there, is one unit."""
    units, cas, times = [], [], []
    place = 0
    while place < len(data):
        end = data.find(b"\n", place) + 1
        if end == 0:
            units.append(data[place:])
            break
        line, place = data[place:end], end
        if match := VALUE.fullmatch(line):
            size = int(match[3])
            value, place = data[place:place + size + 2], place + size + 2
            unit = b"VALUE %s %s " % (match[1], match[2])
            if match[4]:
                unit += b"with CAS "
                cas.append((match[1], int(match[4])))
            units.append(unit + unpadded(value))
        elif match := META_VALUE.fullmatch(line):
            size = int(match[1])
            value, place = data[place:place + size + 2], place + size + 2
            units.append(b"VA%s %s" % (flags(match[2] or b"", cas, times), unpadded(value)))
        elif META.fullmatch(line):
            units.append(flags(line, cas, times))
        elif match := DEBUG.fullmatch(line):
            expires = match[2] != b"-1"
            if expires:
                times.append(int(match[2]))
            units.append(b"ME %s %s %s" % (match[1], b"expires" if expires else b"stays", match[4]))
            cas.append((match[1], int(match[3])))
        elif line.startswith(b"VERSION "):
            units.append(b"VERSION\r\n")
        else:
            units.append(line)
    return Replies(units, cas, times)


def unpadded(value):
    """A value and its end of line, with its length in front."""
    if PADDED.fullmatch(value[:-2]):
        value = value[:-2].rstrip(b" ") + value[-2:]
    return b"%d %s" % (len(value) - 2, value)


def flags(line, cas, times):
    """The flags of a meta reply without the values that differ."""
    words = line.split(b" ")
    key = next((word[1:].rstrip() for word in words[1:] if word[:1] == b"k"), None)
    for place, word in enumerate(words[1:], 1):
        kind, rest = word[:1], word[1:].rstrip()
        if kind == b"c" and rest.isdigit() and rest != b"0":
            cas.append((key, int(rest)))
            words[place] = b"c"
        elif kind in (b"t", b"l") and rest.isdigit():
            times.append(int(rest))
            words[place] = kind
    return b" ".join(words).rstrip()


def of_packets(data, key_of):
    """The binary protocol. key_of() tells the key from a reply's opaque."""
    units, cas = [], []
    place = 0
    while place < len(data):
        header = data[place:place + b.HEADER.size]
        if len(header) < b.HEADER.size or header[0] != b.REPLY:
            units.append(data[place:])
            break
        _, opcode, key_size, extras_size, data_type, status, body_size, opaque, unique = \
            b.HEADER.unpack(header)
        body = data[place + b.HEADER.size:place + b.HEADER.size + body_size]
        place += b.HEADER.size + body_size
        value = body[extras_size + key_size:]
        if opcode == b.VERSION and status == b.OK:
            value = b"VERSION"
        elif PADDED.fullmatch(value):
            value = value.rstrip(b" ")
        if unique != 0:
            cas.append((key_of(opaque), unique))
        units.append(b"opcode %d status %d type %d opaque %d %s extras %s key %s value %s" % (
            opcode, status, data_type, opaque, b"CAS" if unique else b"no CAS",
            body[:extras_size].hex().encode(), body[extras_size:extras_size + key_size], value))
    return Replies(units, cas, [])


class CasPairs:
    """Which CAS value of the left server is which of the right one. Within a key the relation must be
    one to one; that keys share values is nobody's business."""

    def __init__(self):
        self.to_right = {}
        self.to_left = {}
        self.current = {}
        self.older = {}

    def match(self, left, right):
        """Takes two lists of the same length; None, or what is wrong."""
        for (key, one), (_, two) in zip(left, right):
            if key is None:
                continue
            known = self.to_right.setdefault((key, one), two)
            back = self.to_left.setdefault((key, two), one)
            if known != two or back != one:
                return (f"CAS of {key!r}: left {one} was right {known} and is {two}; "
                        f"right {two} was left {back} and is {one}")
            if self.current.get(key) != (one, two):
                self.older[key] = self.current.get(key, (1, 1))
                self.current[key] = (one, two)
        return None

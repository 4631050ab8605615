# SPDX-License-Identifier: Apache-2.0
"""The binary protocol, as the client sees it: packets out, replies in."""

import dataclasses
import struct

import peer

HEADER = struct.Struct(">BBHBBHIIQ")
REQUEST, REPLY = 0x80, 0x81

GET, SET, ADD, REPLACE, DELETE, INCREMENT, DECREMENT, QUIT, FLUSH = range(0x00, 0x09)
GETQ, NOOP, VERSION, GETK, GETKQ, APPEND, PREPEND, STAT = range(0x09, 0x11)
SETQ, ADDQ, REPLACEQ, DELETEQ, INCREMENTQ, DECREMENTQ, QUITQ, FLUSHQ = range(0x11, 0x19)
APPENDQ, PREPENDQ = 0x19, 0x1A
TOUCH, GAT, GATQ, GATK, GATKQ = 0x1C, 0x1D, 0x1E, 0x23, 0x24
SASL_LIST, SASL_AUTH, SASL_STEP = 0x20, 0x21, 0x22

OK, NOT_FOUND, EXISTS, TOO_LARGE, INVALID, NOT_STORED, NOT_A_NUMBER = range(7)
AUTH_ERROR, UNKNOWN, OUT_OF_MEMORY = 0x20, 0x81, 0x82

WORDS = {
    OK: b"", NOT_FOUND: b"Not found", EXISTS: b"Data exists for key.", TOO_LARGE: b"Too large.",
    INVALID: b"Invalid arguments", NOT_STORED: b"Not stored.",
    NOT_A_NUMBER: b"Non-numeric server-side value for incr or decr",
    AUTH_ERROR: b"Auth failure.", UNKNOWN: b"Unknown command",
    OUT_OF_MEMORY: b"Out of memory allocating item",
}


def packet(opcode, key=b"", value=b"", extras=b"", opaque=0, cas=0, **wrong):
    """A request. `wrong` replaces fields of the header: magic, key_size, extras_size, body_size,
    data_type, bucket."""
    body = extras + key + value
    header = HEADER.pack(wrong.get("magic", REQUEST), opcode, wrong.get("key_size", len(key)),
                         wrong.get("extras_size", len(extras)), wrong.get("data_type", 0),
                         wrong.get("bucket", 0), wrong.get("body_size", len(body)), opaque, cas)
    return header + body


def store(opcode, key, value, flags=0, expiry=0, **more):
    return packet(opcode, key, value, struct.pack(">II", flags, expiry), **more)


def count(opcode, key, amount=1, initial=0, expiry=0, **more):
    return packet(opcode, key, extras=struct.pack(">QQI", amount, initial, expiry), **more)


def touch(opcode, key, expiry=0, **more):
    return packet(opcode, key, extras=struct.pack(">I", expiry), **more)


@dataclasses.dataclass
class Reply:
    opcode: int
    status: int
    opaque: int
    cas: int
    extras: bytes
    key: bytes
    value: bytes

    @property
    def number(self):
        assert len(self.value) == 8
        return int.from_bytes(self.value, "big")


class BinaryClient(peer.Client):
    def reply(self):
        """The next reply, or None at the end of the connection."""
        header = self.read(HEADER.size)
        if not header:
            return None
        assert len(header) == HEADER.size, header
        magic, opcode, key_size, extras_size, data_type, status, body_size, opaque, cas = \
            HEADER.unpack(header)
        assert magic == REPLY and data_type == 0
        assert extras_size + key_size <= body_size
        body = self.read(body_size)
        assert len(body) == body_size
        key_end = extras_size + key_size
        return Reply(opcode, status, opaque, cas, body[:extras_size], body[extras_size:key_end],
                     body[key_end:])

    def call(self, request):
        """Sends one request and returns the reply, which must belong to it."""
        self.send(request)
        reply = self.reply()
        assert reply is not None and reply.opcode == request[1]
        assert reply.opaque == HEADER.unpack_from(request)[7]
        return reply

    def fail(self, request, status):
        """The request must fail in this way, with the words that go with it."""
        reply = self.call(request)
        assert (reply.status, reply.value) == (status, WORDS[status])
        assert (reply.cas, reply.extras, reply.key) == (0, b"", b"")

    def succeed(self, request):
        reply = self.call(request)
        assert reply.status == OK, reply
        return reply

    def silent(self, *requests):
        """None of these is answered."""
        self.send(b"".join(requests))
        self.settled()

    def settled(self):
        reply = self.call(packet(NOOP, opaque=0x5E771ED))
        assert reply == Reply(NOOP, OK, 0x5E771ED, 0, b"", b"", b"")

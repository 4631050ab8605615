# SPDX-License-Identifier: Apache-2.0
"""Random conversations for the differential test, the same for the same seed.

A conversation is what one connection sends. It holds right, slightly wrong and mangled commands,
and nothing whose answer depends on the clock or on how the bytes arrive. memcached itself has such
commands, and they are left out on purpose; README.md lists them.

A command that carries a CAS value cannot be bytes yet, because each server counts in its own way:
it is a Command whose `cas` says whose value, and how old, goes between `before` and `after`.
"""

import base64
import random
import re
import typing

import binary as b

LONG_S = (1000, 2000, 86400, 2592000)  # Nothing expires while the test runs.
PAST_S = (-1, 2592001, -100)  # Expired when stored.
SOON_MAX_S = 900  # Up to here an expiry time could end during the test.

KEYS = ([b"k%d" % number for number in range(12)] +
        [b"key:%d:%s" % (number, b"x" * (number % 60)) for number in range(1500)] +
        [b"l" * size for size in (100, 249, 250)])
COUNTERS = [b"counter%d" % number for number in range(8)]
BINARY_KEYS = [bytes([0, 32, number]) + b"\r\n\xff" for number in range(6)]
# Without white space: an item that `mg` made on a miss comes back with its key as it is.
ENCODED_KEYS = [base64.b64encode(bytes([200 + number, 1, 128, 255])) for number in range(6)]
SHORT_LIVED = [b"e%d" % number for number in range(10)]
TOO_LONG = b"t" * 251
ALL_KEYS = KEYS + COUNTERS + BINARY_KEYS  # A binary request's opaque is its key's place here.
PLACE = {key: place for place, key in enumerate(ALL_KEYS)}

CURRENT, OLDER, WRONG = range(3)
MISTAKEN_MAX = 2000  # The longest value that a mangled command may ask for.


class Command(typing.NamedTuple):
    before: bytes
    cas: typing.Optional[tuple] = None  # (key, CURRENT, OLDER or WRONG, whether in binary)
    after: bytes = b""


class Conversation(typing.NamedTuple):
    """It ends with a good-bye, or with a mistake that makes the server close: an end of input in the
    middle of a command makes memcached drop replies, sometimes."""
    is_binary: bool
    commands: list
    pace: int  # The seed of how the bytes are cut into pieces.

    @property
    def says_good_bye(self):
        return self.commands[-1].before in (Text.good_bye, Binary.good_bye)


def conversations(seed, number):
    """Yields conversations until they hold that many commands."""
    chance = random.Random(seed)
    while number > 0:
        generator = Binary(chance) if chance.random() < 0.25 else Text(chance)
        commands = generator.commands(min(number, chance.choice((5, 60, 150, 300))))
        number -= len(commands)
        yield Conversation(generator.is_binary, commands, chance.getrandbits(32))


def short_lived(expiry):
    """One conversation that stores what is to expire during the test."""
    return Conversation(False, [Command(b"set %s 0 %d 1\r\nx\r\n" % (key, expiry))
                                for key in SHORT_LIVED], 0)


def expired():
    """The conversation that looks for it, by every kind of command."""
    commands = [Command(b"get %s\r\n" % key) for key in SHORT_LIVED]
    commands += [Command(line % SHORT_LIVED[index]) for index, line in enumerate((
        b"mg %s v\r\n", b"touch %s 0\r\n", b"incr %s 1\r\n", b"append %s 0 0 1\r\ny\r\n",
        b"replace %s 0 0 1\r\ny\r\n", b"delete %s\r\n", b"md %s\r\n", b"ma %s\r\n",
        b"cas %s 0 0 1 1\r\ny\r\n", b"add %s 0 0 1\r\ny\r\n"))]
    return Conversation(False, commands, 0)


class Generator:
    is_binary = False

    def __init__(self, chance):
        self.chance = chance
        self.pick = chance.choice
        self.keys = self.pick((KEYS[:4], KEYS[:12], KEYS))

    def key(self):
        return self.pick(self.keys)

    def expiry(self):
        chance = self.chance.random()
        return 0 if chance < 0.75 else self.pick(LONG_S) if chance < 0.93 else self.pick(PAST_S)

    def value(self):
        chance = self.chance.random()
        if chance < 0.7:
            return b"v" * self.chance.randrange(40)
        if chance < 0.8:
            return self.pick((b"\r\n", b"get k1\r\nmn", b"a\r\nb\x00\xff", b"END\r\n"))
        # Long ones in short lines: should the command be wrong, memcached reads them as commands,
        # and a long line's fate depends on how it arrives.
        size = self.chance.randrange(400 if chance < 0.99 else 20000)
        return (b"x" * 60 + b"\r\n") * (size // 50)

    def number(self):
        # Far below 2^63: from there on memcached looks for a minus sign beyond the end of the value.
        return self.pick((b"0", b"1", b"7", b"10", b"99", b"12345", b"100000000000000000"))

    def age(self):
        chance = self.chance.random()
        return CURRENT if chance < 0.7 else OLDER if chance < 0.85 else WRONG


class Text(Generator):
    """Classic and meta commands, mixed as they may be. After a mistake the server may be in the middle
    of a value, so the good-bye comes after more than the longest."""
    good_bye = b"quit\r\n"
    rest = b"\r\n" + b"mn\r\n" * (MISTAKEN_MAX // 4 + 1)

    def commands(self, number):
        found, is_mangled = [], False
        makers = (self.store, self.get, self.count, self.other, self.meta_get, self.meta_set,
                  self.meta_other, self.cas)
        weights = (22, 22, 12, 12, 12, 10, 8, 8)
        for make in self.chance.choices(makers, weights, k=number):
            command = make()
            # After a mistake what follows may be read as a value, or as part of a number; the two
            # servers' CAS numbers differ, and would then be compared as they are.
            if command.cas is not None:
                if not is_mangled:
                    found.append(command)
                continue
            if self.chance.random() < 0.04 and (mangled := self.mangle(command.before)):
                command = command._replace(before=mangled)
                is_mangled = True
            found.append(command)
        return found + [Command(self.rest)] * is_mangled + [Command(self.good_bye)]

    def noreply(self):
        return self.pick((b"", b"", b"", b" noreply"))

    def store(self):
        name = self.pick((b"set", b"set", b"set", b"add", b"replace", b"append", b"prepend"))
        value = self.value()
        key = self.key() if self.chance.random() < 0.99 else TOO_LONG
        return Command(b"%s %s %d %d %d%s\r\n%s\r\n" % (
            name, key, self.pick((0, 0, 5, 4294967295)), self.expiry(), len(value), self.noreply(),
            value))

    def get(self):
        keys = [self.key() for _ in range(self.pick((1, 1, 1, 2, 5, 30)))]
        if self.chance.random() < 0.2:
            keys.append(self.pick(COUNTERS))
        chance = self.chance.random()
        name = (b"get" if chance < 0.6 else b"gets" if chance < 0.85 else
                b"%s %d" % (self.pick((b"gat", b"gats")), self.expiry()))
        return Command(b"%s %s\r\n" % (name, b" ".join(keys)))

    def count(self):
        if self.chance.random() < 0.3:
            value = self.pick((b"0", b"10", b"99", b"100", b"100000000000000000", b"x", b""))
            return Command(b"set %s 0 0 %d%s\r\n%s\r\n" % (
                self.pick(COUNTERS), len(value), self.noreply(), value))
        return Command(b"%s %s %s%s\r\n" % (self.pick((b"incr", b"decr")), self.pick(COUNTERS),
                                            self.number(), self.noreply()))

    def cas(self):
        key, value = self.key(), self.value()
        return Command(b"cas %s 3 %d %d " % (key, self.expiry(), len(value)),
                       (key, self.age(), False), b"%s\r\n%s\r\n" % (self.noreply(), value))

    def other(self):
        chance = self.chance.random()
        if chance < 0.45:
            return Command(b"delete %s%s\r\n" % (self.key(), self.noreply()))
        if chance < 0.8:
            return Command(b"touch %s %d%s\r\n" % (self.key(), self.expiry(), self.noreply()))
        return Command(self.pick((
            b"version\r\n", b"mn\r\n", b"verbosity 0\r\n", b"verbosity\r\n", b"flush_all\r\n",
            b"flush_all noreply\r\n", b"flush_all 0\r\n", b"\r\n", b"foo\r\n", b"get\r\n",
            b"set k\r\n", b"stats nonsense\r\n", b"cache_memlimit 1\r\n", b"shutdown\r\n",
            b"delete k1 1\r\n", b"delete k1 0\r\n", b"incr k1\r\n", b"mn x\r\n", b"me\r\n",
            b"delete %s\r\n" % TOO_LONG, b"touch %s 0\r\n" % TOO_LONG, b"mg %s v\r\n" % TOO_LONG,
            b"set k1 0 0 -1\r\n", b"set k1 0 0 5\r\n123456\r\n", b"ms k1 2 MX\r\nab\r\n",
            b"get k1\n", b"mn\n", b" get k1\r\n")))

    def flags(self, choices, most=5):
        return self.chance.sample(choices, self.chance.randrange(most))

    def command(self, name, key, flags, data=None):
        """A meta command. A flag C gets a CAS value, so it goes last on the line."""
        line = b" ".join([name, key, *flags])
        end = b"\r\n" if data is None else b"\r\n%s\r\n" % data
        if b"b" not in flags and name != b"mg" and self.chance.random() < 0.15:
            return Command(line + b" C", (key, self.age(), False), end)
        return Command(line + end)

    def meta_key(self):
        """A key and the flags it needs."""
        if self.chance.random() < 0.1:
            return self.pick(ENCODED_KEYS), [b"b"]
        return self.key(), []

    def meta_get(self):
        key, flags = self.meta_key()
        flags += self.flags((b"c", b"f", b"h", b"k", b"O12", b"q", b"s", b"v", b"v", b"u", b"t"), 7)
        flags = list(dict.fromkeys(flags))
        chance = self.chance.random()
        if chance < 0.15:
            flags.append(b"N%d" % self.pick((0, 1000)))
        elif chance < 0.25:
            flags.append(b"R%d" % self.pick((30, 100000)))
        elif chance < 0.35:
            flags.append(b"T%d" % self.pick((0, 1000)))
        elif chance < 0.37:
            flags.append(self.pick((b"!", b"v v", b"k k", b"T", b"Nx", b"O" + b"o" * 40, b"E1")))
        if b"c" in flags and b"k" not in flags:
            flags.append(b"k")  # So that the reply says whose CAS value it is.
        return Command(b" ".join([b"mg", key, *flags]) + b"\r\n")

    def meta_set(self):
        key, flags = self.meta_key()
        value = self.value()
        flags += self.flags((b"c", b"k", b"O34", b"q", b"F7", b"I", b"Ppath", b"Lpath"), 4)
        if self.chance.random() < 0.3:
            flags.append(b"T%d" % self.expiry())
        if self.chance.random() < 0.4:
            flags.append(b"M" + self.pick((b"E", b"A", b"P", b"R", b"S", b"S", b"x", b"EE")))
        if b"c" in flags and b"k" not in flags:
            flags.append(b"k")
        return self.command(b"ms", key, [b"%d" % len(value), *flags], value)

    def meta_other(self):
        chance = self.chance.random()
        if chance < 0.1:
            return Command(b"me %s\r\n" % self.key())
        if chance < 0.5:
            key, flags = self.meta_key()
            flags += self.flags((b"q", b"k", b"O56", b"I", b"T1000"), 4)
            return self.command(b"md", key, flags)
        flags = self.flags((b"q", b"k", b"O78", b"v", b"t", b"N0", b"N1000", b"J13", b"D5", b"MD",
                            b"MI", b"M+"), 6)
        if {b"N0", b"N1000"} <= set(flags) or sum(flag[:1] == b"M" for flag in flags) > 1:
            flags = flags[:1]
        return self.command(b"ma", self.pick(COUNTERS), flags)

    def mangle(self, request):
        """A few small mistakes, or None if that would be one whose outcome depends on time, or one
        that swallows all that follows."""
        line, end, rest = request.partition(b"\n")
        line = bytearray(line + end)
        for _ in range(self.pick((1, 1, 2, 4))):
            kind, place = self.chance.randrange(6), self.chance.randrange(len(line) or 1)
            if kind == 0:
                line[place:place + 1] = bytes([self.chance.randrange(256)])
            elif kind == 1:
                del line[place]
            elif kind == 2:
                line.insert(place, self.pick(b" \t\r0159-axTNMqv\x00\xff"))
            elif kind == 3:
                words = bytes(line).split(b" ")
                del words[self.chance.randrange(len(words))]
                line = bytearray(b" ".join(words))
            elif kind == 4:
                words = bytes(line).split(b" ")
                words.insert(self.chance.randrange(len(words)), self.pick(words))
                line = bytearray(b" ".join(words))
            else:
                line = bytearray(line.swapcase())
            if not line:
                return None
        line = bytes(line)
        if not line.endswith(b"\n") and GETS.match(line):
            return None  # The next line would be more keys, one of them perhaps too long.
        return None if depends_on_time(line) or asks_too_much(line + rest) else line + rest


GETS = re.compile(rb"\s*(?:get|gets|gat|gats)\s")
STORES = re.compile(rb"\s*(?:set|add|replace|append|prepend|cas)\s+\S+\s+\S+\s+\+?(\d+)")
TOUCHES = re.compile(rb"\s*(?:touch\s+\S+|gat|gats)\s+\+?(\d+)")
META = re.compile(rb"\s*m[gsa]\s")
META_TIMES = re.compile(rb"\s[TN]\+?(\d+)")
# What else must not come out of a mistake: a flush at another time, a connection that turns into
# something else, a get whose key is too long (see README.md).
UNWANTED = re.compile(rb"\s*(?:flush_all.|watch|lru|slabs|verbosity|cache_|shutdown g)", re.DOTALL)


def depends_on_time(line):
    if UNWANTED.match(line) or max(map(len, line.split(b" "))) > 250:
        return True
    times = [match[1] for match in (STORES.match(line), TOUCHES.match(line)) if match]
    if META.match(line):
        times += META_TIMES.findall(line)
    return any(0 < int(time) <= SOON_MAX_S or int(time) > LONG_S[-1] for time in times)


LENGTHS = re.compile(rb"\s*(?:(?:set|add|replace|append|prepend|cas)\s+\S+\s+\S+\s+\S+|ms\s+\S+)"
                     rb"\s+\+?(\d+)")


def asks_too_much(line):
    match = LENGTHS.match(line)
    return match is not None and int(match[1]) > MISTAKEN_MAX


class Binary(Generator):
    is_binary = True
    good_bye = b.packet(b.QUITQ)

    def commands(self, number):
        makers = (self.get, self.store, self.append, self.delete, self.count, self.touch,
                  self.other)
        weights = (30, 28, 8, 10, 12, 8, 4)
        found = [make() for make in self.chance.choices(makers, weights, k=number)]
        return found + [self.wrong() if self.chance.random() < 0.1 else Command(self.good_bye)]

    def key(self):
        return super().key() if self.chance.random() < 0.9 else self.pick(BINARY_KEYS)

    def with_cas(self, packed, key):
        """Sometimes asks for a CAS value: the last eight bytes of the header."""
        if self.chance.random() < 0.2:
            return Command(packed[:16], (key, self.age(), True), packed[24:])
        return Command(packed)

    def get(self):
        key = self.key() if self.chance.random() < 0.9 else self.pick(COUNTERS)
        return Command(b.packet(self.pick((b.GET, b.GETQ, b.GETK, b.GETKQ)), key,
                                opaque=PLACE[key]))

    def unsigned_expiry(self):
        expiry = self.expiry()
        return expiry if expiry >= 0 else 2592001

    def store(self):
        key = self.key()
        opcode = self.pick((b.SET, b.SETQ, b.ADD, b.ADDQ, b.REPLACE, b.REPLACEQ))
        return self.with_cas(b.store(opcode, key, self.value(), self.pick((0, 5, 0xFFFFFFFF)),
                                     self.unsigned_expiry(), opaque=PLACE[key]), key)

    def append(self):
        key = self.key()
        opcode = self.pick((b.APPEND, b.APPENDQ, b.PREPEND, b.PREPENDQ))
        return self.with_cas(b.packet(opcode, key, self.value(), opaque=PLACE[key]), key)

    def delete(self):
        key = self.key()
        opcode = self.pick((b.DELETE, b.DELETEQ))
        return self.with_cas(b.packet(opcode, key, opaque=PLACE[key]), key)

    def count(self):
        key = self.pick(COUNTERS)
        opcode = self.pick((b.INCREMENT, b.INCREMENTQ, b.DECREMENT, b.DECREMENTQ))
        return Command(b.count(opcode, key, int(self.number()), int(self.number()),
                               self.pick((0, 1000, 0xFFFFFFFF)), opaque=PLACE[key]))

    def touch(self):
        key = self.key()
        opcode = self.pick((b.TOUCH, b.GAT, b.GATQ, b.GATK, b.GATKQ))
        return Command(b.touch(opcode, key, self.unsigned_expiry(), opaque=PLACE[key]))

    def other(self):
        opcode = self.pick((b.NOOP, b.NOOP, b.VERSION, b.FLUSH, b.FLUSHQ, 0x50, 0x1F))
        return Command(b.packet(opcode, opaque=0xFFFFFFFF))

    def wrong(self):
        """Something after which the connection is closed."""
        return Command(self.pick((
            b.packet(b.GET), b.packet(b.GET, b"k1", b"v"), b.packet(b.SET, b"k1", b"v"),
            b.packet(b.GET, TOO_LONG), b.store(b.SET, TOO_LONG, b"v"), b.packet(b.INCREMENT, b"k1"),
            b.packet(b.TOUCH, b"k1"), b.packet(b.QUIT), b.packet(b.QUITQ),
            b.packet(b.FLUSH, extras=bytes(2)),
            b.packet(b.VERSION, b"k"), b.packet(b.GET, b"k1", body_size=0x7FFFFFFF))))

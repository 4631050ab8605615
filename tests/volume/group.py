# SPDX-License-Identifier: Apache-2.0
"""A group of volumes in a file, and the processes that use it."""

import json
import subprocess

OK, FAILED, USAGE = 0, 1, 64


class Process:
    """A manager or an agent; with --commands it answers lines."""

    def __init__(self, arguments, ready):
        # pylint: disable=consider-using-with
        self.process = subprocess.Popen(list(map(str, arguments)), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        line = self.process.stdout.readline()
        assert line == ready, f"{arguments}: {line} and status {self.process.poll()}"

    def ask(self, line):
        """The answer, or None if it has died."""
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        answer = self.process.stdout.readline()
        return answer.decode().strip() if answer.endswith(b"\n") else None

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def end(self):
        """In the orderly way: no more commands, or SIGTERM."""
        self.process.stdin.close()
        if self.process.args[2] == "manager":
            self.process.terminate()
        self.process.stdout.read()
        self.process.stdout.close()
        return self.process.wait(timeout=120)


class Group:
    def __init__(self, fairway, path, prefix=()):
        self.fairway, self.path, self.prefix = fairway, path, list(prefix)

    def run(self, action, *arguments):
        return subprocess.run([self.fairway, "volume", action, *map(str, arguments)],
                              capture_output=True, timeout=120, check=False)

    def do(self, action, *arguments):
        done = self.run(action, *arguments)
        assert done.returncode == OK, done.stderr
        return done.stdout

    def make(self, *options):
        self.do("format", "--size", "4m", "--extent-size", "16k", "--ring-size", "64k",
                "--hosts", "4", *options, self.path)

    def dump(self):
        return json.loads(self.do("dump", self.path))

    def manager(self, *options):
        return Process(self.prefix + [self.fairway, "volume", "manager", "--interval", "1ms",
                                      "--pool-min", "8", *options, self.path], b"managing\n")

    def agent(self, host, *options):
        return Process(self.prefix + [self.fairway, "volume", "agent", "--commands",
                                      "--interval", "1ms", *options, self.path, host], b"serving\n")


def placed(dump, name):
    """Which logical extents of the volume are there, and where."""
    volume = next(volume for volume in dump["volumes"] if volume["name"] == name)
    return {segment["logical"] + i: dump["data_offset"]
            + (segment["extent"] + i) * dump["extent_size"]
            for segment in volume["segments"] for i in range(segment["count"])}


def owners(dump):
    """Every extent that somebody has; twice if two have it."""
    runs = [segment for volume in dump["volumes"] for segment in volume["segments"]]
    runs += [run for host in dump["hosts"] for run in host["extents"]]
    return [run["extent"] + i for run in runs for i in range(run["count"])]

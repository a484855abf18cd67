"""Starts a kernel as the guest does, for the tests."""

import base64
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
KEY = "0123456789abcdef0123456789abcdef"


def source(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as f:
        return f.read()


def pieces(text, size=4 << 10):
    """Divides a program as the guest does."""
    found = []
    while len(text) > size and (at := text.find("\n\n\n", size)) >= 0:
        found.append(text[:at + 3])
        text = text[at + 3:]
    return found + [text]


def environment(more):
    """Returns what a kernel starts with. It is not to write C's output at once."""
    return dict({k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}, **(more or {}))


class Kernel:
    def __init__(self, prepare=(), cwd=None, env=None, ipython=False):
        req_r, self.req = os.pipe()
        self.out, out_w = os.pipe()
        self.err, err_w = os.pipe()
        self.events, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        null = os.open(os.devnull, os.O_RDWR)
        high = [os.dup(fd) for fd in (null, out_w, err_w, req_r, theirs.fileno())]
        base = max(high) + 50

        def descriptors():
            moved = []
            for i, fd in enumerate(high):
                os.dup2(fd, base + i)
                os.close(fd)
                moved.append(base + i)
            for i, fd in enumerate(moved):
                os.dup2(fd, i)
                os.close(fd)

        self.process = subprocess.Popen([sys.executable, "-c", source("boot.py")], preexec_fn=descriptors,
                                        close_fds=False, cwd=cwd, env=environment(env))
        for fd in high + [null, out_w, err_w, req_r]:
            os.close(fd)
        theirs.close()
        self.junk = 0
        self.next = 0
        for piece in pieces(source("kernel.py")):
            os.write(self.req, b"%08d" % len(piece.encode()) + piece.encode())
        self.send({"op": "init", "key": KEY, "prepare": list(prepare), "syntax": pieces(source("syntax.py")),
                   "rich": pieces(source("rich.py")) + pieces(source("shim.py")),
                   "shell": pieces(source("shell.py")) + pieces(source("magics.py")),
                   "ipython": pieces(source("ipython.py")) if ipython else []})
        self.parts = b""
        self.last_stderr = b""
        self.ready = self.event(60)  # as long as the guest waits
        assert self.ready["ev"] == ("missing" if ipython == "missing" else "ready"), self.ready

    def send(self, request):
        data = json.dumps(request).encode()
        data = len(data).to_bytes(4, "big") + data
        while data:
            data = data[os.write(self.req, data):]

    def pump(self, timeout):
        """Returns one thing that the kernel did: ("stdout", bytes) or ("event", e)."""
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the kernel says nothing")
            gone = self.process.poll() is not None  # before the look at the pipes: a kernel can write and then exit
            ready, _, _ = select.select([self.out, self.err, self.events], [], [], 0 if gone else left)
            # Output first: what was written before an event is read before it.
            for name, fd in (("stdout", self.out), ("stderr", self.err)):
                if fd in ready:
                    data = os.read(fd, 1 << 16)
                    if data:
                        if name == "stderr":
                            self.last_stderr = data
                        return name, data
            # The pipes of a kernel that exited are always ready: they are at their end.
            if self.events in ready and (gone or self.out not in ready and self.err not in ready):
                event = self.message()
                if event is not None:
                    return "event", event
            elif gone:
                raise EOFError("the kernel is gone: " + repr(self.last_stderr))

    def message(self):
        m = self.events.recv(1 << 17)
        if not m:  # the end, or a message without bytes
            poll = select.poll()
            poll.register(self.events, 0)
            if poll.poll(0):
                raise EOFError("the kernel is gone")
        if m[:32] != KEY.encode():
            self.junk += 1
            return None
        self.parts += m[33:]
        if m[32:33] == b"+":
            return None
        if m[32:33] == b"?":
            self.events.send(b"!")
        event, self.parts = json.loads(self.parts), b""
        return event

    def event(self, timeout=20):
        while True:
            kind, what = self.pump(timeout)
            if kind == "event":
                return what

    def run(self, code, answers=None, interrupt=None, timeout=30, **more):
        """Runs code and returns what came of it."""
        self.next += 1
        self.send(dict({"op": "run", "id": self.next, "code": code, "stdin": answers is not None}, **more))
        answers = list(answers or [])
        if interrupt:
            time.sleep(interrupt)
            os.kill(self.process.pid, signal.SIGINT)
        r = Result()
        while True:
            kind, what = self.pump(timeout)
            if kind != "event":
                r.add(kind, what)
                continue
            if what["ev"] == "input":
                r.prompts.append(what["prompt"])
                self.send({"op": "input", "id": self.next, "text": answers.pop(0) if answers else None})
            elif what["ev"] == "end":
                assert what["id"] == self.next, what
                if "result" in what:
                    r.log.append(("result", {"ev": "result", "id": what["id"], "main": True, "data": what["result"]}))
                r.end = what
                r.status = what["status"]
                return r
            else:
                r.log.append((what["ev"], what))

    def close(self):
        os.close(self.req)
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.err)
        self.events.close()


class Result:
    def __init__(self):
        self.log = []  # (kind, bytes or event), in order
        self.prompts = []

    def add(self, kind, data):
        if self.log and self.log[-1][0] == kind:
            self.log[-1] = (kind, self.log[-1][1] + data)
        else:
            self.log.append((kind, data))

    def text(self, kind):
        return b"".join(d for k, d in self.log if k == kind).decode("utf-8", "replace")

    stdout = property(lambda self: self.text("stdout"))
    stderr = property(lambda self: self.text("stderr"))
    results = property(lambda self: [e["data"] for k, e in self.log if k == "result"])
    late = property(lambda self: [e for k, e in self.log if k == "late"])
    kinds = property(lambda self: [k for k, _ in self.log])

    @property
    def main(self):
        found = [e["data"] for k, e in self.log if k == "result" and e["main"]]
        return found[-1]["text/plain"] if found else None

    @property
    def error(self):
        found = [e for k, e in self.log if k == "error"]
        return found[-1] if found else None


def png(data):
    return base64.b64decode(data["image/png"])

"""The Python kernel: runs the guest's requests in one lasting interpreter.

Python 3.8 or newer, standard library only. It is read from the request pipe by
a line of bootstrap and executed in a namespace of its own, with its own copy
of the builtins: what user code does to modules and builtins must not reach it.
Therefore what it calls later is bound here, at the start, by name.

Starting is most of what a short run costs, so only what is built in or loaded
anyway is imported at the start. The rest comes when it is needed, within
Pristine, or is bound as soon as user code imports it: see Hooks. For the same
reason this file is compiled in pieces, divided where two lines are empty: as a
whole it takes four times the memory, which in a sandbox takes long to get.

The protocol is described in the Go package's documentation. User code runs in
the module __main__, in the main thread.
"""

import sys

# A file of the user's, in this directory or on PYTHONPATH, may have the name of
# a module of the standard library, and Python would look there first.
os = sys.modules["os"]
_whole_path, _standard = sys.path, os.path.dirname(os.__file__)
_asked = {os.path.abspath(p) for p in os.environ["PYTHONPATH"].split(":")} if os.environ.get("PYTHONPATH") else set()
sys.path = [p for p in sys.path if p and (p == _standard or p not in _asked)]

import _ast
import _signal
import _thread
import builtins
import fcntl
import faulthandler
import io
import site
import time

try:
    import _json
except ImportError:
    import json
    _json = None

_path, sys.path = sys.path, _whole_path
_finders = list(sys.meta_path)

FILE = "<glovebox kernel>"  # the file name of every frame of ours
MAX_PART = 32 << 10  # bytes of one message's payload
MAX_TEXT = 1 << 20  # characters of one text in a result
MAX_EVENT = 24 << 20  # bytes of one event
MAX_TRACEBACK = 64 << 10
MAX_CELLS = 500  # sources that tracebacks can show, and that In keeps
MAX_VALUES = 100  # values that Out keeps
CLOSE = 0.0002  # seconds between two lines that follow each other closely
CLOSE_LINES = 16  # such lines make the next ones gather
GATHER = 0.01  # seconds
SPAWNS = ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork", "os.forkpty", "pty.spawn")

_read, _write, _dup2, _close, _exit = os.read, os.write, os.dup2, os.close, os._exit
_environ, _kill, _getpid, _urandom = os.environ, os.kill, os.getpid, os.urandom
_get_ident, _fcntl, _set_signal = _thread.get_ident, fcntl.fcntl, _signal.signal
_F_GETFL, _F_SETFL, _NONBLOCK = fcntl.F_GETFL, fcntl.F_SETFL, os.O_NONBLOCK
_SIGINT = _signal.SIGINT
_compile, _exec, _eval = compile, exec, eval
_AST, _ALLOW_AWAIT = _ast.PyCF_ONLY_AST, _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_Expr, _Expression = _ast.Expr, _ast.Expression
_modules = sys.modules
_Module = type(sys)
_CO_COROUTINE = 0x80
_monotonic, _sleep, _start_thread = time.monotonic, time.sleep, _thread.start_new_thread
_real_input = builtins.input
_original_print = builtins.print
_builtins = builtins
_sys = sys
_BufferedWriter = io.BufferedWriter
_user_site = site.getusersitepackages() if site.ENABLE_USER_SITE else None
_isdir, _add_site, _abspath, _chdir = os.path.isdir, site.addsitedir, os.path.abspath, os.chdir
_user_packages = site.getusersitepackages


_standard += "/"
_standard_names = getattr(sys, "stdlib_module_names", None)
if _standard_names is None:
    _standard_names = {n.split(".")[0] for d in (_standard, _standard + "lib-dynload") if os.path.isdir(d) for n in os.listdir(d)}
    _standard_names.update(sys.builtin_module_names)


class Lost(BaseException):
    """The guest is gone, or our descriptors are."""


class Pristine:
    """What is imported within is the standard library's, whatever user code did
    to builtins and paths, and however its own modules are called. Other threads
    still find theirs; what they put in place of a path meanwhile is lost. A
    SIGINT waits until the end."""

    turn = _thread.RLock()

    def __enter__(self):
        kernel.mask()
        # Not for ever: its holder may wait for a module that this thread imports.
        self.has_turn = Pristine.turn.acquire(timeout=5)
        self.finders, self.path = getattr(_sys, "meta_path", []), getattr(_sys, "path", [])
        self.builtins, self.hidden = {}, {}
        try:
            now = _builtins.__dict__
            self.builtins = {n: now.get(n, self) for n, v in private.items() if n != "_" and now.get(n) is not v}
            self.hidden = {n: m for n, m in list(_modules.items()) if n.split(".")[0] in _standard_names and self.foreign(m)}
            now.update((n, private[n]) for n in self.builtins)
            _sys.meta_path, _sys.path = ahead([Hooks] + _finders, self.finders), ahead(_path, self.path)
            for n in self.hidden:
                del _modules[n]
            _modules.setdefault("sys", _sys)
            _modules.setdefault("builtins", _builtins)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        try:
            _modules.update(self.hidden)
            _sys.meta_path, _sys.path = self.finders, self.path
            now = _builtins.__dict__
            for n, v in self.builtins.items():
                if v is self:
                    now.pop(n, None)
                else:
                    now[n] = v
        finally:
            if self.has_turn:
                Pristine.turn.release()
            kernel.unmask()

    @staticmethod
    def foreign(module):
        """Tells a module of the user's that has a name of the library's."""
        try:
            return not module.__file__.startswith(_standard) or "-packages/" in module.__file__
        except BaseException:
            return False  # it is built in


def ahead(ours, others):
    """Returns a list of ours, and what others has beyond them."""
    try:
        return ours + [o for o in others if o not in ours]
    except Exception:
        return list(ours)  # the user put there what is no list


def may_print(file):
    """Tells a shared library whose code may print by C's stdio from one that is
    Python's own, of which only few do."""
    return not file.startswith(_standard) or "-packages/" in file or "/_curses" in file


def _nothing(_):
    pass


def json_functions():
    """Returns what reads a JSON value, and what writes one. They are what module
    json itself calls, where they are as they were; that takes long to import."""
    def unencodable(o):
        raise TypeError("not JSON: " + type(o).__name__)

    class Options:
        strict, object_hook, object_pairs_hook, array_hook = True, None, None, None
        parse_float, parse_int, parse_constant = float, int, float

    try:
        read = _json.make_scanner(Options)
        encode = _json.make_encoder({}, unencodable, _json.encode_basestring_ascii, None, ":", ",", False, False, True)
        if read('{"a":[1,"b"]}', 0)[0] == {"a": [1, "b"]} and "".join(encode({"a": [1, "b"]}, 0)) == '{"a":[1,"b"]}':
            return read, lambda o: "".join(encode(o, 0))
    except Exception:
        pass
    with Pristine():
        import json
    return json.JSONDecoder().scan_once, json.JSONEncoder(separators=(",", ":")).encode


class Out(io.TextIOWrapper):
    """Standard output or error, on descriptor 1 or 2 like any program's."""


class Raw(io.FileIO):
    """Descriptor 1 or 2. A line is one system call, until lines follow each
    other closely: then they gather, and a thread of ours hands them on every
    ten milliseconds. All that could overtake them hands them on first: results,
    the end, a fork, another program, an exit. A kill costs what was printed
    since."""

    def begin(self, fd):
        self.number = fd
        self.writes = self.streak = 0
        self.last = 0.0
        return self

    def write(self, b):
        now = _monotonic()
        self.streak = self.streak + 1 if now - self.last < CLOSE else 0
        self.writes += 1
        if self.streak >= CLOSE_LINES and not kernel.gathering and not kernel.alone:
            kernel.gather()
        n = super().write(b)
        if n is None:  # a program of ours left the pipe non-blocking
            flags = _fcntl(self.number, _F_GETFL)
            _fcntl(self.number, _F_SETFL, flags & ~_NONBLOCK)
            n = super().write(b)
        self.last = _monotonic()
        return n


class CarefulOut(Out):
    """Out while threads of earlier runs live: what they write is sent as late
    output of the run that began them."""

    def write(self, s):
        run = kernel.thread_runs.get(_get_ident())
        if run is None or not isinstance(s, str) or kernel.alone:
            return super().write(s)
        name = "stderr" if self is kernel.err else "stdout"
        for i in range(0, len(s), MAX_PART):
            kernel.send({"ev": "late", "stream": name, "id": run, "text": s[i:i + MAX_PART]})
        return len(s)


class In(io.TextIOBase):
    """Standard input: each line is asked for through the run."""

    encoding, errors = "utf-8", "strict"

    def __init__(self):
        self.rest = ""

    def readable(self):
        return True

    def fileno(self):
        return 0

    def readline(self, size=-1):
        if not self.rest:
            self.rest = kernel.ask("", False) or ""
        n = len(self.rest) if size is None or size < 0 else size
        line, self.rest = self.rest[:n], self.rest[n:]
        return line

    def read(self, size=-1):
        if size is not None and size >= 0:
            return self.readline(size)
        lines = []
        while True:
            line = self.readline()
            if not line:
                return "".join(lines)
            lines.append(line)


def ask_input(prompt="", /):
    if _sys.stdin is not kernel.stdin:
        return _real_input(prompt)
    line = kernel.ask(str(prompt), False)
    if line is None:
        raise EOFError("input(): end of input")
    return line[:-1] if line.endswith("\n") else line


class Streams:
    """The kernel's descriptors, and standard output and error on them."""

    def take_descriptors(self):
        """Moves our descriptors out of the way, closed on exec."""
        soft = os.sysconf("SC_OPEN_MAX")
        base = 600 if soft < 0 or soft > 700 else max(10, soft - 16)

        def move(fd):
            return _fcntl(fd, fcntl.F_DUPFD_CLOEXEC, base)

        self.requests, self.events = move(3), move(4)
        _close(3)
        _close(4)
        self.fds = [move(0), move(1), move(2)]
        self.raws = []

    def heal(self):
        """Makes the standard descriptors and streams ours again."""
        for fd, saved in enumerate(self.fds):
            _dup2(saved, fd)
        if not usable(self.out):
            self.out = self.stream(1)
        if not usable(self.err):
            self.err = self.stream(2)
        _sys.stdin, _sys.stdout, _sys.stderr = self.stdin, self.out, self.err
        _sys.__stdout__, _sys.__stderr__ = self.out, self.err
        self.heal_builtins()

    def heal_builtins(self):
        """Puts back builtins that were replaced by what cannot be one. The
        standard library, which we call too, is helpless without them."""
        now = _builtins.__dict__
        for name, value in private.items():
            if name != "_" and now.get(name) is not value and callable(value) and not callable(now.get(name)):
                now[name] = value

    def stream(self, fd):
        raw = Raw(fd, "wb", closefd=False).begin(fd)
        self.raws = [r for r in self.raws if r.number != fd] + [raw]
        s = Out(_BufferedWriter(raw, 64 << 10),
                encoding="utf-8", errors="backslashreplace", newline="\n", line_buffering=True)
        s.mode = "w"
        return s

    def flush(self):
        """Hands on everything that was printed, so that order holds."""
        for s in (getattr(_sys, "stdout", None), getattr(_sys, "stderr", None), self.out, self.err):
            try:
                s.flush()
            except (KeyboardInterrupt, Lost):
                raise
            except BaseException:  # the user closed or replaced it
                self.flush_again(s)
        if self.native:  # C code that prints by stdio has a buffer of its own
            if self.flush_stdio is None:
                self.flush_stdio = find_flush()
            self.flush_stdio(None)

    def flush_again(self, s):
        """Hands on what a stream of ours kept when its descriptor was closed:
        it is this run's, not the next one's."""
        if s is not self.out and s is not self.err:
            return
        try:
            fd = s.buffer.raw.number
            _dup2(self.fds[fd], fd)
            s.flush()
        except (KeyboardInterrupt, Lost):
            raise
        except BaseException:
            pass  # there is none any more

    def gather(self):
        """Has lines gather, and a thread hand them on, until few come."""
        self.gathering = True

        def watch():
            try:
                quiet = 0
                self.buffer_lines(False)
                while quiet < 3:
                    _sleep(GATHER)
                    before = sum(r.writes for r in self.raws)
                    self.hand_on()
                    quiet = quiet + 1 if before == sum(r.writes for r in self.raws) else 0
            finally:
                self.gathering = False
                self.buffer_lines(True)

        try:
            _start_thread(watch, ())
        except RuntimeError:  # no more threads: do without
            self.gathering = False

    def buffer_lines(self, by_line):
        with self.gathered:
            for s in (self.out, self.err):
                try:
                    s.reconfigure(line_buffering=by_line)
                except (OSError, ValueError):
                    pass  # the user closed it

    def hand_on(self):
        """Writes what has gathered."""
        if not self.gathering:
            return
        with self.gathered:
            for s in (self.out, self.err):
                try:
                    s.flush()
                except (OSError, ValueError):
                    pass  # the user closed it

    def before_fork(self):
        self.spawned = True
        # The thread must not hold a stream's lock, which the child would keep.
        self.hand_on()
        self.gathered.acquire()

    def after_fork(self):
        self.gathered.release()

    def audit(self, event, args):
        if event in SPAWNS:
            if not self.alone:
                self.spawned = True
                self.hand_on()
        elif event == "import":
            # The second is the file of a shared library, if it is one.
            if args[1] and may_print(str(args[1])):
                self.native = True
        elif event == "ctypes.dlopen":
            self.native = True


class Messages:
    """What the kernel and the guest say to each other."""

    def fill(self):
        try:
            data = _read(self.requests, 1 << 16)
        except OSError:
            raise Lost() from None
        if not data:
            raise Lost()
        self.buffer += data

    def receive(self):
        """Returns the next request."""
        b = self.buffer
        while len(b) < 4:
            self.fill()
        n = int.from_bytes(b[:4], "big")
        while len(b) < 4 + n:
            self.fill()
        text = bytes(b[4:4 + n]).decode("utf-8", "surrogatepass")
        del b[:4 + n]
        return _loads(text, 0)[0]

    def send(self, event, wait=False):
        """Sends an event, and may wait until the guest has read what was
        printed before it, so that what is printed next comes after it. A
        SIGINT waits until that is done."""
        if self.alone:
            return  # a fork's copy of us has nothing to say
        if self.held is not None and event is not self.held:
            held, self.held = self.held, None
            if event["ev"] == "end":
                event["result"] = held["data"]
            else:
                self.send(held)
        data = _dumps(event).encode("ascii")
        self.mask()
        try:
            with self.lock:
                for i in range(0, len(data), MAX_PART):
                    last = i + MAX_PART >= len(data)
                    message = self.key + (b"?" if last and wait else b"." if last else b"+") + data[i:i + MAX_PART]
                    try:
                        _write(self.events, message)
                        if last and wait and not _read(self.events, 16):
                            raise Lost()
                    except OSError:
                        raise Lost() from None
        finally:
            self.unmask()

    def mask(self):
        if _get_ident() == self.main_thread:
            self.masked += 1

    def unmask(self):
        if _get_ident() == self.main_thread:
            self.masked -= 1
            if self.pending and not self.masked:
                self.pending = False
                if self.user:
                    raise KeyboardInterrupt

    def on_sigint(self, signum, frame):
        if self.alone:
            raise KeyboardInterrupt
        if not self.user:
            return  # the run is over: nothing to interrupt
        if self.masked:
            self.pending = True
            return
        if frame is not None and frame.f_code is Raw.write.__code__ and self.again():
            return
        raise KeyboardInterrupt

    def again(self):
        """Has a SIGINT come again in a moment, if the same run goes on. What is
        raised in Raw.write after its system call hides from the buffer that it is
        done, which then prints twice. One that finds the same call a second time
        finds it waiting, and is not put off."""
        run, call = self.run, sum(r.writes for r in self.raws)
        if call == self.put_off:
            return False
        self.put_off = call

        def send():
            _sleep(0.001)
            if self.run == run:
                _kill(_getpid(), _SIGINT)

        try:
            _start_thread(send, ())
        except RuntimeError:  # no more threads
            return False
        return True

    def ask(self, prompt, password):
        """Asks for a line of input; None is the end of input."""
        if self.alone:
            raise EOFError("input() in a child process: it has no input")
        if self.run is None or _get_ident() != self.main_thread:
            raise EOFError("input() in a thread: only the main thread of a run can ask")
        self.flush()
        if not self.answers:
            raise EOFError("input() needs an answer, but nobody can answer in this run: pass the value in the code instead")
        self.send({"ev": "input", "id": self.run, "prompt": prompt[:4096], "password": password})
        while True:
            request = self.receive()
            if request.get("op") == "input" and request.get("id") == self.run:
                return request.get("text")
            if request.get("op") == "ping":
                self.send({"ev": "pong"})


class Life:
    """The kernel's beginning, and what it is asked beside runs."""

    def main(self):
        self.take_descriptors()
        init = self.receive()
        self.key = init["key"].encode("ascii")
        self.sources = {name: init.get(name) or [] for name in ("rich", "syntax", "shell", "ipython")}
        self.stdin, self.out, self.err = In(), self.stream(1), self.stream(2)
        self.namespace()
        self.heal()
        _sys.argv = [""]
        _builtins.input = ask_input
        _builtins.display = show
        _builtins.get_ipython = get_ipython
        _sys.meta_path.insert(0, Hooks)
        if not self.sources["ipython"]:
            _sys.meta_path.append(Shim)
        _sys.meta_path.append(Own)
        _environ.setdefault("MPLBACKEND", "agg")
        if not os.access(os.path.expanduser("~"), os.W_OK):
            _environ.setdefault("MPLCONFIGDIR", "/tmp/.matplotlib-%d" % os.getuid())
        os.register_at_fork(before=self.before_fork, after_in_parent=self.after_fork, after_in_child=self.forked)
        os._exit = self.exit_now
        _sys.addaudithook(self.audit)
        files = (getattr(m, "__file__", None) for m in list(_modules.values()))
        self.native = any(".so" in f and may_print(f) for f in files if isinstance(f, str))
        _set_signal(_SIGINT, self.on_sigint)
        faulthandler.enable(self.fds[2])
        if self.sources["ipython"]:
            self.start_ipython()
        self.send({"ev": "ready", "language": "python", "version": "%d.%d.%d" % _sys.version_info[:3],
                   "executable": _sys.executable})
        self.prepare(init.get("prepare") or [])
        while True:
            request = self.receive()
            op = request.get("op")
            if op == "run":
                self.execute(request)
            elif op == "ping":
                self.send({"ev": "pong"})
            elif op == "prepare":
                self.send({"ev": "prepared", "failed": self.prepare(request.get("modules") or [])})
            elif op == "reset":
                if self.ipython is not None:
                    self.ipython.shell.reset()
                else:
                    self.namespace()
                self.send({"ev": "wasreset"})
            elif op == "cloned":
                self.cloned()

    def start_ipython(self):
        """Has IPython run the code, or ends the kernel with the reason why not."""
        try:
            self.load("ipython")
        except ImportError as e:
            self.send({"ev": "missing", "text": str(e)})
            _exit(1)
        self.hidden += (self.ipython.HOME,)

    def namespace(self):
        """Gives user code a fresh module __main__."""
        self.module = _Module("__main__")
        self.module.__builtins__ = _builtins
        _modules["__main__"] = self.module
        self.ns = self.module.__dict__
        for n in list(self.values):
            if type(n) is int and 0 <= n < 10**9:  # else user code put it there
                _builtins.__dict__.pop("_%d" % n, None)
        self.inputs, self.values, self.on_clone = [""], {}, []
        if not self.sources["ipython"]:  # whose shell has its own
            _builtins.In, _builtins.Out = self.inputs, self.values

    def forked(self):
        """In a fork's child: it must not speak for us."""
        self.alone = True
        Pristine.turn = _thread.RLock()  # another thread may have had it
        self.gathering = False
        self.gathered = _thread.RLock()
        self.buffer_lines(True)
        for fd in (self.requests, self.events):
            try:
                _close(fd)
            except OSError:
                pass
        self.requests = self.events = -1

    def exit_now(self, status):
        if not self.alone:
            self.hand_on()
        _exit(status)


class Clones:
    """What the copies of this interpreter must not share."""

    def cloned(self):
        """Reseeds what draws random numbers, and calls what user code registered.
        A snapshot gave this interpreter its state, and there may be others with the
        same. It is called between two runs."""
        for name, seed in (("random", lambda m: m.seed()), ("numpy.random", lambda m: m.seed()),
                           ("torch", lambda m: m.seed()), ("_ssl", lambda m: m.RAND_add(_urandom(48), 48.0)),
                           ("tempfile", lambda m: setattr(m, "_name_sequence", None))):
            module = _modules.get(name)
            if module is not None:
                try:
                    seed(module)
                except Exception:
                    pass  # user code put something else there
        for call in list(self.on_clone):
            try:
                call()
            except Exception as e:
                text = "glovebox.on_clone: %s: %s\n" % (type(e).__name__, e)
                _write(2, text.encode("utf-8", "backslashreplace"))
        self.flush()


class Imports:
    """What is imported, by whom, and when."""

    def prepare(self, names):
        """Imports modules ahead, without keeping their names."""
        failed = {}
        for name in names:
            try:
                __import__(name)
                if name == "matplotlib.pyplot":
                    self.load_rich().warm()
            except Exception as e:
                failed[name] = "%s: %s" % (type(e).__name__, e)
        return failed

    def imported(self, name, module):
        """Binds what we call of a module that was imported, before user code can
        put something else there, and tells rich of those that it adapts."""
        if name in Hooks.ours and Pristine.foreign(module):
            return  # the user's, with that name
        if name == "linecache":
            if module.cache is not self.cells:
                module.cache.update(self.cells)
                self.cells = module.cache
        elif name == "threading":
            self.enumerate_threads = module.enumerate
        elif name == "traceback" and self.told is None:
            self.told = module.TracebackException
        elif name not in Hooks.ours and not (self.sources["ipython"] and name.startswith("IPython.")):
            self.load_rich().imported(name, module)

    def load_rich(self):
        if self.rich is None:
            self.load("rich")
        return self.rich

    def load_shell(self):
        if self.ipython is not None:
            return self.ipython.shell
        if self.shell is None:
            self.load("shell")
        return self.shell.shell

    def translate(self, code):
        """Returns a cell that is not Python as Python, and as tracebacks show it."""
        if self.syntax is None:
            self.load("syntax")
        return self.syntax.translate(code)

    def load(self, name):
        """Executes a part of the kernel that is needed for the first time."""
        with Pristine():
            if getattr(self, name) is None:  # no other thread did it meanwhile
                module = _Module("glovebox_" + name)
                module.__dict__.update(kernel=self, Pristine=Pristine, __builtins__=private)
                for piece in self.sources[name]:
                    _exec(_compile(piece, FILE, "exec", dont_inherit=True), module.__dict__)
                setattr(self, name, module)

    def move(self, request):
        """Makes an interpreter that was started ahead, and has run no code yet, like
        one that starts in this directory with this environment."""
        global _user_site
        for name in request["unset"] or []:
            _environ.pop(name, None)
        for name, value in (request.get("base") or {}).items():
            _environ[name] = value
        try:
            _chdir(request["cwd"])
        except OSError as e:
            _write(2, ("cannot enter %s: %s\n" % (request["cwd"], e)).encode())
            raise Lost() from None
        asked = [_abspath(p) for p in _environ["PYTHONPATH"].split(":")] if _environ.get("PYTHONPATH") else []
        _sys.path[:] = [p for p in _sys.path if p != _user_site and (p not in _asked or p == _standard)]
        at = 1 if _sys.path[:1] == [""] else 0
        _sys.path[at:at] = [p for p in asked if p != _standard]
        if _user_site is not None:
            site.USER_BASE = site.USER_SITE = None
            _user_site = _user_packages()
            self.has_packages = False

    def find_packages(self):
        """Puts the user's packages on the path, if the first were installed
        after this interpreter started."""
        if _user_site is None or self.has_packages:
            return
        self.has_packages = _user_site in _sys.path
        if not self.has_packages and _isdir(_user_site):
            before = list(_sys.path)
            _add_site(_user_site)
            added = [p for p in _sys.path if p not in before]
            # Ahead of the system's packages, as Python itself does.
            at = next((i for i, p in enumerate(before) if p.endswith(("site-packages", "dist-packages"))), len(before))
            _sys.path[:] = before[:at] + added + before[at:]


class Runs:
    """Running code."""

    def execute(self, request):
        self.run, self.answers, self.e2b = request["id"], bool(request.get("stdin")), bool(request.get("e2b"))
        self.count += 1
        self.captured = None  # an interrupt may have left it
        if request.get("cwd"):
            self.move(request)
        self.find_packages()
        self.note_threads(self.run - 1 if isinstance(self.run, int) else None)
        self.out.__class__ = self.err.__class__ = CarefulOut if self.thread_runs else Out
        for name, value in (request.get("base") or {}).items():
            _environ[name] = value
        saved_env = {}
        for name, value in (request.get("env") or {}).items():
            saved_env[name] = _environ.get(name)
            _environ[name] = value
        end = {"ev": "end", "id": self.run, "count": self.count, "status": "ok"}
        try:
            self.run_cell(request["code"], end)
        except KeyboardInterrupt:
            # Between two of the steps in there; nothing of ours was cut off.
            end["status"] = "interrupted"
        self.user = False
        self.pending = False
        if self.alone:
            self.end_child(end)
        self.heal_builtins()
        for name, value in saved_env.items():
            if value is None:
                _environ.pop(name, None)
            else:
                _environ[name] = value
        self.flush()
        self.note_threads(self.run)
        end["spawned"] = self.spawned
        self.send(end)
        self.run = None
        # Now, when nobody waits: everything right for the next run.
        try:
            self.heal()
            _set_signal(_SIGINT, self.on_sigint)
        except OSError:
            raise Lost() from None
        self.stdin.rest = ""

    def run_cell(self, code, end):
        name = "<cell %d>" % self.count
        if self.ipython is None:
            self.note_input(code)
        try:
            try:
                self.user = True
                value = self.run_source(code, name) if self.ipython is None else self.ipython.shell.run(code)
                if value is not None and not self.alone:
                    self.note_value(value)
                    self.flush()
                    self.display(value, True)
            finally:
                self.user = False
        except BaseException as e:
            self.fail(e, end, name)
        if not self.alone and (self.rich is not None or self.shell is not None):
            try:
                self.user = True
                try:
                    self.flush()
                    if self.shell is not None:
                        self.shell.shell.events.finish_run()
                    if self.rich is not None:
                        self.rich.finish_run()
                finally:
                    self.user = False
            except BaseException as e:
                self.fail(e, end, name)

    def run_source(self, code, name, offset=0):
        """Runs code, which begins after that many lines of what its name stands
        for. Returns the value of its last expression, unless a semicolon ends it."""
        if not offset:
            self.keep_source(name, code)
        tree, python = self.parse("\n" * offset + code, name, not offset)
        last = None
        if tree.body and isinstance(tree.body[-1], _Expr) and not python.rstrip().endswith(";"):
            last = _Expression(tree.body.pop().value)
        if tree.body:
            self.evaluate(tree, name, "exec")
        return self.evaluate(last, name, "eval") if last is not None else None

    def parse(self, code, name, keep):
        """Returns code as a tree and as Python. What is Python stays as it is."""
        try:
            return _compile(code, name, "exec", _AST | _ALLOW_AWAIT, True), code
        except SyntaxError as e:
            wrong = e
        python = code
        if code.lstrip("\n")[:1].isspace() or any(c in code for c in "!%?") or "\n" not in code.strip():
            python, shown = self.translate(code)
        if python == code:
            raise wrong
        if keep:
            self.keep_source(name, shown)
        return _compile(python, name, "exec", _AST | _ALLOW_AWAIT, True), python

    def as_python(self, code):
        try:
            _compile(code, "", "exec", _AST | _ALLOW_AWAIT, True)
            return code
        except SyntaxError:
            return self.translate(code)[0]

    def keep_source(self, name, code):
        """Keeps a source for tracebacks."""
        if len(code) < 1 << 20:
            self.cells[name] = (len(code), None, [l + "\n" for l in code.split("\n")], name)
            self.cells.pop("<cell %d>" % (self.count - MAX_CELLS), None)

    def note_input(self, code):
        """Keeps a cell as In[n]."""
        self.inputs += [""] * (self.count - len(self.inputs))
        self.inputs.append(code)
        if self.count > MAX_CELLS:
            self.inputs[self.count - MAX_CELLS] = ""

    def note_value(self, value):
        """Keeps the value of a cell as Out[n], _n and _."""
        now, count = _builtins.__dict__, self.count
        now["___"], now["__"], now["_"] = now.get("__", ""), now.get("_", ""), value
        if value is self.values:
            return
        self.values[count] = now["_%d" % count] = value
        if len(self.values) > MAX_VALUES:
            oldest = next(iter(self.values))
            del self.values[oldest]
            if type(oldest) is int and 0 <= oldest < 10**9:  # else user code put it there
                now.pop("_%d" % oldest, None)

    def evaluate(self, tree, name, mode):
        code = _compile(tree, name, mode, _ALLOW_AWAIT, True)
        if code.co_flags & _CO_COROUTINE:
            return self.complete(_eval(code, self.ns))
        if mode == "eval":
            return _eval(code, self.ns)
        _exec(code, self.ns)

    def complete(self, coroutine):
        """Runs a coroutine in the event loop that the context keeps."""
        import asyncio
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                try:
                    self.loop.run_until_complete(task)
                except BaseException:
                    pass
            raise


class Failures:
    """What ends user code but its end, and what outlives that."""

    def fail(self, e, end, cell):
        """Reports what ended the user's code."""
        if isinstance(e, Lost):
            raise e
        if isinstance(e, SystemExit):
            code = e.code
            if code is None:
                code = 0
            elif not isinstance(code, int):
                try:
                    _original_print(code, file=self.err)
                except Exception:
                    pass
                code = 1
            end["exit_code"] = code & 0xff
            end["status"] = "ok" if code == 0 else "exit"
            return
        if end["status"] == "ok":
            end["status"] = "interrupted" if isinstance(e, KeyboardInterrupt) else "error"
        event = self.describe(e, cell)
        if self.alone:
            end["child_error"] = event["traceback"]
            return
        self.flush()
        self.send(event)

    def describe(self, e, cell):
        name = type(e).__name__
        try:
            value = str(e)
        except BaseException:
            value = "<str() failed>"
        line, text = None, ""
        try:
            if isinstance(e, SyntaxError) and e.filename == cell:
                line = e.lineno
            tb = e.__traceback__
            while tb is not None:
                if tb.tb_frame.f_code.co_filename == cell:
                    line = tb.tb_lineno
                tb = tb.tb_next
            if line is not None and cell in self.cells:
                text = self.cells[cell][2][line - 1].rstrip("\n")
        except BaseException:
            pass
        try:
            if not self.can_tell:
                with Pristine():
                    import ast  # which traceback imports when it first needs it
                    import traceback
                self.imported("traceback", traceback)
                self.can_tell = self.told is not None
            told = self.told(type(e), e, e.__traceback__)
            trim(told, set())
            trace = "".join(told.format())
        except BaseException:
            trace = "%s: %s\n" % (name, value)
        if len(trace) > MAX_TRACEBACK:
            half = MAX_TRACEBACK // 2
            trace = "%s\n... (%d characters left out)\n%s" % (trace[:half], len(trace) - 2 * half, trace[-half:])
        return {"ev": "error", "id": self.run, "name": name[:200], "value": value[:MAX_TRACEBACK],
                "traceback": trace, "line": line or 0, "text": text[:1000]}

    def end_child(self, end):
        """Ends a forked child that came out of the user's code."""
        try:
            if "child_error" in end:
                self.err.write(end["child_error"])
            self.flush()
        except BaseException:
            pass
        _exit(end.get("exit_code", 0 if end["status"] == "ok" else 1))

    def note_threads(self, run):
        """Remembers which run began the threads that live now."""
        if self.enumerate_threads is None:
            return  # there are none but this one
        runs, alive = self.thread_runs, {}
        try:
            for t in self.enumerate_threads():
                if t.ident is not None and t.ident != self.main_thread:
                    alive[t.ident] = runs.get(t.ident, run)
        except Exception:
            return  # the user broke it; what threads print counts as any output
        self.thread_runs = alive
        if alive:
            self.out.__class__ = self.err.__class__ = CarefulOut


class Results:
    """Showing values."""

    def display(self, value, main=False):
        if type(value) in PLAIN and len(text := repr(value)) <= 80 and not (self.e2b and type(value) in (list, dict)):
            data = {"text/plain": text}
        else:
            data = self.load_rich().bundle(value)
        self.publish(data, main)

    def publish(self, data, main=False):
        """Sends a bundle of MIME types, each a string or a JSON value."""
        if not data:
            return
        if self.captured is not None:
            self.captured.append(data)
            return
        run = self.run
        if _get_ident() != self.main_thread:
            run = self.thread_runs.get(_get_ident(), run)
        for mime, value in list(data.items()):
            if mime.startswith("text/") and isinstance(value, str) and len(value) > MAX_TEXT:
                data[mime] = value[:MAX_TEXT] + "\n... (%d more characters)" % (len(value) - MAX_TEXT)
        event = {"ev": "result", "id": run, "main": main, "data": data}
        if sum(len(v) for v in data.values() if isinstance(v, str)) > MAX_EVENT:
            for mime, value in list(data.items()):
                if isinstance(value, str) and len(value) > MAX_TEXT:
                    del data[mime]
            data["text/plain"] = data.get("text/plain", "") + "\n(a result too large to show was left out)"
        self.flush()
        if main and sum(len(v) for v in data.values() if isinstance(v, str)) < MAX_PART // 2:
            self.held = event
        else:
            self.send(event, wait=not main)


class Kernel(Streams, Messages, Life, Clones, Imports, Runs, Failures, Results):
    def __init__(self):
        self.requests = self.events = -1
        self.key = b""
        self.buffer = bytearray()
        self.lock = _thread.RLock()
        self.main_thread = _get_ident()
        self.run = None  # id of the current run
        self.answers = False  # whether somebody answers input()
        self.e2b = False  # whether results are as E2B's interpreter gives them
        self.user = False  # user code runs: SIGINT raises
        self.masked = 0  # user code is within ours: SIGINT waits
        self.pending = False  # a SIGINT that waits
        self.put_off = -1  # the number of the write that the last one interrupted
        self.count = 0
        self.thread_runs = {}  # thread -> the run that began it
        self.has_packages = False  # the user's are on the path
        self.loop = None
        self.rich = None
        self.shell = self.syntax = None  # likewise loaded when first needed
        self.ipython = None  # loaded at the start, if IPython is the kernel
        self.sources = {}  # of these four, in pieces
        self.hidden = (FILE,)  # what the names of files of frames begin with that tracebacks leave out
        self.max_cells, self.max_values = MAX_CELLS, MAX_VALUES
        self.inputs, self.values = [""], {}  # In and Out
        self.captured = None  # where results go while a cell is captured
        self.hooks = {}
        self.cells = {}  # sources for tracebacks: linecache's, once it is there
        self.enumerate_threads = None  # threading's, likewise
        self.told = None  # traceback's TracebackException, likewise
        self.can_tell = False  # what that needs is there, too
        self.native = False  # libraries are loaded that may print by C's stdio
        self.flush_stdio = None
        self.alone = False  # in a fork's child
        self.spawned = False  # programs were started, or this one was copied
        self.gathering = False  # a thread looks after gathered output
        self.gathered = _thread.RLock()  # held while it does
        self.held = None  # the main result, which the end can carry


PLAIN = (int, float, bool, complex, str, bytes, type(None), list, tuple, dict, set, frozenset, range)


def show(*objects, **options):
    """Shows objects as results, each in its richest form."""
    if kernel.alone:
        for o in objects:
            _original_print(repr(o))
        return
    kernel.mask()
    try:
        kernel.flush()
    finally:
        kernel.unmask()
    for o in objects:
        if options.get("raw") and isinstance(o, dict):
            kernel.publish(kernel.load_rich().clean(o))
        else:
            kernel.display(o)
    if options.get("display_id"):
        return kernel.load_rich().DisplayHandle()


def get_ipython():
    """Returns the object that stands for IPython's shell."""
    return kernel.load_shell()


def find_flush():
    """Returns what has C's stdio write what it keeps."""
    try:
        with Pristine():
            import ctypes
        return ctypes.CDLL(None).fflush
    except Exception:
        return _nothing


def usable(stream):
    """Tells a stream from one that the user closed or took apart."""
    try:
        return not stream.closed and not stream.buffer.closed
    except ValueError:
        return False


def trim(told, seen):
    """Takes our own frames out of a traceback and those it came from."""
    if told is None or id(told) in seen:
        return
    seen.add(id(told))
    kept = [f for f in told.stack if not f.filename.startswith(kernel.hidden)]
    told.stack[:] = kept
    trim(told.__cause__, seen)
    trim(told.__context__, seen)
    for sub in getattr(told, "exceptions", None) or []:
        trim(sub, seen)


class Hooks:
    """Tells the kernel when one of these modules was imported."""

    ours = ("linecache", "threading", "traceback")
    names = ours + ("matplotlib.pyplot", "PIL.Image", "plotly.basedatatypes", "IPython.display", "IPython.core.getipython", "altair.vegalite.v5.api", "altair.vegalite.v6.api")
    busy = set()

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in cls.names or name in cls.busy:
            return None
        cls.busy.add(name)
        try:
            for finder in _sys.meta_path:
                if finder is cls or finder is Shim:
                    continue
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find else None
                if spec is not None:
                    break
            else:
                return None
        finally:
            cls.busy.discard(name)
        if spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            try:
                kernel.imported(name, module)
            except Exception:
                pass  # a version that we do not know works as it is

        try:
            spec.loader.exec_module = exec_module
        except AttributeError:
            pass
        return spec


class Own:
    """Makes the module glovebox, where the user has none of that name."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "glovebox":
            return None
        from importlib.machinery import ModuleSpec
        return ModuleSpec(name, cls)

    @classmethod
    def create_module(cls, spec):
        return None

    @classmethod
    def exec_module(cls, module):
        module.__doc__ = "What programs of a Glovebox sandbox can ask of it."
        module.on_clone = on_clone


def on_clone(call):
    """Has call() called in each copy of this sandbox that is made from a snapshot, and
    after a rollback. It can be a decorator."""
    if not callable(call):
        raise TypeError("on_clone needs something to call")
    kernel.on_clone.append(call)
    return call


class Shim:
    """Stands in for some modules of IPython where it is absent."""

    names = ("IPython", "IPython.display", "IPython.core") + tuple("IPython.core." + n for n in (
        "display", "display_functions", "getipython", "magic", "pylabtools"))

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in cls.names:
            return None
        from importlib.machinery import ModuleSpec
        return ModuleSpec(name, cls, is_package=name in ("IPython", "IPython.core"))

    @classmethod
    def create_module(cls, spec):
        return None

    @classmethod
    def exec_module(cls, module):
        kernel.load_rich().fill_shim(module)


private = __builtins__
kernel = Kernel()
_loads, _dumps = json_functions()
for _name in Hooks.ours:
    if _name in _modules:
        kernel.imported(_name, _modules[_name])
try:
    kernel.main()
except Lost:
    _exit(0)

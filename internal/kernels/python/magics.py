"""The magics of get_ipython(). This file continues shell.py, in one namespace."""

MAX_LINE = 64 << 10  # characters of a magic's line that is divided into words


def line_magic(*names, raw=False):
    return lambda function: known(function, names, raw, shell.line_magics)


def cell_magic(*names, raw=False):
    return lambda function: known(function, names, raw, shell.cell_magics)


def known(function, names, raw, table):
    if raw:
        function.raw = True  # variables in its line are Python's own
    for name in names:
        table[name] = function
    return function


def options(line, text, *rest):
    """Parses a line's options: letters, a colon after those with a value, then the
    names of long ones. Returns them and the words that follow."""
    with Pristine():
        import getopt
    try:
        found, words = getopt.getopt(split(line), text, list(rest))
    except (getopt.GetoptError, ValueError) as e:
        raise UsageError(str(e)) from None
    return {name.lstrip("-"): value for name, value in found}, words


def split(line, comments=True):
    """Divides a line into words, as a shell does. shlex takes time by the square of a
    line's length, so that is bounded."""
    if len(line) > MAX_LINE:
        raise UsageError("the line of a magic has at most %d characters, not %d" % (MAX_LINE, len(line)))
    return library("shlex").split(line, comments=comments)


def leading(line, letters):
    """Parses the options before a statement: letters, with a number in upper case's
    place. Returns them and the statement."""
    found = {}
    while line.startswith("-") and line[1:2] and line[1] in letters.lower() + letters:
        letter, line = line[1], line[2:].lstrip()
        if letter.lower() + ":" in letters:
            number, _, line = line.partition(" ")
            if not number.isdigit() or not int(number):
                raise UsageError("-%s needs a number above 0, not %r" % (letter, number))
            found[letter], line = int(number), line.lstrip()
        else:
            found[letter] = True
    return found, line


# Directories, files and the environment.

visited = []
MAX_VISITED = 1000  # directories that %cd - finds


@line_magic("cd")
def cd(line):
    """%cd [-q] DIRECTORY: changes the directory; without one to the home directory, with - back."""
    found, words = options(line, "q")
    target = words[0] if words else "~"
    if target == "-":
        if not visited:
            raise UsageError("there is no earlier directory")
        target = visited.pop()
    try:
        before = [os.getcwd()]
    except OSError:
        before = []  # it was removed
    try:
        os.chdir(os.path.expanduser(target))
    except OSError as e:
        raise UsageError("%s: %s" % (target[:1000], e.strerror)) from None
    except ValueError as e:
        raise UsageError("%%cd: %s" % unusable(e)) from None
    visited[:] = (visited + before)[-MAX_VISITED:]
    if "q" not in found:
        print(os.getcwd())


@line_magic("pwd")
def pwd(line):
    """%pwd: the present directory."""
    return os.getcwd()


def program_magic(name, command):
    @line_magic(name)
    def run(line):
        shell.note_exit(shell.program(shell.shell_command((command + " " + line).strip())))

    run.__doc__ = "%%%s …: runs %s." % (name, command)


for _program in ("cat", "cp", "mkdir", "mv", "rm", "rmdir"):
    program_magic(_program, _program)
program_magic("ls", "ls -F")
program_magic("ll", "ls -lF")


@line_magic("env", "set_env")
def env(line):
    """%env: the environment; %env NAME: a value; %env NAME=VALUE or NAME VALUE: sets it."""
    if not line:
        return dict(os.environ)
    name, equals, value = line.partition("=")
    if not equals or " " in name.strip():
        name, equals, value = line.partition(" ")
    name, value = name.strip(), value.strip()
    if not equals:
        if name not in os.environ:
            raise UsageError("there is no variable %s in the environment" % name)
        return os.environ[name]
    os.environ[name] = value
    print("env: %s=%s" % (name, value))


@cell_magic("writefile", "file")
def writefile(line, body):
    """%%writefile [-a] FILE: writes the cell to a file; with -a at its end."""
    found, words = options(line, "a", "append")
    if len(words) != 1:
        raise UsageError("%%writefile needs one file name")
    name, more = os.path.expanduser(words[0]), bool(found)
    print("%s %s" % ("Appending to" if more else "Overwriting" if os.path.exists(name) else "Writing", name))
    with open(name, "a" if more else "w", encoding="utf-8") as f:
        f.write(body)


# Programs.

@line_magic("pip")
def pip(line):
    """%pip …: runs pip of this Python."""
    with Pristine():
        import importlib
    try:
        words = split(line)
    except ValueError as e:
        raise UsageError("%%pip: %s" % e) from None
    shell.note_exit(shell.program([sys.executable, "-m", "pip"] + words))
    importlib.invalidate_caches()


@line_magic("system", "sx")
def system(line):
    """%system COMMAND: the lines that a command prints."""
    return shell.getoutput(line)


@cell_magic("script")
def script(line, body):
    """%%script [--no-raise-error] [--out NAME] PROGRAM …: gives the cell to a program as its input."""
    own, words = [], line.split()
    while words and words[0].startswith("--"):
        own.append(words.pop(0))
        if own[-1] == "--out" and words:
            own.append(words.pop(0))
    found, _ = options(" ".join(own), "", "no-raise-error", "out=")
    if not words:
        raise UsageError("%%script needs a program")
    with Pristine():
        import subprocess
        import tempfile
    keep = "out" in found
    with tempfile.TemporaryFile() as f:
        try:
            f.write(body.encode("utf-8", "surrogateescape"))
        except UnicodeError as e:
            raise UsageError("%%script: " + unusable(e)) from None
        f.seek(0)
        code = shell.program(words, keep=keep, script=f)
    if keep:
        code, kernel.ns[found["out"]] = code
    shell.note_exit(code)
    if code and "no-raise-error" not in found:
        raise subprocess.CalledProcessError(code, " ".join(words))


def script_magic(name, program):
    @cell_magic(name)
    def run(line, body):
        own = [w for w in line.split() if w.startswith("--")]
        if "--out" in own:
            return script("%s %s" % (line, program), body)
        return script(" ".join(own + [program] + [w for w in line.split() if w not in own]), body)

    run.__doc__ = "%%%%%s: gives the cell to %s." % (name, os.path.basename(program))


for _program in ("bash", "sh", "perl", "ruby", "node"):
    script_magic(_program, _program)
script_magic("python", sys.executable)
script_magic("python3", sys.executable)


# Time.

@line_magic("time", raw=True)
def time_line(line):
    """%time STATEMENT, or %%time: runs code and prints the time that it took."""
    return timed(line)


@cell_magic("time", raw=True)
def time_cell(line, body):
    if line:
        raise UsageError("%%time has no statement in its line")
    return timed(body)


time_cell.__doc__ = time_line.__doc__


def timed(code):
    import time
    before, began = os.times(), time.perf_counter()
    try:
        return shell.run_source(code)
    finally:
        wall, after = time.perf_counter() - began, os.times()
        user, system = after[0] - before[0], after[1] - before[1]
        print("CPU times: user %s, sys: %s, total: %s\nWall time: %s" % tuple(map(duration, (user, system, user + system, wall))))


def duration(seconds):
    if seconds >= 60:
        return "%dmin %ds" % divmod(round(seconds), 60)
    for unit, factor in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            break
    else:
        unit, factor = ("ns", 1e9) if seconds else ("s", 1)
    return "%.3g %s" % (seconds * factor, unit)


class TimeitResult:
    def __init__(self, loops, runs):
        self.loops, self.repeat, self.all_runs = loops, len(runs), runs
        self.timings = [t / loops for t in runs]
        self.best, self.worst = min(self.timings), max(self.timings)
        self.average = sum(self.timings) / len(runs)
        self.stdev = (sum((t - self.average) ** 2 for t in self.timings) / len(runs)) ** 0.5

    def __repr__(self):
        return "<TimeitResult: %s>" % self

    def __str__(self):
        return "%s ± %s per loop (mean ± std. dev. of %d run%s, {:,} loop%s each)".format(self.loops) % (
            duration(self.average), duration(self.stdev), self.repeat, "s"[:self.repeat > 1], "s"[:self.loops > 1])


@line_magic("timeit", raw=True)
def timeit_line(line):
    """%timeit [-n LOOPS] [-r RUNS] [-q] [-o] STATEMENT, or %%timeit SETUP: measures how long code takes."""
    found, statement = leading(line, "n:r:qo")
    return measured(found, statement, "pass")


@cell_magic("timeit", raw=True)
def timeit_cell(line, body):
    found, setup = leading(line, "n:r:qo")
    return measured(found, body, setup or "pass")


timeit_cell.__doc__ = timeit_line.__doc__


def measured(found, statement, setup):
    with Pristine():
        import timeit
    if not statement.strip():
        raise UsageError("%timeit needs a statement")
    timer = timeit.Timer(kernel.as_python(statement.strip("\n")), kernel.as_python(setup), globals=kernel.ns)
    loops = found.get("n") or timer.autorange()[0]
    r = TimeitResult(loops, timer.repeat(found.get("r", 7), loops))
    if "q" not in found:
        print(r)
    return r if "o" in found else None


# Names.

def names(types):
    wanted = set(types.split())
    return sorted(n for n, v in kernel.ns.items() if not n.startswith("_") and (not wanted or type(v).__name__ in wanted))


@line_magic("who_ls")
def who_ls(line):
    """%who_ls [TYPE …]: the names that cells have defined."""
    return names(line)


@line_magic("who")
def who(line):
    """%who [TYPE …]: prints the names that cells have defined."""
    print("\t".join(names(line)) or "no names are defined")


@line_magic("whos")
def whos(line):
    """%whos [TYPE …]: prints the names that cells have defined, with types and values."""
    rows = [("Variable", "Type", "Value")]
    for n in names(line):
        value = kernel.ns[n]
        about = "shape %s" % (value.shape,) if hasattr(value, "shape") else kernel.load_rich().text(value).partition("\n")[0]
        rows.append((n, type(value).__name__, about[:60]))
    widths = [max(len(r[i]) for r in rows) for i in (0, 1)]
    for r in rows:
        print("%-*s  %-*s  %s" % (widths[0], r[0], widths[1], r[1], r[2]))


@line_magic("reset")
def reset(line):
    """%reset [-f]: removes all names that cells have defined."""
    for n in names(""):
        del kernel.ns[n]


@line_magic("pinfo")
def pinfo(line):
    """NAME?: describes an object."""
    describe(line, False)


@line_magic("pinfo2")
def pinfo2(line):
    """NAME??: describes an object, with its source."""
    describe(line, True)


@line_magic("psearch")
def psearch(line):
    """PATTERN?: the names that match a pattern."""
    with Pristine():
        import fnmatch
    path, _, pattern = line.rpartition(".")
    owner = shell.named(path) if path else NOTHING
    if path and owner is NOTHING:
        raise UsageError("there is no object %s" % path)
    prefix = path + "." if path else ""
    for n in sorted(dir(owner) if path else set(kernel.ns) | set(vars(sys.modules["builtins"]))):
        if fnmatch.fnmatchcase(n, pattern):
            print(prefix + n)


def describe(name, source):
    with Pristine():
        import inspect
    if name.startswith("%"):
        value = shell.find_magic(name, "cell" if name.startswith("%%") else "line")
        if value is None:
            raise UsageError("there is no magic %s" % name)
    else:
        value = shell.named(name)
        if value is NOTHING:
            print("Object `%s` not found." % name)
            return
    try:
        print("Signature: %s%s" % (name, inspect.signature(value)))
    except (TypeError, ValueError):
        pass
    if not callable(value):
        print("Type: %s\nValue: %s" % (type(value).__name__, kernel.load_rich().text(value)[:1000]))
    doc = inspect.getdoc(value)
    if source:
        try:
            print("Source:\n" + inspect.getsource(value))
            doc = None
        except (TypeError, OSError):
            pass
    if doc:
        print("Docstring:\n" + doc)
    try:
        print("File: %s" % inspect.getfile(value))
    except TypeError:
        pass


# Code.

@line_magic("run")
def run(line):
    """%run [-i] FILE [ARGUMENTS]: runs a Python file as a program; its names stay. With -i it has the cells' names."""
    with Pristine():
        import tokenize
    try:
        words = split(line, comments=False)
    except ValueError as e:
        raise UsageError("%%run: %s" % e) from None
    within = words[:1] == ["-i"]
    words = words[within:]
    if not words or words[0].startswith("-"):
        raise UsageError("%run needs a file: %run [-i] FILE [ARGUMENTS]")
    file = os.path.expanduser(words[0])
    if not os.path.exists(file) and os.path.exists(file + ".py"):
        file += ".py"
    if file.endswith(".ipynb"):
        raise UsageError("%run runs Python files, not notebooks")
    try:
        with tokenize.open(file) as f:
            code = f.read()
    except OSError as e:
        raise UsageError("%s: %s" % (file, e.strerror)) from None
    main, argv = sys.modules["__main__"], sys.argv
    module = main if within else type(sys)("__main__")
    module.__dict__.setdefault("__builtins__", sys.modules["builtins"])
    before = module.__dict__.get("__file__", NOTHING)
    module.__file__ = file
    directory = os.path.dirname(os.path.abspath(file))
    try:
        sys.modules["__main__"], sys.argv = module, [file] + words[1:]
        sys.path.insert(0, directory)
        exec(compile(code, file, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as e:
        if e.code not in (None, 0):
            raise
    finally:
        sys.modules["__main__"], sys.argv = main, argv
        if directory in sys.path:
            sys.path.remove(directory)
        if before is NOTHING:
            module.__dict__.pop("__file__", None)
        else:
            module.__file__ = before
    kernel.ns.update((n, v) for n, v in module.__dict__.items() if not n.startswith("__"))


class Captured:
    """What a captured cell printed and showed."""

    def __init__(self, stdout, stderr, outputs):
        self.stdout, self.stderr, self.outputs = stdout, stderr, outputs

    def show(self):
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)
        for data in self.outputs:
            kernel.publish(dict(data))

    __call__ = show

    def __str__(self):
        return self.stdout


@cell_magic("capture", raw=True)
def capture(line, body):
    """%%capture [--no-stdout] [--no-stderr] [--no-display] [NAME]: runs a cell, and keeps its output and results under a name."""
    found, words = options(line, "", "no-stdout", "no-stderr", "no-display")
    with Pristine():
        import io
    out, err, results = io.StringIO(), io.StringIO(), []
    before = sys.stdout, sys.stderr, kernel.captured
    kernel.flush()
    if "no-stdout" not in found:
        sys.stdout = out
    if "no-stderr" not in found:
        sys.stderr = err
    if "no-display" not in found:
        kernel.captured = results
    try:
        value = shell.run_source(body)
        if value is not None:
            kernel.display(value)
        if kernel.rich is not None:
            kernel.rich.finish_run()
    finally:
        sys.stdout, sys.stderr, kernel.captured = before
        if words:
            kernel.ns[words[0]] = Captured(out.getvalue(), err.getvalue(), results)


def shown_magic(name, mime):
    @cell_magic(name, raw=True)
    def run(line, body):
        kernel.publish({mime: body})

    run.__doc__ = "%%%%%s: shows the cell as %s." % (name, mime)


for _name, _mime in (("html", "text/html"), ("HTML", "text/html"), ("markdown", "text/markdown"), ("latex", "text/latex"),
                     ("svg", "image/svg+xml"), ("SVG", "image/svg+xml"), ("javascript", "application/javascript"), ("js", "application/javascript")):
    shown_magic(_name, _mime)


# Settings of notebooks.

@line_magic("matplotlib")
def matplotlib(line):
    """%matplotlib inline: accepted, as figures are always shown so."""
    _, words = options(line, "l", "list")
    if words and words[0] not in ("inline", "agg", "Agg", "auto"):
        print("%%matplotlib %s: figures are shown inline, as there is no display" % words[0], file=sys.stderr)


@line_magic("config")
def config(line):
    """%config …: has no effect, and says so."""
    print("%config has no effect here", file=sys.stderr)


@line_magic("load_ext", "reload_ext")
def load_ext(line):
    """%load_ext MODULE: loads an extension of IPython. autoreload is known without effect."""
    if line == "autoreload":
        return autoreload("")
    with Pristine():
        import importlib
    if not line:
        raise UsageError("%load_ext needs the name of a module")
    load = getattr(importlib.import_module(line), "load_ipython_extension", None)
    if load is None:
        raise UsageError("the module %s is no extension of IPython" % line)
    load(shell)


@line_magic("autoreload")
def autoreload(line):
    """%autoreload: has no effect, and says so."""
    print("%autoreload has no effect here: use importlib.reload(module) after a change of its file", file=sys.stderr)


@line_magic("lsmagic")
def lsmagic(line):
    """%lsmagic: prints the magics that there are."""
    print("Line magics:\n" + "  ".join("%" + n for n in sorted(shell.line_magics)))
    print("Cell magics:\n" + "  ".join("%%" + n for n in sorted(shell.cell_magics)))

"""IPython's shell as get_ipython() returns it: commands, variables in their
text, the help on names, and the way to magics.

It is loaded when it is first needed; the kernel is the global name kernel.
"""

import _string
import os
import sys

NOTHING = object()
THIS = sys._getframe().f_code.co_filename
ASKED_SHELL = "bash"  # for commands; sh if the sandbox has none
MAX_PARTS = 500  # sources of magics that tracebacks can show
E2BIG = 7  # Linux's error for a command that is too long
SIGINT_WAIT = 0.5  # seconds for a program to end by the SIGINT that it got too


class UsageError(Exception):
    """A magic was called in a wrong way."""

    __module__ = "builtins"  # tracebacks then show the name only


class SList(list):
    """The lines that a command printed."""

    l = list = property(lambda self: self)
    n = nlstr = property(lambda self: "\n".join(self))
    s = spstr = property(lambda self: " ".join(self))

    @property
    def p(self):
        from pathlib import Path
        return [Path(line) for line in self if os.path.exists(line)]

    paths = p

    def grep(self, pattern, prune=False, field=None):
        """Returns the lines that match a regular expression, or a function's choice."""
        import re
        match = pattern if callable(pattern) else lambda text: re.search(pattern, text, re.IGNORECASE)

        def text(line):
            if field is None:
                return line
            words = line.split()
            return words[field] if -len(words) <= field < len(words) else ""

        return SList(line for line in self if bool(match(text(line))) != prune)

    def fields(self, *numbers):
        """Returns the words of each line, or those of these numbers as a line."""
        if not numbers:
            return [line.split() for line in self]
        lines = [line.split() for line in self]
        return SList(" ".join(words[n] for n in numbers if -len(words) <= n < len(words)) for words in lines)


class Events:
    """Functions to call at the end of each run. Those for its beginning are kept
    and not called."""

    def __init__(self):
        self.callbacks = {name: [] for name in ("pre_execute", "pre_run_cell", "post_execute", "post_run_cell", "shell_initialized")}

    def register(self, event, function):
        if function not in self.callbacks[event]:
            self.callbacks[event].append(function)

    def unregister(self, event, function):
        self.callbacks[event].remove(function)

    def finish_run(self):
        result = Result()
        for function, given in [(f, ()) for f in self.callbacks["post_execute"]] + [(f, (result,)) for f in self.callbacks["post_run_cell"]]:
            try:
                function(*given)
            except Exception as e:
                print("%s of get_ipython().events: %s: %s" % (function, type(e).__name__, e), file=sys.stderr)


class Result:
    """What came of run_cell."""

    def __init__(self):
        self.result = self.error_in_exec = self.error_before_exec = None

    @property
    def success(self):
        return self.error_in_exec is None

    def raise_error(self):
        if self.error_in_exec is not None:
            raise self.error_in_exec


class InteractiveShell:
    """Stands for IPython's object of that name."""

    def __init__(self):
        self.config = {}  # libraries look here for the kernel of Jupyter
        self.events = Events()
        self.line_magics, self.cell_magics = {}, {}
        self.parts = []  # the names of sources that magics ran
        self.exit_code = 0

    user_ns = user_global_ns = property(lambda self: kernel.ns)
    user_module = property(lambda self: kernel.module)
    execution_count = property(lambda self: kernel.count)
    display_formatter = property(lambda self: kernel.load_rich().formatter)

    # Commands.

    def system(self, command):
        """Runs a command of the shell, whose output is the cell's."""
        self.note_exit(self.program(self.shell_command(self.expand(command))))

    system_piped = system_raw = system

    def getoutput(self, command, split=True, depth=0):
        """Runs a command of the shell and returns what it printed."""
        code, out = self.program(self.shell_command(self.expand(command)), keep=True)
        self.note_exit(code)
        return SList(out.splitlines()) if split else out

    def note_exit(self, code):
        self.exit_code = code
        kernel.ns["_exit_code"] = code
        kernel.find_packages()

    def shell_command(self, command):
        return [find_program(ASKED_SHELL) or "/bin/sh", "-c", command]

    def program(self, argv, keep=False, script=None):
        """Runs a program in the process group of the kernel, so that an interrupt of
        the run reaches it too. Returns its exit code and, if asked, its output."""
        subprocess = library("subprocess")
        ours = sys.stdout is kernel.out and sys.stderr is kernel.err
        kernel.flush()
        env = dict(os.environ)
        # The system's Python may refuse packages that its package manager did not
        # install. A sandbox is thrown away, so that protects nothing.
        env.setdefault("PIP_BREAK_SYSTEM_PACKAGES", "1")
        pipe = subprocess.PIPE
        if keep:
            options = {"stdout": pipe, "stderr": subprocess.STDOUT}
        else:
            options = {} if ours else {"stdout": pipe, "stderr": pipe}
        if script is not None:
            options["stdin"] = script
        try:
            p = subprocess.Popen(argv, env=env, **options)
        except OSError as e:
            if e.errno == E2BIG:
                raise UsageError("cannot start %s: the command is too long: write it to a file with %%%%writefile, and run that" % argv[0][:200]) from None
            raise UsageError("cannot start %s: %s" % (argv[0][:200], e.strerror or e)) from None
        except ValueError as e:
            raise UsageError("cannot start a program: %s" % unusable(e)) from None
        try:
            out, err = p.communicate()
        except BaseException as e:
            self.end_program(p)
            if isinstance(e, KeyboardInterrupt):
                raise KeyboardInterrupt from None  # without the library's frames
            raise
        code = p.returncode
        if keep:
            return code, out.decode("utf-8", "replace")
        if not ours:
            sys.stdout.write(out.decode("utf-8", "replace"))
            sys.stderr.write(err.decode("utf-8", "replace"))
        return code

    def end_program(self, p):
        """Ends a program that got the SIGINT of the run, too."""
        try:
            p.wait(SIGINT_WAIT)
        except BaseException:  # it goes on, or a second SIGINT came
            p.kill()

    # Variables in the text of commands and magics.

    def expand(self, text):
        """Puts values in the place of {expression} and $name. A text whose braces are
        no expressions stays as it is."""
        if "{" not in text and "$" not in text:
            return text
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename == THIS:
            frame = frame.f_back
        names = frame.f_locals if frame is not None else {}
        try:
            return self.filled(text, names)
        except Exception:
            return text

    var_expand = expand

    def filled(self, text, names):
        out = []
        for literal, field, spec, conversion in _string.formatter_parser(text):
            out.append(self.dollars(literal, names))
            if field is None:
                continue
            if literal.endswith("$"):  # a variable of the shell's
                out.append("{" + field + ("!" + conversion if conversion else "") + (":" + spec if spec else "") + "}")
                continue
            value = eval(field, kernel.ns, names)
            if conversion:
                value = {"r": repr, "s": str, "a": ascii}[conversion](value)
            out.append(format(value, self.filled(spec, names)))
        return "".join(out)

    def dollars(self, text, names):
        out, i, quotes = [], 0, text.count("'")  # those from i on
        while True:
            at = text.find("$", i)
            if at < 0:
                return "".join(out) + text[i:]
            begin = at + 2 if text.startswith("$$", at) else at + 1
            end = begin
            while end < len(text) and (text[end].isalnum() or text[end] in "_."):
                end += 1
            path = text[begin:end].rstrip(".")
            end = begin + len(path)
            value = NOTHING
            quotes -= text.count("'", i, end)
            if begin == at + 1 and quotes % 2 == 0:
                value = self.named(path, names)
            out.append(text[i:at])
            out.append(("$" + path if begin == at + 2 and path else text[at:end]) if value is NOTHING else str(value))
            i = end

    def named(self, path, *more):
        """Returns the value of a name with attributes and numbers in brackets, or
        NOTHING."""
        value = NOTHING
        for n, word in enumerate(path.replace("[", ".[").split(".")):
            try:
                if n == 0:
                    for names in more + (kernel.ns, vars(sys.modules["builtins"])):
                        if word in names:
                            value = names[word]
                            break
                    else:
                        return NOTHING
                elif word.startswith("["):
                    value = value[int(word[1:-1])]
                else:
                    value = getattr(value, word)
            except Exception:
                return NOTHING
        return value

    # Magics.

    def run_line_magic(self, name, line, _stack_depth=1):
        if name.startswith("%"):
            raise UsageError("%%%s must be the first line of a cell" % name)
        function = self.line_magics.get(name)
        if function is None:
            if name in self.cell_magics:
                raise UsageError("%%%s is a magic of cells: write %%%%%s in the first line of a cell" % (name, name))
            raise UsageError("there is no magic %%%s; there are %s" % (name, ", ".join("%" + n for n in sorted(self.line_magics))))
        return function(line if getattr(function, "raw", False) else self.expand(line))

    def run_cell_magic(self, name, line, cell):
        function = self.cell_magics.get(name)
        if function is None:
            if name in self.line_magics:
                raise UsageError("%%%%%s is no magic of cells: write %%%s with one percent sign" % (name, name))
            raise UsageError("there is no magic %%%%%s; there are %s" % (name, ", ".join("%%" + n for n in sorted(self.cell_magics))))
        return function(line if getattr(function, "raw", False) else self.expand(line), cell)

    def magic(self, text):
        name, _, line = text.lstrip("%").partition(" ")
        return self.run_line_magic(name, line.strip())

    def find_magic(self, name, magic_kind="line"):
        return (self.cell_magics if magic_kind == "cell" else self.line_magics).get(name.lstrip("%"))

    def find_line_magic(self, name):
        return self.find_magic(name)

    def find_cell_magic(self, name):
        return self.find_magic(name, "cell")

    def register_magic_function(self, func, magic_kind="line", magic_name=None):
        name = magic_name or func.__name__
        if magic_kind in ("line", "line_cell"):
            self.line_magics[name] = func
        if magic_kind in ("cell", "line_cell"):
            self.cell_magics[name] = func

    # Code.

    def run_source(self, code):
        """Runs a part of the cell, and returns the value of its last expression."""
        cell = "<cell %d>" % kernel.count
        lines = kernel.cells.get(cell, (0, None, []))[2]
        whole = "".join(lines)[:-1]
        if whole.lstrip().startswith("%%") and whole.endswith("\n" + code):
            # Tracebacks show these lines of the cell.
            return kernel.run_source(code, cell, whole.count("\n") - code.count("\n"))
        name = "<cell %d, part %d>" % (kernel.count, len(self.parts))
        self.parts.append(name)
        if len(self.parts) > MAX_PARTS:
            kernel.cells.pop(self.parts[-MAX_PARTS - 1], None)
        return kernel.run_source(code, name)

    def run_cell(self, raw_cell, store_history=False, silent=False, **_):
        """Runs code as a cell, shows its value and returns what came of it."""
        r = Result()
        try:
            r.result = self.run_source(raw_cell)
            if r.result is not None and not silent:
                kernel.flush()
                kernel.display(r.result)
        except Exception as e:
            r.error_in_exec = e
            self.showtraceback()
        return r

    def transform_cell(self, raw_cell):
        return kernel.translate(raw_cell)[0]

    def ev(self, expression):
        return eval(expression, kernel.ns)

    def ex(self, code):
        exec(code, kernel.ns)

    def push(self, variables, interactive=True):
        if isinstance(variables, str):
            variables = variables.split()
        if not isinstance(variables, dict):
            names = sys._getframe(1).f_locals
            variables = {n: names[n] for n in variables}
        kernel.ns.update(variables)

    def drop_by_id(self, variables):
        for n, v in variables.items():
            if kernel.ns.get(n, NOTHING) is v:
                del kernel.ns[n]

    def showtraceback(self, *_, **__):
        kernel.flush()
        sys.stderr.write(kernel.describe(sys.exc_info()[1], "<cell %d>" % kernel.count)["traceback"])

    def enable_gui(self, gui=None):
        if gui:
            raise UsageError("there is no display for a window of %s" % gui)

    def enable_matplotlib(self, gui=None):
        return None, "inline"

    def __repr__(self):
        return "<get_ipython() of Glovebox's interpreter>"


def library(name):
    """Imports a module of the standard library, whatever the user has of that name."""
    with Pristine():
        return __import__(name)


def unusable(e):
    """Returns why the system takes no such text, as a command or a path."""
    if isinstance(e, UnicodeError):
        return "the text is not UTF-8"
    return "the text has the character NUL" if "null" in str(e) else str(e)


def find_program(name):
    """Returns the path of a program, or None."""
    return library("shutil").which(name)


shell = InteractiveShell()

"""IPython as the kernel, where a runner selects it: IPython's shell runs the code,
and its results, errors and commands go the kernel's way.

It is loaded before the first run; the kernel is the global name kernel.
"""

import linecache
import os
import sys
import warnings

import IPython
from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import UsageError
from IPython.core.formatters import DisplayFormatter
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.text import LSString, SList
from traitlets.config import Config

HOME = os.path.dirname(os.path.abspath(IPython.__file__)) + os.sep
OURS = ("matplotlib", "plotly", "altair")  # whose objects the kernel shows, with their data
CULLED = 20  # values that are dropped when there are too many
WINDOWS = (None, "inline", "agg", "auto")  # what %matplotlib may name without a display


class Compiler(CachingCompiler):
    def get_code_name(self, raw_code, transformed_code, number):
        return "<cell %d>" % kernel.count if number == kernel.count else "<cell %d, part>" % kernel.count

    def cache(self, transformed_code, number=0, raw_code=None):
        for sources in (linecache.cache, getattr(linecache, "_ipython_cache", {})):
            sources.pop("<cell %d>" % (kernel.count - kernel.max_cells), None)
        return super().cache(transformed_code, number, raw_code)


class Formatter(DisplayFormatter):
    """Makes the bundle of a value: IPython's, and what the kernel adds to it."""

    busy = 0  # the values that are being formatted, within each other

    def format(self, obj, include=None, exclude=None):
        rich = kernel.load_rich()
        self.busy += 1
        try:
            if (type(obj).__module__ or "").partition(".")[0] in OURS and not isinstance(obj, type):
                data, more = rich.bundle(obj), {}
            else:
                data, more = super().format(obj, include, exclude)
                data = rich.clean(data)
                if data:
                    rich.extend(obj, data)
        finally:
            self.busy -= 1
        keep = [m for m in data if (not include or m in include) and (not exclude or m not in exclude)]
        return {m: data[m] for m in keep}, more


class Publisher(DisplayPublisher):
    def publish(self, data, metadata=None, source=None, **_):
        if kernel.alone:  # a fork's copy of the kernel has nothing to say
            print(data.get("text/plain", ""))
            return
        kernel.flush()
        kernel.publish(kernel.load_rich().clean(data))

    def clear_output(self, wait=False):
        """Does nothing: what was shown stays in the run's result."""


class Hook(DisplayHook):
    def start_displayhook(self):
        pass

    write_output_prompt = finish_displayhook = start_displayhook

    def write_format_data(self, format_dict, md_dict=None):
        if kernel.alone:
            print(format_dict.get("text/plain", ""))
            return
        kernel.flush()
        kernel.publish(dict(format_dict), True)

    def log_output(self, format_dict):
        pass  # it would keep the text of every result

    def cull_cache(self):
        values = self.shell.user_ns.get("_oh", {})
        for n in list(values)[:CULLED]:
            del values[n]
            self.shell.user_ns.pop("_%s" % n, None)


class Shell(InteractiveShell):
    displayhook_class, display_pub_class, compiler_class = Hook, Publisher, Compiler

    failures = ()  # the exceptions that the run has shown
    exit_code = 0

    def init_display_formatter(self):
        self.display_formatter = Formatter(parent=self)
        self.configurables.append(self.display_formatter)

    def run(self, code):
        """Runs a cell, and raises what ended it."""
        self.execution_count, self.failures = kernel.count, []
        try:
            result = self.run_cell(code, store_history=True)
        finally:
            self.forget(kernel.count - kernel.max_cells)
        error = result.error_before_exec or result.error_in_exec
        if error is None and self.failures:
            error = self.failures[0]  # such as of %%time, which goes on
        for e in self.failures:
            if e is not error:
                self.write_traceback(e)
        if error is not None:
            raise error

    def forget(self, n):
        """Drops the source of a cell."""
        if n > 0:
            for cells in (self.history_manager.input_hist_raw, self.history_manager.input_hist_parsed):
                if n < len(cells):
                    cells[n] = ""
            self.user_ns.pop("_i%d" % n, None)

    def showtraceback(self, exc_tuple=None, *_, **__):
        """Keeps an exception for the run's error. One of a method that shows a value
        leaves the value's text, so it is output."""
        e = self._get_exc_info(exc_tuple)[1]
        if self.display_formatter.busy or len(self.failures) >= 10:
            self.write_traceback(e)
        else:
            self.failures.append(e)

    showsyntaxerror = showindentationerror = lambda self, *_, **__: self.showtraceback()

    def write_traceback(self, e):
        kernel.flush()
        sys.stderr.write(kernel.describe(e, "<cell %d>" % kernel.count)["traceback"])

    # Commands are programs in the process group of the kernel.

    def system(self, cmd):
        commands.note_exit(commands.program(commands.shell_command(self.var_expand(cmd, depth=1))))

    system_piped = system_raw = system

    def getoutput(self, cmd, split=True, depth=0):
        code, out = commands.program(commands.shell_command(self.var_expand(cmd, depth=depth + 1)), keep=True)
        commands.note_exit(code)
        return SList(out.splitlines()) if split else LSString(out)

    def enable_gui(self, gui=None):
        if gui:
            raise UsageError("there is no display for a window of %s" % gui)

    def enable_matplotlib(self, gui=None):
        if gui not in WINDOWS:
            print("%%matplotlib %s: figures are shown inline, as there is no display" % gui, file=sys.stderr)
        return None, "inline"

    def ask_exit(self):
        raise SystemExit(0)


def show_page(shell, data, start=0, screen_lines=0, pager_cmd=None):
    """Prints what IPython would show a page at a time."""
    print(data.get("text/plain", "") if isinstance(data, dict) else data)


def make():
    config = Config()
    config.HistoryManager.enabled = False  # what runs is not written to a file
    config.InteractiveShell.cache_size = kernel.max_values
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.warn_venv = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = Shell.instance(config=config, user_module=kernel.module, user_ns=kernel.ns)
    made.loop_runner = kernel.complete
    made.set_hook("show_in_pager", show_page, 99)
    # The names of Python, which take an exit code.
    for name in ("exit", "quit"):
        made.user_ns[name] = made.user_ns_hidden[name] = private[name]
    warnings.filterwarnings("ignore", "To exit: use")
    return made


kernel.load("shell")
commands = kernel.shell.shell
private = vars(sys.modules["builtins"]).copy()
shell = make()

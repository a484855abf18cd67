"""A backend of matplotlib that keeps figures as results of a run.

Programs that are no kernel's get it by MPLBACKEND. It writes what show shows,
and the figures that are open at the exit, to the directory PLACE: a file of
JSON for each, with the bundle of MIME types that a kernel would send.

A program must not fail because of it. So the code here is plain, and what
turns figures into bundles is read from the end of the file when a figure is
there: see bundle.
"""

import atexit
import json
import os
import sys
import time
import weakref

from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

PLACE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shown")
MAX_DRAWN = 100  # of one process; more are counted, but not drawn
MAX_COUNTED = 1000

_pid = os.getpid()
_shown = weakref.WeakSet()  # figures that were kept
_count = 0


class FigureManager(FigureManagerBase):
    def show(self):
        keep(self.canvas.figure)

    @classmethod
    def pyplot_show(cls, *args, **kwargs):
        show(*args, **kwargs)


class FigureCanvas(FigureCanvasAgg):
    manager_class = FigureManager

    def print_figure(self, filename, *args, **kwargs):
        saved = FigureCanvasAgg.print_figure(self, filename, *args, **kwargs)
        if not hasattr(filename, "write"):
            self.saved_as_file = True
        return saved


def managers():
    helpers = sys.modules["matplotlib._pylab_helpers"]
    return sorted(helpers.Gcf.figs.values(), key=lambda m: m.num)


def show(*args, **kwargs):
    """Keeps the open figures and closes them, as if the user had closed their
    windows. A call that would not wait for that leaves them as they are: they
    are kept by a later call, or at the exit."""
    matplotlib = sys.modules["matplotlib"]
    block = kwargs.get("block", args[0] if args else None)
    if block is None:
        block = not matplotlib.is_interactive()
    if not block:
        return
    for manager in managers():
        keep(manager.canvas.figure)
        sys.modules["matplotlib.pyplot"].close(manager.canvas.figure)


def finish():
    """Keeps the figures that are still open. A fork's child leaves them to its
    parent."""
    if os.getpid() != _pid or "matplotlib._pylab_helpers" not in sys.modules:
        return
    for manager in managers():
        figure = manager.canvas.figure
        if KEEP_SAVED or not getattr(figure.canvas, "saved_as_file", False):
            keep(figure)


def keep(figure):
    """Writes a figure to PLACE, once. The program learns of an error, and goes
    on."""
    global _count
    if figure in _shown or _count >= MAX_COUNTED:
        return
    try:
        _count += 1
        _shown.add(figure)
        data = bundle(figure) if _count <= MAX_DRAWN else {}
        if not os.path.isdir(PLACE):
            os.makedirs(PLACE)
        name = os.path.join(PLACE, "%020d-%d-%d" % (int(time.time() * 1e9), os.getpid(), _count))
        with open(name + ".tmp", "w") as f:
            json.dump(data, f)
        os.rename(name + ".tmp", name + ".json")
    except Exception as e:
        try:
            sys.stderr.write("a plot is lost: %s: %s\n" % (type(e).__name__, e))
        except Exception:
            pass


def bundle(figure):
    """Returns the bundle of a figure as a kernel would send it, or only its
    picture if this version of Python cannot read a kernel's code."""
    rich = load()
    if "figure" in rich:
        return rich["figure"](figure)
    import base64
    import io
    out = io.BytesIO()
    figure.savefig(out, format="png", bbox_inches="tight")
    return {"image/png": base64.b64encode(out.getvalue()).decode("ascii")}


def load():
    """Returns the names of a kernel's code, or few if it cannot be read."""
    if not _rich:
        _rich["__name__"] = "glovebox_rich"
        try:
            exec(compile(RICH, "<glovebox>", "exec"), _rich)
        except Exception:
            pass
    return _rich


def watch_boxes(axes):
    """Has the first box plot load what keeps the statistics of box plots."""
    draw = axes.bxp

    def bxp(self, *args, **kwargs):
        axes.bxp = draw
        if "watch_boxes" in load():
            _rich["watch_boxes"](axes)
        return axes.bxp(self, *args, **kwargs)

    bxp.__doc__ = draw.__doc__
    axes.bxp = bxp


_rich = {}
if "matplotlib.axes" in sys.modules:
    watch_boxes(sys.modules["matplotlib.axes"].Axes)
atexit.register(finish)

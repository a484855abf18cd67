"""Rich results of the Python kernel: bundles of MIME types for any object, and
figures of matplotlib as pictures and as data.

It is loaded when it is first needed; the kernel is the global name kernel. The
file shim.py continues it, in the same namespace.
"""

import base64
import builtins
import datetime
import io
import math
import pprint
import sys
import weakref

CHART = "application/vnd.glovebox.chart+json"
DATA = "application/vnd.glovebox.data+json"
PLOTLY = "application/vnd.plotly.v1+json"
MAX_POINTS = 5000  # of one series in a chart
MAX_CELLS_OF_DATA = 10000  # of a frame that is given as data too
MAX_JSON = 50000  # values of a list or dictionary that is given as JSON too

METHODS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_pdf_", "application/pdf"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"),
)
TEXTUAL = ("application/javascript", "image/svg+xml")


def safe(o, depth=0):
    """Returns o as JSON values; what is none becomes its text."""
    if o is None or isinstance(o, (bool, str)):
        return o if type(o) in (bool, str, type(None)) else str(o)
    if isinstance(o, int):
        return int(o)
    if isinstance(o, float):
        return float(o) if math.isfinite(o) else None
    if depth > 50:
        return "..."
    if isinstance(o, dict):
        return {str(k): safe(v, depth + 1) for k, v in o.items()}
    if isinstance(o, (list, tuple, set, frozenset)):
        return [safe(v, depth + 1) for v in o]
    if isinstance(o, (datetime.date, datetime.time)):
        return o.isoformat()
    if hasattr(o, "tolist"):  # numpy
        return safe(o.tolist(), depth + 1)
    return str(o)


def strict(o):
    """Returns a list or dictionary as JSON values, or None if it has others or is
    too large: E2B's interpreter gives such values as JSON, too."""
    left = [MAX_JSON]

    def value(o):
        left[0] -= 1
        if left[0] < 0:
            raise TypeError("too large")
        if isinstance(o, str):
            left[0] -= len(o) // 16
            return str(o)
        if isinstance(o, dict):
            return {k if isinstance(k, str) else json_key(k): value(v) for k, v in o.items()}
        if isinstance(o, (list, tuple)):
            return [value(v) for v in o]
        if o is None or isinstance(o, (bool, int, float, datetime.date, datetime.time)):
            return safe(o)
        if type(o).__module__ == "numpy" and hasattr(o, "tolist"):
            return value(o.tolist())
        raise TypeError("not JSON: " + type(o).__name__)

    try:
        return value(o)
    except (TypeError, ValueError, RecursionError):
        return None


def json_key(k):
    if k is None or isinstance(k, bool):
        return {None: "null", True: "true", False: "false"}[k]
    if isinstance(k, (int, float, datetime.date, datetime.time)):
        return str(safe(k))
    raise TypeError("no key of JSON: " + type(k).__name__)


def encoded(mime, value):
    """Returns the value of one MIME type as it is sent, or None."""
    if value is None:
        return None
    if isinstance(value, (bytes, bytearray, memoryview)):
        if mime.startswith("text/") or mime in TEXTUAL:
            return bytes(value).decode("utf-8", "replace")
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, str):
        return str(value)
    return safe(value)


def clean(data):
    """Returns a bundle that somebody else made in the form that is sent."""
    out = {}
    for mime, value in data.items():
        value = encoded(str(mime), value)
        if value is not None:
            out[str(mime)] = value
    return out


def text(value):
    """Returns the text of a value, laid out over lines if it is long."""
    try:
        t = repr(value)
        if len(t) > 80 and type(value) in (list, tuple, dict, set, frozenset) and len(t) < 1 << 18:
            t = pprint.pformat(value, width=100, compact=True, sort_dicts=False)
        return t if isinstance(t, str) else str(t)
    except Exception as e:
        return "<%s object whose repr failed: %s: %s>" % (type(value).__name__, type(e).__name__, e)


def call(value, name):
    """Calls a method of display, if the value has it."""
    method = getattr(value, name, None)
    if method is None or not callable(method):
        return None
    try:
        return method()
    except NotImplementedError:
        return None


def bundle(value):
    """Returns the bundle of MIME types that shows value."""
    if isinstance(value, type):
        return {"text/plain": text(value)}
    module = type(value).__module__ or ""
    root = module.partition(".")[0]
    if root == "matplotlib" and is_figure(value):
        return figure(value)
    data = {"text/plain": text(value)}
    try:
        if getattr(value, "_ipython_canary_method_should_not_exist_", None) is not None:
            return data  # it claims to have every attribute
        if root == "plotly" and hasattr(value, "to_plotly_json"):
            import json
            data = {PLOTLY: json.loads(value.to_json()), "text/plain": "Figure of plotly with %d traces" % len(value.data)}
            return data
        if root == "altair" and hasattr(value, "to_dict") and hasattr(value, "mark_bar"):
            return vega(value.to_dict(), type(value).__name__)
        show = getattr(value, "_ipython_display_", None)
        if callable(show):
            try:
                show()
                return {}  # it has shown itself
            except NotImplementedError:
                pass
        data.update(formatter.made(value))
        mime = getattr(value, "_repr_mimebundle_", None)
        if callable(mime):
            made = mime(include=None, exclude=None)
            if isinstance(made, tuple):
                made = made[0]
            if isinstance(made, dict):
                data.update(clean(made))
        for name, mime in METHODS:
            if mime in data:
                continue
            made = call(value, name)
            if isinstance(made, tuple) and len(made) == 2:
                made = made[0]  # the second is metadata
            made = encoded(mime, made)
            if made is not None:
                data[mime] = made
        extend(value, data)
    except Exception as e:
        print("display of %s: %s: %s" % (type(value).__name__, type(e).__name__, e), file=sys.stderr)
    return data


def extend(value, data):
    """Adds the data of a value to its bundle."""
    if (type(value).__module__ or "").partition(".")[0] == "pandas":
        frame_data(value, data)
    if kernel.e2b and isinstance(value, (list, dict)) and "application/json" not in data:
        whole = strict(value)
        if whole is not None:
            data["application/json"] = whole


def vega(spec, name):
    """Returns a chart of Altair under the version of its schema."""
    version = str(spec.get("$schema", "")).rpartition("/v")[2].partition(".")[0]
    mime = "application/vnd.vegalite.v%s+json" % (version if version.isdigit() else "5")
    return {mime: safe(spec), "text/plain": "%s of altair" % name}


def frame_data(value, data):
    """Adds the columns of a pandas frame as data, if they are not too many."""
    if type(value).__name__ == "DataFrame" and value.size <= MAX_CELLS_OF_DATA and value.columns.nlevels == 1:
        data[DATA] = safe({str(k): list(value.iloc[:, i]) for i, k in enumerate(value.columns)})


# Figures of matplotlib.

shown = weakref.WeakSet()  # figures that this run has shown and must not show again
boxes = weakref.WeakKeyDictionary()  # axes -> [(stats, artists)]


def is_figure(value):
    figures = sys.modules.get("matplotlib.figure")
    return figures is not None and isinstance(value, figures.Figure)


def figure(fig):
    """Returns a figure as PNG and as data."""
    shown.add(fig)
    data = {}
    out = io.BytesIO()
    # A little larger than by default, and done in three quarters of the time
    # where the picture is full of colours.
    try:
        fig.savefig(out, format="png", bbox_inches="tight", pil_kwargs={"compress_level": 3})
    except TypeError:  # a canvas that is not drawn by agg
        out = io.BytesIO()
        fig.savefig(out, format="png", bbox_inches="tight")
    data["image/png"] = base64.b64encode(out.getvalue()).decode("ascii")
    n = len(fig.axes)
    size = fig.get_size_inches() * fig.dpi
    data["text/plain"] = "<Figure size %dx%d with %d Axes>" % (size[0], size[1], n)
    try:
        chart = figure_chart(fig)
    except Exception as e:
        print("chart data: %s: %s" % (type(e).__name__, e), file=sys.stderr)
        chart = None
    if chart is not None:
        data[CHART] = safe(chart)
    return data


def open_figures():
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if helpers is None:
        return []
    return sorted(helpers.Gcf.figs.values(), key=lambda m: m.num)


def show_figures():
    """Shows every open figure, in order, and closes it."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    for manager in open_figures():
        fig = manager.canvas.figure
        try:
            if fig not in shown:
                kernel.publish(figure(fig))
        finally:
            pyplot.close(fig)


def finish_run():
    """Shows what a run left open."""
    if "matplotlib.pyplot" in sys.modules:
        try:
            show_figures()
        finally:
            shown.clear()


def warm():
    """Draws a figure that nobody sees: fonts and caches are then loaded."""
    import matplotlib.pyplot as plt
    fig, ax = plt.subplots()
    ax.plot([0, 1], [0, 1], label="x")
    ax.set_title("x")
    ax.legend()
    fig.savefig(io.BytesIO(), format="png", bbox_inches="tight")
    plt.close(fig)


def imported(name, module):
    """Adapts a module that was just imported."""
    if name == "matplotlib.pyplot":
        module.show = show_pyplot
        figures = sys.modules["matplotlib.figure"]
        figures.Figure.show = lambda self, *args, **kwargs: kernel.publish(figure(self))
        watch_boxes(sys.modules["matplotlib.axes"].Axes)
    elif name == "PIL.Image":
        show_saved(module.Image)
    elif name == "plotly.basedatatypes":
        module.BaseFigure.show = lambda self, *args, **kwargs: kernel.display(self)
    elif name.startswith("altair."):
        module.TopLevelMixin.show = lambda self, *args, **kwargs: kernel.display(self)
    elif name == "IPython.core.getipython":
        module.get_ipython = builtins.get_ipython
    elif name == "IPython.display":
        core = sys.modules.get("IPython.core.display_functions")
        for m in (module, core):
            if m is not None:
                m.display = builtins.display


def show_saved(image):
    """Has a picture that is saved to a named file shown to clients of E2B."""
    save = image.save

    def save_and_show(self, fp, *args, **kwargs):
        save(self, fp, *args, **kwargs)
        if kernel.e2b and isinstance(fp, str):
            kernel.display(self)

    save_and_show.__doc__ = save.__doc__
    image.save = save_and_show


def show_pyplot(*args, **kwargs):
    """Shows the open figures and closes them, as notebooks do."""
    show_figures()


def watch_boxes(axes):
    """Keeps the statistics that box plots are drawn from."""
    draw = axes.bxp

    def bxp(self, bxpstats, *args, **kwargs):
        bxpstats = list(bxpstats)
        artists = draw(self, bxpstats, *args, **kwargs)
        boxes.setdefault(self, []).append((bxpstats, artists))
        return artists

    bxp.__doc__ = draw.__doc__
    axes.bxp = bxp


# Charts as data.

def figure_chart(fig):
    charts = []
    for ax in fig.axes:
        if getattr(ax, "_colorbar", None) is None and ax.get_label() != "<colorbar>":
            charts.extend(axes_charts(ax))
    if not charts:
        return None
    title = getattr(fig, "_suptitle", None)
    title = title.get_text() if title is not None else None
    if len(charts) == 1:
        charts[0]["title"] = charts[0]["title"] or title
        return charts[0]
    return {"type": "superchart", "title": title, "elements": charts}


def axes_charts(ax):
    """Returns the charts that one Axes holds."""
    own = set()
    charts = []
    for chart in (box_chart(ax, own), pie_chart(ax), bar_chart(ax), scatter_chart(ax), line_chart(ax, own)):
        if chart is not None and chart["elements"]:
            charts.append(chart)
    if not charts and (ax.images or ax.collections or ax.patches or ax.lines):
        charts.append(dict(described(ax, "unknown"), elements=[]))
    return charts


def described(ax, kind):
    return {
        "type": kind,
        "title": ax.get_title() or ax.get_title("left") or ax.get_title("right") or None,
        "x_label": ax.get_xlabel() or None,
        "y_label": ax.get_ylabel() or None,
        "x_unit": unit(ax.get_xlabel()),
        "y_unit": unit(ax.get_ylabel()),
    }


def unit(label):
    """Returns the unit in a label such as "Height (m)"."""
    label = (label or "").strip()
    for opening, closing in (("(", ")"), ("[", "]")):
        if label.endswith(closing) and opening in label:
            return label[label.rindex(opening) + 1:-1] or None
    return None


def scaled(ax, kind):
    chart = described(ax, kind)
    for name, axis, limits in (("x", ax.xaxis, ax.get_xlim()), ("y", ax.yaxis, ax.get_ylim())):
        convert, scale = converter(axis)
        low, high = sorted(limits)
        ticks, labels = [], []
        for t, label in zip(axis.get_ticklocs(), axis.get_ticklabels()):
            if low <= t <= high:
                ticks.append(convert(t))
                labels.append(label.get_text())
        chart[name + "_ticks"], chart[name + "_tick_labels"], chart[name + "_scale"] = ticks, labels, scale
    return chart


def converter(axis):
    """Returns how an axis's numbers become values, and its scale's name."""
    conv = getattr(axis, "converter", None)
    if conv is None and hasattr(axis, "get_converter"):
        conv = axis.get_converter()
    name = type(conv).__name__
    if "Date" in name or "Time" in name:
        dates = sys.modules.get("matplotlib.dates")
        if "Period" in name or "Pandas" in type(conv).__module__ and "TimeSeries" in name:
            return plain, "datetime"
        return (lambda v: dates.num2date(v).replace(tzinfo=None).isoformat()), "datetime"
    if "Category" in name:
        mapping = getattr(axis.get_units() if hasattr(axis, "get_units") else axis.units, "_mapping", {})
        names = {float(v): k for k, v in mapping.items()}
        return (lambda v: names.get(float(v), plain(v))), "categorical"
    return plain, axis.get_scale()


def plain(v):
    try:
        v = float(v)
    except (TypeError, ValueError):
        return str(v)
    return v if math.isfinite(v) else None


def rounded(v):
    """Returns an angle rounded as E2B's charts are: to fewer digits, the larger it
    is. So 323.99999141693115 becomes 324."""
    v = abs(float(v))
    if not v or not math.isfinite(v):
        return plain(v)
    return float("%.*g" % (max(1, 8 - math.floor(math.log10(v))), v))


def thinned(points):
    """Returns at most MAX_POINTS of points, spread evenly."""
    points = list(points)
    if len(points) <= MAX_POINTS:
        return points
    step = len(points) / MAX_POINTS
    return [points[int(i * step)] for i in range(MAX_POINTS)]


def series_label(artist, n, kind):
    label = artist.get_label()
    return label if label and not str(label).startswith("_") else "%s %d" % (kind, n + 1)


def points_of(ax, xs, ys):
    x_of, y_of = converter(ax.xaxis)[0], converter(ax.yaxis)[0]
    return [[x_of(x), y_of(y)] for x, y in thinned(zip(xs, ys))]


def line_chart(ax, own):
    elements = []
    chart = scaled(ax, "line")
    for line in ax.get_lines():
        if line in own or not line.get_visible() or line.get_transform() != ax.transData and not shares_data(ax, line):
            continue
        xs, ys = line.get_xdata(orig=False), line.get_ydata(orig=False)
        elements.append({"label": series_label(line, len(elements), "Line"), "points": points_of(ax, xs, ys)})
    return dict(chart, elements=elements)


def shares_data(ax, line):
    """Tells a series from a line across the axes such as axhline's."""
    return line.get_transform().contains_branch(ax.transData) and not len(line.get_xdata()) == 2


def scatter_chart(ax):
    collections = sys.modules["matplotlib.collections"]
    elements = []
    for c in ax.collections:
        if type(c) is not collections.PathCollection or not c.get_visible():
            continue
        offsets = c.get_offsets()
        if not len(offsets):
            continue
        elements.append({"label": series_label(c, len(elements), "Series"),
                         "points": points_of(ax, offsets[:, 0], offsets[:, 1])})
    return dict(scaled(ax, "scatter"), elements=elements) if elements else None


def bar_chart(ax):
    containers = sys.modules["matplotlib.container"]
    groups = [c for c in ax.containers if isinstance(c, containers.BarContainer) and len(c)]
    if not groups:
        return None
    elements = []
    histogram = len(groups[0]) > 1 and touching(groups[0])
    for g, group in enumerate(groups):
        upright = is_upright(group)
        names = tick_names(ax.xaxis if upright else ax.yaxis)
        spread = len(groups) > 1
        for i, patch in enumerate(list(group)[:MAX_POINTS]):
            start, width = (patch.get_x(), patch.get_width()) if upright else (patch.get_y(), patch.get_height())
            value = patch.get_height() if upright else patch.get_width()
            middle = start + width / 2
            if histogram and not names.get("fixed"):
                label = "%s to %s" % (short(start), short(start + width))
            else:
                label = names["of"](middle, i if spread else None)
            elements.append({"label": label, "group": group_label(group, g, spread), "value": plain(value)})
    chart = described(ax, "bar")
    if not is_upright(groups[0]):
        # The categories stand on the y axis: name the axes as they are drawn.
        chart["orientation"] = "horizontal"
    return dict(chart, elements=elements)


def group_label(group, n, spread):
    label = group.get_label()
    if label and not str(label).startswith("_"):
        return label
    return "Group %d" % (n + 1) if spread else ""


def is_upright(group):
    orientation = getattr(group, "orientation", None)
    if orientation is not None:
        return orientation == "vertical"
    return len({round(p.get_y(), 9) for p in group}) == 1


def touching(group):
    patches = list(group)
    return all(abs(a.get_x() + a.get_width() - b.get_x()) < 1e-9 * max(1, abs(b.get_x()))
               for a, b in zip(patches, patches[1:]))


def short(v):
    return "%.6g" % v


def tick_names(axis):
    """Returns how a place on an axis is named."""
    convert, scale = converter(axis)
    ticker = sys.modules["matplotlib.ticker"]
    labels = {}
    fixed = isinstance(axis.get_major_formatter(), (ticker.FixedFormatter, ticker.FuncFormatter)) or scale == "categorical"
    if fixed:
        locs = list(axis.get_ticklocs())
        for loc, label in zip(locs, axis.get_ticklabels()):
            if label.get_text():
                labels[float(loc)] = label.get_text()

    def of(place, index):
        if labels:
            nearest = min(labels, key=lambda loc: abs(loc - place))
            # The bars of one category stand beside each other.
            if abs(nearest - place) < 0.5 or index is None:
                return labels[nearest]
        value = convert(place)
        return value if isinstance(value, str) else short(value if value is not None else place)

    return {"of": of, "fixed": bool(labels)}


def pie_chart(ax):
    patches = sys.modules["matplotlib.patches"]
    elements = []
    for i, w in enumerate(p for p in ax.patches if isinstance(p, patches.Wedge)):
        angle = w.theta2 - w.theta1
        elements.append({"label": series_label(w, i, "Wedge"), "angle": rounded(angle), "radius": plain(w.r),
                         "fraction": round(angle / 360, 6)})
    if not elements:
        return None
    return {"type": "pie", "title": ax.get_title() or None, "elements": elements}


def box_chart(ax, own):
    elements = []
    for stats, artists in boxes.get(ax, ()):
        for several in artists.values():
            own.update(several)
        for i, s in enumerate(stats):
            label = s.get("label")
            elements.append({
                "label": str(label) if label not in (None, "") else "Box %d" % (i + 1),
                "min": plain(s["whislo"]), "first_quartile": plain(s["q1"]), "median": plain(s["med"]),
                "third_quartile": plain(s["q3"]), "max": plain(s["whishi"]),
                "outliers": [plain(v) for v in thinned(s.get("fliers", ()))],
            })
    return dict(described(ax, "box_and_whisker"), elements=elements) if elements else None

"""Tests of rich results: any object's bundle, figures, charts, IPython's names."""

import importlib.util
import os
import struct
import tempfile
import unittest

from harness import Kernel, png

CHART = "application/vnd.glovebox.chart+json"
DATA = "application/vnd.glovebox.data+json"


def needs(*names):
    """Skips a test where modules are missing; GLOVEBOX_REQUIRE forbids that."""
    missing = [n for n in names if importlib.util.find_spec(n) is None]
    if missing and "matplotlib" in os.environ.get("GLOVEBOX_REQUIRE", "").split(","):
        raise AssertionError("required modules are missing: %s" % missing)
    return unittest.skipIf(missing, "no module %s" % missing)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.k = Kernel()

    @classmethod
    def tearDownClass(cls):
        cls.k.close()

    def ok(self, code, **more):
        r = self.k.run(code, **more)
        self.assertEqual(r.status, "ok", r.log)
        return r

    def one(self, code):
        r = self.ok(code)
        self.assertEqual(len(r.results), 1, r.log)
        return r.results[0]


class Objects(Case):
    def test_methods(self):
        got = self.one("""
class All:
    def __repr__(self): return 'text'
    def _repr_html_(self): return '<b>'
    def _repr_markdown_(self): return '*m*'
    def _repr_svg_(self): return '<svg/>'
    def _repr_png_(self): return b'\\x89PNG'
    def _repr_jpeg_(self): return None
    def _repr_latex_(self): return ('$x$', {'meta': 1})
    def _repr_json_(self): return {'a': [1, float('nan')]}
All()""")
        self.assertEqual(got, {"text/plain": "text", "text/html": "<b>", "text/markdown": "*m*", "image/svg+xml": "<svg/>",
                               "image/png": "iVBORw==", "text/latex": "$x$", "application/json": {"a": [1, None]}})

    def test_mimebundle(self):
        got = self.one("""
class B:
    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/html': 'from bundle', 'application/x+json': {'k': (1, 2)}}, {}
    def _repr_html_(self): return 'from method'
B()""")
        self.assertEqual((got["text/html"], got["application/x+json"]), ("from bundle", {"k": [1, 2]}))

    def test_raw_and_several(self):
        r = self.ok("display({'text/html': '<i>'}, raw=True)\ndisplay(1, 'two')")
        self.assertEqual(r.results, [{"text/html": "<i>"}, {"text/plain": "1"}, {"text/plain": "'two'"}])

    def test_objects_that_lie(self):
        self.assertEqual(self.one("from unittest.mock import MagicMock, Mock\nMock(name='m')").keys(), {"text/plain"})
        self.assertEqual(self.one("class T:\n    def _repr_html_(self): return '<b>'\nT").keys(), {"text/plain"})
        r = self.ok("class W:\n    def _repr_html_(self): raise ValueError('no')\nW()")
        self.assertIn("ValueError: no", r.stderr)
        self.assertIn("W object", r.results[0]["text/plain"])

    def test_long_values_are_laid_out(self):
        self.assertIn("\n", self.one("list(range(100))")["text/plain"])
        self.assertEqual(self.one("[1, 2]")["text/plain"], "[1, 2]")


class Shim(Case):
    def test_names(self):
        if importlib.util.find_spec("IPython"):
            self.skipTest("IPython is here")
        r = self.ok("""
from IPython.display import display, HTML, Markdown, Image, SVG, JSON, Latex, Math, clear_output
from IPython.core.display import HTML as H
import IPython
assert IPython.get_ipython() is get_ipython() and IPython.display.HTML is HTML
clear_output()
display(HTML('<b>x</b>'), Markdown('*y*'))
JSON({'a': 1})""")
        self.assertEqual([next(iter(set(d) - {"text/plain"})) for d in r.results], ["text/html", "text/markdown", "application/json"])
        self.assertEqual(r.results[0]["text/html"], "<b>x</b>")
        with tempfile.TemporaryDirectory() as d:
            with open(d + "/a.jpg", "wb") as f:
                f.write(b"\xff\xd8\xffrest")
            self.assertIn("image/jpeg", self.one("Image(%r)" % (d + "/a.jpg")))


@needs("matplotlib", "numpy")
class Figures(Case):
    def chart(self, code):
        r = self.ok("import matplotlib.pyplot as plt\nimport numpy as np\n" + code)
        figures = [d for d in r.results if "image/png" in d]
        self.assertEqual(len(figures), 1, r.log)
        return figures[0][CHART]

    def test_shown_and_left_open(self):
        r = self.ok("""
import matplotlib.pyplot as plt
print('a')
plt.plot([1, 2]); plt.title('one')
plt.show()
print('b')
plt.figure(figsize=(2, 1)); plt.plot([2, 3]); plt.title('two')
plt.figure(); plt.plot([3, 4]); plt.title('three');
""")
        self.assertEqual(r.kinds, ["stdout", "result", "stdout", "result", "result"])
        self.assertEqual([d[CHART]["title"] for d in r.results], ["one", "two", "three"])
        for d in r.results:
            data = png(d)
            self.assertEqual(data[:8], b"\x89PNG\r\n\x1a\n")
            width, height = struct.unpack(">II", data[16:24])
            self.assertGreater(width, 50)
        self.assertEqual(self.ok("plt.get_fignums()").results, [{"text/plain": "[]"}])

    def test_shown_once(self):
        r = self.ok("import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1])\nfig")
        self.assertEqual(len(r.results), 1)
        r = self.ok("fig, ax = plt.subplots()\ndisplay(fig)")
        self.assertEqual(len(r.results), 1)
        self.assertEqual(len(self.ok("fig").results), 1)
        self.assertEqual(self.ok("fig, ax = plt.subplots(); plt.close(fig)").results, [])

    def test_backend_of_the_user(self):
        r = self.ok("import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nprint('after')")
        self.assertEqual(r.kinds, ["result", "stdout"])

    def test_figure_of_a_failed_run(self):
        r = self.k.run("import matplotlib.pyplot as plt\nplt.plot([1]);\n1 // 0")
        self.assertEqual((r.status, r.kinds), ("error", ["error", "result"]))

    def test_figure_that_cannot_be_drawn(self):
        r = self.k.run("import matplotlib.pyplot as plt\nplt.figure(figsize=(100000, 100000)); plt.plot([1]);")
        self.assertEqual((r.status, r.error["name"]), ("error", "ValueError"))
        self.assertEqual(self.ok("plt.get_fignums()").results[0]["text/plain"], "[]")

    def test_line(self):
        c = self.chart("plt.plot([1, 2, 3], [4, 5.5, float('nan')], label='up')\nplt.plot([1, 2], [0, 1])\nplt.axhline(2)\n"
                       "plt.xlabel('Time (s)'); plt.ylabel('Height [m]'); plt.title('T');")
        self.assertEqual((c["type"], c["title"], c["x_label"], c["x_unit"], c["y_unit"], c["x_scale"]), ("line", "T", "Time (s)", "s", "m", "linear"))
        self.assertEqual(c["elements"], [{"label": "up", "points": [[1, 4], [2, 5.5], [3, None]]}, {"label": "Line 2", "points": [[1, 0], [2, 1]]}])
        self.assertEqual(len(c["x_ticks"]), len(c["x_tick_labels"]))

    def test_dates_and_categories(self):
        c = self.chart("import datetime as dt\nplt.plot([dt.date(2024, 1, 1), dt.date(2024, 1, 2)], [1, 2]);")
        self.assertEqual(c["x_scale"], "datetime")
        self.assertEqual(c["elements"][0]["points"][0], ["2024-01-01T00:00:00", 1])
        c = self.chart("plt.plot(['a', 'b'], [1, 2]);")
        self.assertEqual((c["x_scale"], c["elements"][0]["points"]), ("categorical", [["a", 1], ["b", 2]]))
        c = self.chart("plt.plot([1, 10], [1, 100]); plt.yscale('log');")
        self.assertEqual(c["y_scale"], "log")

    def test_bars(self):
        c = self.chart("plt.bar(['a', 'b'], [3, 4]);")
        self.assertEqual((c["type"], c["elements"]), ("bar", [{"label": "a", "group": "", "value": 3}, {"label": "b", "group": "", "value": 4}]))
        c = self.chart("x = np.arange(2)\nplt.bar(x - .2, [1, 2], .4, label='men'); plt.bar(x + .2, [3, 4], .4, label='women'); plt.xticks(x, ['G1', 'G2']); plt.legend();")
        self.assertEqual([(e["label"], e["group"], e["value"]) for e in c["elements"]],
                         [("G1", "men", 1), ("G2", "men", 2), ("G1", "women", 3), ("G2", "women", 4)])
        c = self.chart("plt.barh(['a', 'b'], [3, 4]);")
        self.assertEqual([(e["label"], e["value"]) for e in c["elements"]], [("a", 3), ("b", 4)])
        self.assertEqual(c["orientation"], "horizontal")
        c = self.chart("plt.hist([1, 1, 2, 3], bins=2);")
        self.assertEqual([(e["label"], e["value"]) for e in c["elements"]], [("1 to 2", 2), ("2 to 3", 2)])

    def test_scatter(self):
        c = self.chart("plt.scatter([1, 2], [3, 4], label='dots');")
        self.assertEqual((c["type"], c["elements"]), ("scatter", [{"label": "dots", "points": [[1, 3], [2, 4]]}]))

    def test_pie(self):
        c = self.chart("plt.pie([1, 3], labels=['small', 'big']);")
        self.assertEqual((c["type"], [(e["label"], e["angle"], e["radius"]) for e in c["elements"]]), ("pie", [("small", 90, 1), ("big", 270, 1)]))

    def test_numbers_are_floats(self):
        c = self.chart("plt.plot([1, 2], [10, 100]);")
        numbers = [v for p in c["elements"][0]["points"] for v in p] + c["x_ticks"] + c["y_ticks"]
        self.assertEqual({type(v) for v in numbers}, {float})
        self.assertEqual([type(e["value"]) for e in self.chart("plt.bar(['a', 'b'], [3, 4]);")["elements"]], [float, float])
        angles = [e["angle"] for e in self.chart("plt.pie([90, 10, 30, 10]);")["elements"]]
        self.assertEqual((angles[:2], [type(a) for a in angles]), ([231.429, 25.71429], [float] * 4))
        self.assertEqual([e["angle"] for e in self.chart("plt.pie([90, 10]);")["elements"]], [324, 36])

    def test_box(self):
        c = self.chart("plt.boxplot([[1, 2, 3, 4, 5, 30], [2, 4, 6]]); plt.title('B');")
        self.assertEqual((c["type"], c["title"], len(c["elements"])), ("box_and_whisker", "B", 2))
        first = c["elements"][0]
        self.assertEqual((first["min"], first["median"], first["max"], first["outliers"]), (1, 3.5, 5, [30]))
        self.assertEqual(c["elements"][1], {"label": c["elements"][1]["label"], "min": 2, "first_quartile": 3, "median": 4,
                                            "third_quartile": 5, "max": 6, "outliers": []})

    def test_several_axes(self):
        c = self.chart("fig, (a, b) = plt.subplots(1, 2)\na.plot([1, 2]); b.bar(['x'], [1]); fig.suptitle('both');")
        self.assertEqual((c["type"], c["title"], [e["type"] for e in c["elements"]]), ("superchart", "both", ["line", "bar"]))

    def test_image_and_colorbar(self):
        c = self.chart("plt.imshow(np.eye(3)); plt.colorbar(); plt.title('I');")
        self.assertEqual((c["type"], c["title"], c["elements"]), ("unknown", "I", []))

    def test_prepared(self):
        k = Kernel(prepare=["numpy", "matplotlib.pyplot"])
        try:
            self.assertEqual(k.run("import sys\n'matplotlib.pyplot' in sys.modules").main, "True")
            r = k.run("import matplotlib.pyplot as plt\nplt.plot([1]);")
            self.assertEqual(len(r.results), 1)
            self.assertEqual(k.run("sorted(n for n in dir() if n[0] != '_')").main, "['plt', 'sys']")
        finally:
            k.close()


@needs("pandas")
class Frames(Case):
    def test_frame(self):
        got = self.one("import pandas as pd\npd.DataFrame({'a': [1, 2], 'when': pd.to_datetime(['2024-01-01', None])})")
        self.assertIn("<table", got["text/html"])
        self.assertIn("2024-01-01", got["text/plain"])
        self.assertEqual(got[DATA]["a"], [1, 2])
        self.assertEqual(got[DATA]["when"][0], "2024-01-01T00:00:00")
        self.assertNotIn(DATA, self.one("pd.DataFrame({'a': range(20000)})"))

    @needs("matplotlib")
    def test_plots_of_pandas(self):
        r = self.ok("import pandas as pd, matplotlib.pyplot as plt\ns = pd.Series([1, 2, 3], index=pd.date_range('2024-01-01', periods=3))\ns.plot(title='series');")
        self.assertEqual(r.results[0][CHART]["elements"][0]["points"][0][1], 1)
        r = self.ok("pd.DataFrame({'n': [1, 2]}, index=['a', 'b']).plot.bar();")
        self.assertEqual([(e["label"], e["value"]) for e in r.results[0][CHART]["elements"]], [("a", 1), ("b", 2)])


@needs("PIL")
class Pictures(Case):
    def test_image(self):
        got = self.one("from PIL import Image\nImage.new('RGB', (4, 4))")
        self.assertEqual(png(got)[:4], b"\x89PNG")

    def test_saved_image(self):
        with tempfile.TemporaryDirectory() as d:
            code = "from PIL import Image\nImage.new('RGB', (4, 4)).save(%r)" % (d + "/a.png")
            self.assertEqual(self.ok(code).results, [])
            self.assertIn("image/png", self.ok(code, e2b=True).results[0])


@needs("plotly")
class Plotly(Case):
    def test_figure(self):
        r = self.ok("import plotly.graph_objects as go\nfig = go.Figure(go.Bar(y=[1, 2]))\nfig.show()\nfig")
        for d in r.results:
            self.assertEqual(d["application/vnd.plotly.v1+json"]["data"][0]["type"], "bar")
        self.assertEqual(len(r.results), 2)


@needs("altair")
class Altair(Case):
    def test_chart(self):
        got = self.one("import altair as alt\nalt.Chart(alt.Data(values=[{'x': 1}])).mark_bar().encode(x='x:Q')")
        mime = next(m for m in got if m.startswith("application/vnd.vegalite.v"))
        self.assertIn("bar", str(got[mime]["mark"]))
        self.assertIn("/" + mime[len("application/vnd.vegalite."):-len("+json")] + ".", got[mime]["$schema"])


if __name__ == "__main__":
    unittest.main()

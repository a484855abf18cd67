"""Tests of the backend of matplotlib for programs that are no kernel's."""

import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

from harness import source
from test_rich import CHART, needs


DRAW = """
import matplotlib.pyplot as plt
def draw(title):
    plt.plot([1, 2])
    plt.title(title)
"""


def run(code, keep_saved=True, **env):
    """Runs a program with the backend, and returns its process and the bundles."""
    with tempfile.TemporaryDirectory() as place:
        with open(os.path.join(place, "glovebox_plots.py"), "w", encoding="utf-8") as f:
            f.write("%s\n\nKEEP_SAVED = %r\nRICH = %r\n" % (source("backend.py"), keep_saved, source("rich.py")))
        env = dict({"PYTHONPATH": place, "MPLBACKEND": "module://glovebox_plots"}, **env)
        p = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120,
                           universal_newlines=True, cwd=place, env=dict(os.environ, **env))
        shown = []
        for name in sorted(glob.glob(os.path.join(place, "shown", "*.json"))):
            with open(name, encoding="utf-8") as f:
                shown.append(json.load(f))
        return p, shown


@needs("matplotlib")
class TestBackend(unittest.TestCase):
    def titles(self, code, status=0, **more):
        p, shown = run(DRAW + code, **more)
        self.assertEqual((p.returncode, p.stderr if status == 0 else ""), (status, ""), p.stderr)
        self.assertTrue(all("image/png" in s for s in shown))
        return [s[CHART]["title"] for s in shown]

    def test_show(self):
        self.assertEqual(self.titles("""
for title in "a", "b":
    draw(title)
    plt.show()
assert plt.get_fignums() == []
"""), ["a", "b"])

    def test_without_waiting(self):
        self.assertEqual(self.titles("""
plt.plot([1])
plt.show(block=False)
plt.pause(0.01)
plt.title("later")
"""), ["later"])

    def test_left_open(self):
        self.assertEqual(self.titles("""
draw("left")
plt.figure(); draw("closed"); plt.close()
raise SystemExit(3)
""", status=3), ["left"])

    def test_exception(self):
        self.assertEqual(self.titles("draw('left')\n1/0", status=1), ["left"])

    def test_figure_show(self):
        self.assertEqual(self.titles("fig, ax = plt.subplots(); ax.set_title('one'); ax.plot([1]); fig.show(); plt.show()"), ["one"])

    def test_saved_as_file(self):
        code = "draw('saved'); plt.savefig('x.png'); plt.figure(); draw('not')"
        self.assertEqual(self.titles(code), ["saved", "not"])
        self.assertEqual(self.titles(code, keep_saved=False), ["not"])
        self.assertEqual(self.titles("draw('both'); plt.savefig('x.png'); plt.show()", keep_saved=False), ["both"])

    def test_boxes(self):
        p, shown = run("import matplotlib.pyplot as plt\nplt.boxplot([1, 2, 3, 4, 100]); plt.show()")
        self.assertEqual([s[CHART]["type"] for s in shown], ["box_and_whisker"], p.stderr)

    def test_other_backend(self):
        for code in ("import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt; plt.plot([1])",
                     "import matplotlib; assert 'glovebox_plots' in matplotlib.get_backend()",
                     "print('no plots')"):
            p, shown = run(code)
            self.assertEqual((p.returncode, p.stderr, shown), (0, "", []))

    def test_fork(self):
        self.assertEqual(self.titles("""
import os
draw("one")
if os.fork() == 0:
    raise SystemExit
os.wait()
"""), ["one"])

    def test_child(self):
        p, shown = run("""
import subprocess, sys
subprocess.check_call([sys.executable, "-c", "import matplotlib.pyplot as p; p.plot([1]); p.show()"])
""")
        self.assertEqual((p.returncode, p.stderr, len(shown)), (0, "", 1))

    def test_cannot_be_drawn(self):
        p, shown = run("import matplotlib.pyplot as plt\nplt.title('$\\\\nothing{$'); plt.show(); print('goes on')")
        self.assertEqual((p.returncode, p.stdout, shown), (0, "goes on\n", []))
        self.assertIn("a plot is lost: ValueError", p.stderr)

    def test_too_many(self):
        p, shown = run("""
import matplotlib.pyplot as plt, glovebox_plots
glovebox_plots.MAX_DRAWN, glovebox_plots.MAX_COUNTED = 1, 2
for i in range(4):
    plt.figure()
    plt.show()
""")
        self.assertEqual([bool(s) for s in shown], [True, False])
        self.assertEqual((p.returncode, p.stderr, len(shown)), (0, "", 2))

    def test_rich_that_cannot_be_read(self):
        p, shown = run("import matplotlib.pyplot as plt, glovebox_plots\nglovebox_plots.RICH = '('\nplt.plot([1]); plt.show()")
        self.assertEqual((p.returncode, p.stderr, [list(s) for s in shown]), (0, "", [["image/png"]]))


if __name__ == "__main__":
    unittest.main()

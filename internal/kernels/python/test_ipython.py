"""Tests of IPython as the kernel."""

import importlib.util
import os
import shutil
import sys
import tempfile
import unittest

from harness import Kernel, png

HAS_IPYTHON = importlib.util.find_spec("IPython") is not None
REQUIRED = "ipython" in os.environ.get("GLOVEBOX_REQUIRE", "").split(",") and sys.executable == "/usr/bin/python3"


class Missing(unittest.TestCase):
    @unittest.skipIf(HAS_IPYTHON, "IPython is here")
    def test_missing(self):
        k = Kernel(ipython="missing")
        self.addCleanup(k.close)
        self.assertIn("IPython", k.ready["text"])


@unittest.skipUnless(HAS_IPYTHON or REQUIRED, "no IPython here")
class Case(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.home)
        self.k = Kernel(cwd=self.home, env={"HOME": self.home}, ipython=True)
        self.addCleanup(self.k.close)

    def ok(self, code, **more):
        r = self.k.run(code, **more)
        self.assertEqual(r.status, "ok", r.log)
        return r

    def fails(self, code, name, *texts):
        r = self.k.run(code)
        self.assertEqual((r.status, r.error["name"]), ("error", name), r.log)
        for text in texts:
            self.assertIn(text, r.error["value"])
        return r

    def carets(self, r):
        """Python 3.11 and newer underline what failed."""
        return "".join(l + "\n" for l in r.error["traceback"].split("\n") if l.strip() and not l.strip("~^ "))


class Cells(Case):
    def test_values(self):
        r = self.ok("x = 41\nprint('a')\nx + 1")
        self.assertEqual((r.main, r.stdout, r.stderr, r.kinds), ("42", "a\n", "", ["stdout", "result"]))
        self.assertEqual(self.ok("_, _1, Out[1], In[1], x").main, repr((42, 42, 42, "x = 41\nprint('a')\nx + 1", 41)))
        self.assertIsNone(self.ok("x;").main)
        self.assertIsNone(self.ok("").main)
        self.assertIsNone(self.ok("None").main)
        self.assertEqual(self.ok("type(get_ipython()).__mro__[1].__name__, get_ipython().execution_count").main, "('InteractiveShell', 6)")
        self.assertEqual(self.ok("import IPython\nIPython.get_ipython() is get_ipython()").main, "True")
        # IPython's own way of printing.
        self.assertEqual(self.ok("{n: 'a' * 30 for n in range(3)}").main.count("\n"), 2)

    def test_bounds(self):
        for i in range(125):
            self.k.run("%d" % i)
        r = self.ok("len(Out) <= 100, 125 in Out, '_1' in globals(), _125")
        self.assertEqual((r.main, r.stderr), ("(True, True, False, 124)", ""))
        self.assertLess(len(self.ok("'a' * (2 << 20)").main), 2 << 20)
        self.assertEqual(self.ok("'a' * (2 << 20)").stdout, "")

    def test_errors(self):
        r = self.fails("def f():\n    return 1 // 0\n\nf()", "ZeroDivisionError")
        self.assertEqual((r.error["line"], r.error["text"]), (2, "    return 1 // 0"))
        self.assertEqual(r.error["traceback"],
                         'Traceback (most recent call last):\n  File "<cell 1>", line 4, in <module>\n    f()\n'
                         '  File "<cell 1>", line 2, in f\n    return 1 // 0\n' + self.carets(r) +
                         'ZeroDivisionError: integer division or modulo by zero\n')
        self.assertEqual(r.stdout + r.stderr, "")
        r = self.fails("x = 1\ny = = 2", "SyntaxError")
        self.assertEqual((r.error["line"], r.error["text"]), (2, "y = = 2"))
        self.fails("%nonsense", "UsageError", "nonsense")
        r = self.fails("%%time\n1 // 0", "ZeroDivisionError")
        self.assertNotIn("IPython", r.error["traceback"])
        r = self.fails("get_ipython().run_cell('1 // 0')\nraise ValueError('a')", "ValueError", "a")
        self.assertIn("ZeroDivisionError", r.stderr)
        r = self.ok("class A:\n    def _repr_html_(self):\n        return 1 // 0\n    def __repr__(self):\n        return 'an A'\nA()")
        self.assertEqual(r.main, "an A")
        self.assertIn("ZeroDivisionError", r.stderr)

    def test_exit(self):
        r = self.k.run("import sys\nsys.exit(3)")
        self.assertEqual((r.status, r.end["exit_code"], r.stderr), ("exit", 3, ""))
        r = self.k.run("exit(4)")
        self.assertEqual((r.status, r.end["exit_code"]), ("exit", 4))
        self.assertEqual(self.ok("quit()").end["exit_code"], 0)
        self.assertEqual(self.ok("1").main, "1")

    def test_interrupt(self):
        r = self.k.run("x = 5\nimport time\nprint('begun')\ntime.sleep(60)", interrupt=1)
        self.assertEqual((r.status, r.error["name"], r.error["line"], r.stdout), ("interrupted", "KeyboardInterrupt", 4, "begun\n"))
        r = self.k.run("import asyncio\nawait asyncio.sleep(60)", interrupt=1)
        self.assertEqual((r.status, r.error["name"]), ("interrupted", "KeyboardInterrupt"))
        r = self.k.run("!sleep 60", interrupt=1)
        self.assertEqual(r.status, "interrupted")
        self.assertEqual(self.ok("x").main, "5")

    def test_await(self):
        self.ok("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 7")
        self.assertEqual(self.ok("await f()").main, "7")
        self.ok("t = asyncio.get_event_loop().create_task(f())")
        self.assertEqual(self.ok("await t").main, "7")

    def test_display(self):
        r = self.ok("from IPython.display import display, HTML, Image\nprint('a')\ndisplay(HTML('<b>x</b>'), 3)\nprint('b')")
        self.assertEqual([k for k, _ in r.log], ["stdout", "result", "result", "stdout"])
        self.assertEqual(r.results[0]["text/html"], "<b>x</b>")
        self.assertEqual(r.results[1], {"text/plain": "3"})
        r = self.ok("class A:\n    def _repr_png_(self):\n        return b'\\x89PNG'\n    def _repr_mimebundle_(self, include=None, exclude=None):\n"
                    "        return {'text/x': 'mine'}\nA()")
        self.assertEqual((png(r.results[0]), r.results[0]["text/x"]), (b"\x89PNG", "mine"))
        self.ok("get_ipython().display_formatter.formatters['text/html'].for_type(int, lambda n: '<i>%d</i>' % n)")
        self.assertEqual(self.ok("7").results[0]["text/html"], "<i>7</i>")
        self.assertEqual(self.ok("%%html\n<u>y</u>").results[0]["text/html"], "<u>y</u>\n")
        self.assertEqual(self.ok("[1, {'a': None}]", e2b=True).results[0]["application/json"], [1, {"a": None}])
        r = self.ok("class B:\n    def _ipython_display_(self):\n        print('by itself')\nB()")
        self.assertEqual((r.stdout, r.results), ("by itself\n", []))

    def test_magics(self):
        r = self.ok("!echo out; echo err >&2\n!exit 3\n_exit_code")
        self.assertEqual((r.main, r.stdout, r.stderr), ("3", "out\n", "err\n"))
        self.assertEqual(self.ok("a = 'b c'\nlines = !printf '%s\\n' {a} $a\nlines.n").main, repr("b\nc\nb\nc"))
        self.assertEqual(self.ok("%%bash\necho in bash").stdout, "in bash\n")
        self.assertEqual(self.ok("%%writefile f.py\nprint(__name__)\ny = 2").stdout, "Writing f.py\n")
        r = self.ok("%run f.py\ny")
        self.assertEqual((r.stdout, r.main), ("__main__\n", "2"))
        self.ok("%%capture c\nprint('kept')\n4")
        self.assertEqual(self.ok("c.stdout, c.outputs[0].data").main, repr(("kept\n", {"text/plain": "4"})))
        self.assertIn("Wall time", self.ok("%time 3").stdout)
        self.assertIn("Docstring", self.ok("len?").stdout)
        self.assertEqual(self.ok("%who_ls int").main, "['y']")
        self.assertEqual(self.ok("%matplotlib inline").stdout, "")
        self.assertIn("inline", self.ok("%matplotlib qt").stderr)
        if importlib.util.find_spec("pip"):
            self.assertIn("no such option", self.ok("%pip --nonsense").stderr)

    def test_input(self):
        r = self.ok("a = input('name? ')\na", answers=["Ada\n"])
        self.assertEqual((r.main, r.prompts), ("'Ada'", ["name? "]))
        self.fails("input()", "EOFError", "nobody can answer")

    def test_environment_and_fork(self):
        self.assertEqual(self.ok("import os\nos.environ['RUN']", env={"RUN": "of it"}).main, "'of it'")
        self.assertEqual(self.ok("'RUN' in os.environ").main, "False")
        r = self.ok("pid = os.fork()\nif pid == 0:\n    display(5)\n    1 // 0\nos.waitpid(pid, 0)[1] >> 8")
        self.assertEqual((r.main, r.stdout), ("1", "5\n"))
        self.assertIn("ZeroDivisionError", r.stderr)

    def test_hostile(self):
        self.k.run("import builtins, sys\nget_ipython().display_pub = get_ipython().displayhook = None\nsys.stdout = None\ndel builtins.print, builtins.repr")
        self.k.run("import sys\nget_ipython().history_manager = None\nfor n in list(sys.modules):\n    if n.startswith('IPython'):\n        del sys.modules[n]")
        r = self.k.run("1")
        self.assertIn(r.status, ("ok", "error"))
        r = self.k.run("get_ipython().run_cell = None\nget_ipython().__class__.run = None")
        self.assertIn(self.k.run("1").status, ("ok", "error"))


@unittest.skipUnless(HAS_IPYTHON and importlib.util.find_spec("matplotlib") and importlib.util.find_spec("pandas"), "no IPython, matplotlib or pandas here")
class Data(Case):
    def test_figures(self):
        r = self.ok("%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2]);\nplt.title('t');")
        self.assertEqual(len(r.results), 1, r.log)
        self.assertEqual(r.results[0]["application/vnd.glovebox.chart+json"]["title"], "t")
        self.assertEqual(png(r.results[0])[:4], b"\x89PNG")
        r = self.ok("fig, ax = plt.subplots()\ndisplay(fig)\nplt.show()")
        self.assertEqual(len(r.results), 1, r.log)

    def test_frames(self):
        r = self.ok("import pandas as pd\npd.DataFrame({'a': [1, 2]})")
        self.assertIn("<table", r.results[0]["text/html"])
        self.assertEqual(r.results[0]["application/vnd.glovebox.data+json"], {"a": [1, 2]})


if __name__ == "__main__":
    unittest.main()

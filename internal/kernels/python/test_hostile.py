"""Tests of IPython's syntax in hostile code: every run has a verdict, and the next
run works."""

import os
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

from harness import Kernel, pieces, source

# A cell of so many characters takes a second. What grows by the square of its length
# would take minutes, which is how the limit tells the two.
BIG = 1 << 18
LIMIT = 20  # seconds of processor time


class Case(unittest.TestCase):
    def setUp(self):
        self.k = Kernel()
        self.addCleanup(self.k.close)
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)

    def ok(self, code, **more):
        r = self.k.run(code, **more)
        self.assertEqual(r.status, "ok", str(r.log)[:5000])
        return r

    def fails(self, code, name, *texts, **more):
        r = self.k.run(code, **more)
        self.assertEqual((r.status, r.error and r.error["name"]), ("error", name), str(r.log)[:5000])
        for text in texts:
            self.assertIn(text, r.error["value"])
        return r

    def answers(self):
        """Checks that the kernel goes on, with its magics."""
        self.assertEqual(self.ok("x = !echo next\nx[0]").main, "'next'")

    def path(self, name):
        return os.path.join(self.directory, name)


def translator():
    names = {}
    for piece in pieces(source("syntax.py")):
        exec(piece, names)
    return names["translate"]


class Translation(unittest.TestCase):
    """The translation takes time in proportion to the cell, and no stack."""

    def test_large_cells(self):
        translate = translator()
        for text in ("!\n", "!x\n", "%\n", "%x\n", "?\n", "??x\n", "x?\n", "x = !y\n", "x = %y\n", "!x \\\n", "!\\\n", "'", "'''", "'''x", "'\n",
                     "\"\n", "f'{", "f'{x:", "f'''{x:{", "rb'''", "(", ")", "([{", "\\\n", "\\", "#", "#\n", "=", "= !", "x=", "x=%", "\t", " \n",
                     "\n", "a", "0", "{", "%%time\n", "%time ", "%%", "?" * 9 + "x", "\r\n", "!\r", "x.y[", "*?", "\0", "\ud800", "é", "f'{f\"{"):
            with self.subTest(text=text):
                cell = text * (BIG // len(text))
                began = time.process_time()
                python, _ = translate(cell)
                self.assertLess(time.process_time() - began, LIMIT)
                if not python.startswith("get_ipython().run_cell_magic"):
                    self.assertEqual(python.count("\n"), cell.count("\n"))


class Magics(Case):
    def test_nested(self):
        self.fails("%time " * 2000 + "1", "RecursionError")
        self.answers()
        self.fails("%%time\n" * 2000 + "1", "RecursionError")
        self.answers()
        self.ok("%time %time %time 1")
        self.assertEqual(self.ok("%%time\n%%time\n%%capture c\n%%time\n7").main, None)
        self.assertIn("7", self.ok("c.outputs[0]['text/plain']").main)
        r = self.k.run("%timeit -n1 -r1 get_ipython().run_line_magic('timeit', '-n1 -r1 %time 1')")
        self.assertEqual(r.status, "ok", r.log)

    def test_recursion(self):
        self.k.run("get_ipython().run_cell(In[-1])", timeout=60)
        self.answers()
        self.ok("def again(): get_ipython().run_cell('again()')\nagain()", timeout=60)
        self.answers()
        self.fails("def again(): get_ipython().run_line_magic('time', 'again()')\nagain()", "RecursionError", timeout=60)
        self.answers()
        self.k.run("get_ipython().register_magic_function(lambda line: get_ipython().run_line_magic('own', line), magic_name='own')\n%own", timeout=60)
        self.answers()

    def test_long(self):
        self.fails("%" + "x" * BIG, "UsageError")
        self.answers()
        self.fails("%cd " + "x" * BIG, "UsageError", "at most 65536 characters")
        self.fails("%cd " + "x" * 60000, "UsageError", "too long")
        self.fails("!echo " + "x" * BIG, "UsageError", "too long")
        self.fails("%%bash " + "x" * BIG + "\n1", "UsageError", "too long")
        self.answers()

    def test_variables_in_text(self):
        for text in ("{x}", "{", "}", "}{", "{x", "{{x}", "{x:{x}", "{!r}", "{x!", "{x!z}", "{}", "{0}", "{x.__class__.y}", "{1//0}", "{x:999}",
                     "{'a'*3}", "$", "$$", "$x.y", "${x}", "{x[}", "{lambda: 1}", "{__import__('os').getpid()}"):
            with self.subTest(text=text):
                self.ok("x = 5\n!: '%s'" % text)
                self.ok("x = 5\ny = !echo '%s'" % text)
        self.ok("class C:\n    def __format__(self, spec): raise ValueError\nc = C()\n!: {c} $c")
        self.ok("class D:\n    def __str__(self): return 5\nd = D()\ns = get_ipython().expand('{d} $d')")
        self.assertEqual(self.ok("s").main, "'{d} $d'")
        self.answers()

    def test_much_text_with_variables(self):
        for text in ("$x ", "$", "{x}", "{", "}", "{x:", "'$x", "$x.", "$$x", "{{", "{x:{x:"):
            with self.subTest(text=text):
                r = self.ok("x = 5\nimport time\nbefore = time.process_time()\nn = len(get_ipython().expand(%r * %d))\n"
                            "time.process_time() - before" % (text, BIG // len(text)), timeout=60)
                self.assertLess(float(r.main), LIMIT)

    def test_bytes(self):
        for code in ("!echo \0", "%cd \0", "x = !\0", "%%writefile \0\nx", "\0?"):
            with self.subTest(code=code):
                self.assertEqual(self.k.run(code).status, "error")
        self.fails("get_ipython().system('echo \\0')", "UsageError", "NUL")
        self.fails("get_ipython().system('echo \\ud800')", "UsageError", "UTF-8")
        self.fails("get_ipython().run_cell_magic('bash', '', '\\ud800')", "UsageError", "UTF-8")
        self.fails("get_ipython().run_line_magic('cd', '\\0')", "UsageError", "NUL")
        for magic in ("'env', 'X=\\0'", "'run', '\\0'", "'load_ext', '\\0'", "'pip', '\\0'", "'ls', '\\0'"):
            self.assertEqual(self.k.run("get_ipython().run_line_magic(%s)" % magic).status, "error")
        self.assertEqual(self.k.run("!echo \ud800").status, "error")
        self.assertEqual(self.k.run("%%writefile x\n\ud800").status, "error")
        self.assertEqual(self.ok("x = !printf '\\377\\376'\nx").main, repr(["\ufffd\ufffd"]))
        self.answers()

    def test_writefile(self):
        target, link, fifo = self.path("target"), self.path("link"), self.path("fifo")
        os.symlink(target, link)
        self.ok("%%%%writefile %s\nthrough a link" % link)
        with open(target) as f:
            self.assertEqual(f.read(), "through a link")
        os.symlink("loop", self.path("loop"))
        self.fails("%%%%writefile %s\nx" % self.path("loop"), "OSError")
        self.fails("%%%%writefile %s\nx" % self.directory, "IsADirectoryError")
        self.fails("%%%%writefile %s\nx" % self.path("no/where"), "FileNotFoundError")
        self.assertEqual(self.k.run("%%writefile /proc/self/status\nx").status, "error")
        self.assertEqual(self.k.run("%%writefile /proc/version\nx").status, "error")
        self.ok("%%writefile /dev/null\nx")
        self.fails("%%writefile /dev/full\nx", "OSError")
        os.mkfifo(fifo)
        # A pipe that nobody reads waits until the run is interrupted.
        self.assertEqual(self.k.run("%%%%writefile %s\nx" % fifo, interrupt=1).status, "interrupted")
        self.answers()
        read = []
        t = threading.Thread(target=lambda: read.append(subprocess.run(["cat", fifo], stdout=subprocess.PIPE).stdout))
        t.start()
        self.ok("%%%%writefile %s\nx" % fifo)
        t.join(10)
        self.assertEqual(read, [b"x"])
        self.ok("%%%%writefile %s\n%s" % (target, "x" * (8 << 20)))
        self.assertEqual(os.path.getsize(target), 8 << 20)
        self.answers()

    def test_directories(self):
        os.symlink(".", self.path("self"))
        self.ok("%%cd -q %s" % self.directory)
        self.ok("for i in range(3000):\n    %cd -q self\n    %cd -q -")
        self.ok("%cd -q " + "self/" * 30)
        self.fails("%cd " + "self/" * 3000, "UsageError", "too long")
        self.ok("import os\nos.mkdir('gone')\n%cd -q gone\nos.rmdir(os.getcwd())")
        # The present directory is no more: there is a way out, but none back.
        self.assertEqual(self.k.run("%pwd").error["name"], "FileNotFoundError")
        self.ok("%%cd -q %s" % self.directory)
        self.answers()

    def test_programs_that_do_not_end(self):
        # It leaves the session, and keeps the output open.
        r = self.ok("%%bash\nsetsid sleep 300 & echo $!")
        pid = int(r.stdout)
        self.addCleanup(os.kill, pid, 9)
        self.answers()
        r = self.k.run("%%bash\nwhile :; do :; done", interrupt=1)
        self.assertEqual(r.status, "interrupted")
        self.answers()
        r = self.k.run("%%bash\ntrap '' INT\nwhile :; do :; done", interrupt=1)
        self.assertEqual(r.status, "interrupted")
        self.answers()
        # With kept output the magic waits for its end, and can be interrupted.
        r = self.k.run("x = !setsid sleep 300 & echo $!", interrupt=1)
        self.assertEqual(r.status, "interrupted")
        self.answers()


class Replaced(Case):
    """Code replaces what the kernel gives it. Its next runs may be told so, but each
    has a verdict."""

    def test_verdicts(self):
        for code in ("get_ipython = display = None",
                     "import builtins\nbuiltins.get_ipython = builtins.display = builtins.input = None",
                     "import builtins\ndel builtins.get_ipython, builtins.display, builtins.In, builtins.Out, builtins._",
                     "import sys\nsys.modules.clear()",
                     "import sys\nfor n in list(sys.modules): sys.modules[n] = None",
                     "import sys\nfor n in list(sys.modules): sys.modules[n] = 5",
                     "import sys\ndel sys.modules['__main__']",
                     "In.clear()\nOut.clear()",
                     "In[:] = range(1000)\nOut.update((str(n), n) for n in range(200))",
                     "In = Out = _ = __ = 5",
                     "Out['a'] = Out[None] = Out[()] = 1",
                     "import builtins\nbuiltins.In = builtins.Out = builtins._ = builtins.__ = builtins.___ = None",
                     "__name__ = __builtins__ = None",
                     "globals().clear()",
                     "ip = get_ipython()\nip.line_magics.clear(); ip.cell_magics.clear()",
                     "ip = get_ipython()\nip.events.callbacks.clear()",
                     "ip = get_ipython()\nip.events.register('post_execute', lambda: 1 // 0)",
                     "ip = get_ipython()\nip.events.register('post_run_cell', lambda r: exit(3))",
                     "ip = get_ipython()\nip.events = ip.parts = ip.line_magics = None",
                     "type(get_ipython()).expand = type(get_ipython()).run_source = None",
                     "get_ipython().display_formatter.formatters = None",
                     "import os\nos.environ.clear(); os.getcwd = os.chdir = None",
                     "import subprocess\nsubprocess.Popen = None",
                     "import linecache\nlinecache.cache.clear(); linecache.cache = None",
                     "import sys\nsys.setrecursionlimit(60)"):
            with self.subTest(code=code):
                k = Kernel()
                try:
                    k.run(code)
                    for after in ("1", "[1]", "1 // 0", "print(5)", "!true", "%time 1", "%%capture c\n1", "display(1)", "x?", "'a"):
                        self.assertIn(k.run(after).status, ("ok", "error", "exit"))
                    k.send({"op": "reset"})
                    self.assertEqual(k.event()["ev"], "wasreset")
                    self.assertIn(k.run("1").status, ("ok", "error", "exit"))
                except (EOFError, TimeoutError) as e:
                    self.fail("%s: %s" % (code, e))
                finally:
                    k.close()

"""Tests of IPython's syntax in the kernel: commands, magics, get_ipython()."""

import importlib.util
import os
import shutil
import sys
import tempfile
import time
import unittest
import zipfile

from harness import Kernel


class Case(unittest.TestCase):
    def setUp(self):
        self.k = Kernel()
        self.addCleanup(self.k.close)
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)

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

    def file(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w") as f:
            f.write(text)
        return path


class Cells(Case):
    def test_indentation(self):
        self.assertEqual(self.ok("\n    x = 1\n    if x:\n        y = 2\n    x + y\n    ").main, "3")
        self.assertEqual(self.ok("\n\n\tprint('a')\n\t").stdout, "a\n")
        r = self.fails("\n    def f():\n        return 1 // 0\n    f()", "ZeroDivisionError")
        self.assertEqual((r.error["line"], r.error["text"]), (3, "    return 1 // 0"))
        self.assertIn('line 4, in <module>\n    f()\n', r.error["traceback"])
        r = self.fails("\n    x = 1\n  y = 2", "IndentationError")
        self.assertEqual(r.error["line"], 3)

    def test_python_is_not_translated(self):
        self.assertEqual(self.ok("get_ipython = None\nx = '''\n!ls\n%pwd\n'''\nx").main, repr("\n!ls\n%pwd\n"))

    def test_lines_stay(self):
        r = self.fails("!true \\\n  and more\n\n1 // 0", "ZeroDivisionError")
        self.assertEqual((r.error["line"], r.error["text"]), (4, "1 // 0"))
        r = self.fails("!true\nx = = 1", "SyntaxError")
        self.assertEqual((r.error["line"], r.error["text"]), (2, "x = = 1"))
        r = self.fails("%%time\n\nx = 1\n1 // 0", "ZeroDivisionError")
        self.assertEqual((r.error["line"], r.error["text"]), (4, "1 // 0"))

    def test_history(self):
        self.ok("40 + 2")
        self.ok("'b'")
        self.assertEqual(self.ok("_1, _, __, Out[2], In[1], sorted(Out)").main, "(42, 'b', 42, 'b', '40 + 2', [1, 2])")
        self.assertEqual(self.ok("[n for n in dir() if n[:1] != '_']").main, "[]")
        self.ok("None")
        self.ok("5;")
        self.assertEqual(self.ok("_, len(In), 5 in Out").main, "([], 8, False)")

    def test_history_is_bounded(self):
        for i in range(105):
            self.k.run("%d" % i)
        self.assertEqual(self.ok("len(Out), min(Out), '_1' in vars(__builtins__), _105").main, "(100, 6, False, 104)")

    def test_last_value_of_a_magic(self):
        self.assertEqual(self.ok("%%time\nx = 4\nx + 1").main, "5")
        self.assertIsNone(self.ok("%%time\nx;").main)
        self.assertEqual(self.ok("y = %time x * 2\ny").main, "8")
        self.assertEqual(self.ok("%%time\nimport asyncio\nawait asyncio.sleep(0, 7)").main, "7")


class Commands(Case):
    def test_output(self):
        r = self.ok("print('a')\n!echo b; echo c >&2\nprint('d')")
        self.assertEqual((r.stdout, r.stderr), ("a\nb\nd\n", "c\n"))
        self.assertEqual(self.ok("!exit 3\n_exit_code").main, "3")
        self.assertEqual(self.ok("for i in range(3):\n    !echo {i} $i").stdout, "0 0\n1 1\n2 2\n")
        self.assertEqual(self.ok("!cat").stdout, "")

    def test_output_is_live(self):
        self.k.send({"op": "run", "id": 100, "code": "!echo first; sleep 20; echo second"})
        self.assertEqual(self.k.pump(10), ("stdout", b"first\n"))

    def test_kept_output(self):
        r = self.ok("x = !printf 'a b\\nc d\\n'; echo e >&2\nx, x.n, x.s, x.l is x, x.p, x.fields(0), x.grep('C'), x.fields()[0]")
        self.assertEqual(r.main.replace("\n", ""), "(['a b', 'c d', 'e'], 'a b\\nc d\\ne', 'a b c d e', True, [], ['a', 'c', 'e'], ['c d'], ['a', 'b'])")
        self.assertEqual(self.ok("!!echo x").main, "['x']")

    def test_variables(self):
        self.ok("x, name, d = 5, 'a b', {'k': 1}")
        for given, printed in (("{x + 1}", "6"), ("$x", "5"), ("'{name}'", "a b"), ("{d['k']:03d}", "001"), ("{name!r}", "a b"), ("'$x'", "$x"),
                               ("$$ | wc -l", "1"), ("{{x}}", "{x}"), ("$nothing $x", "5"), ("${HOME}", os.environ.get("HOME", "")), ("{a,b}", "a b"),
                               ("$name.upper.__name__", "upper"), ("1 | awk '{print $1 + 1}'", "2"), ("{x} | awk '{{print $1 + 1}}'", "6")):
            self.assertEqual(self.ok("!echo " + given).stdout, printed + "\n", given)
        self.assertEqual(self.ok("def f(inner):\n    !echo {inner} $inner $x\nf(7)").stdout, "7 7 5\n")

    def test_interrupt(self):
        for code in ("!sleep 60", "x = !sleep 60", "%%bash\nsleep 60", "%%bash\ntrap '' INT; sleep 60", "%%capture\n!sleep 60"):
            since = time.monotonic()
            r = self.k.run(code, interrupt=0.7)
            self.assertEqual((r.status, r.error["name"]), ("interrupted", "KeyboardInterrupt"), code)
            self.assertNotIn("subprocess", r.error["traceback"])
            self.assertLess(time.monotonic() - since, 20)
        self.assertEqual(self.ok("!echo next").stdout, "next\n")

    def test_hostile_surroundings(self):
        self.ok("import sys, os, builtins\nfor n in ('subprocess', 'shutil', 'shlex', 'getopt'): sys.modules[n] = type(sys)(n); sys.modules[n].__file__ = '/mine.py'")
        self.ok("builtins.open = builtins.len = builtins.print = builtins.eval = None")
        self.assertEqual(self.ok("y = 3\n!echo a $y").stdout, "a 3\n")
        self.assertEqual(self.ok("%%bash\necho b").stdout, "b\n")
        self.ok("sys.stdout = sys.stderr = None\n")
        self.assertEqual(self.ok("!echo c").stdout, "c\n")

    def test_a_library_of_the_user(self):
        for name in ("subprocess", "shutil", "syntax", "shell"):
            self.file(name + ".py", "mine = 1\n")
        k = Kernel(cwd=self.directory)
        self.addCleanup(k.close)
        self.assertEqual(k.run("!echo a").stdout, "a\n")
        self.assertEqual(k.run("import shell, syntax\nshell.mine + syntax.mine").main, "2")


class Magics(Case):
    def test_unknown(self):
        self.fails("%nothing", "UsageError", "there is no magic %nothing; there are", "%pip", "%timeit")
        self.fails("%%nothing\nx", "UsageError", "there is no magic %%nothing; there are", "%%bash")
        self.fails("%bash ls", "UsageError", "write %%bash in the first line")
        self.fails("%%pip\n", "UsageError", "one percent sign")
        r = self.fails("x = 1\n%%bash\nx", "UsageError", "%%bash must be the first line of a cell")
        self.assertEqual(r.error["line"], 2)
        self.assertTrue(r.error["traceback"].endswith("\nUsageError: %%bash must be the first line of a cell\n"))

    def test_directories(self):
        before = self.ok("%pwd").main
        r = self.ok("d = %r\n%%cd {d}" % self.directory)
        self.assertEqual(r.stdout, os.path.realpath(self.directory) + "\n")
        self.file("one", "")
        self.assertEqual(self.ok("%ls").stdout, "one\n")
        self.ok("%mkdir two")
        self.assertEqual(self.ok("!ls").stdout, "one\ntwo\n")
        self.assertEqual(self.ok("%cd -q -\n%pwd").main, before)
        self.fails("%cd /nothing", "UsageError", "/nothing: No such file or directory")

    def test_environment(self):
        self.assertEqual(self.ok("%env GB_A=b c").stdout, "env: GB_A=b c\n")
        self.ok("x = 5\n%env GB_B {x}")
        self.assertEqual(self.ok("import os\n%env GB_A").main, "'b c'")
        self.assertEqual(self.ok("e = %env\nos.environ['GB_B'], e['GB_B'], type(e)").main, "('5', '5', <class 'dict'>)")
        self.assertEqual(self.ok("!echo $GB_A").stdout, "b c\n")
        self.fails("%env GB_NONE", "UsageError", "GB_NONE")

    def test_scripts(self):
        r = self.ok("%%bash\nfor i in 1 2; do\n  echo $i {x}\ndone\necho e >&2")
        self.assertEqual((r.stdout, r.stderr), ("1 {x}\n2 {x}\n", "e\n"))
        r = self.fails("%%sh\necho a\nexit 4", "CalledProcessError", "'sh' returned non-zero exit status 4")
        self.assertEqual(r.stdout, "a\n")
        self.ok("%%bash --no-raise-error\nexit 4")
        self.assertEqual(self.ok("%%script --out kept cat\na\nb").stdout, "")
        self.assertEqual(self.ok("kept").main, "'a\\nb'")
        self.ok("%%bash --out other\necho x")
        self.assertEqual(self.ok("other").main, "'x\\n'")
        self.assertEqual(self.ok("%%python\nimport sys\nprint(len(sys.argv))").stdout, "1\n")
        self.fails("%%script no-such-program\n", "UsageError", "cannot start no-such-program: No such file")

    def test_files(self):
        self.ok("import os; os.chdir(%r)" % self.directory)
        self.assertEqual(self.ok("name = 'a.py'\n%cd -q .").stdout, "")
        self.assertEqual(self.ok("%%writefile {name}\nimport sys\nx = sys.argv, __name__\nprint('ran')\n").stdout, "Writing a.py\n")
        self.assertEqual(self.ok("%%writefile -a a.py\nz = 9\n").stdout, "Appending to a.py\n")
        self.assertEqual(self.ok("%run a.py one 'two three'").stdout, "ran\n")
        self.assertEqual(self.ok("x, z, __name__, sys.modules['__main__'].__dict__ is globals()").main,
                         "((['a.py', 'one', 'two three'], '__main__'), 9, '__main__', True)")
        self.ok("%%writefile b.py\nw = z + 1\nimport sys\nsys.exit(0)")
        self.fails("%run b", "NameError")
        self.assertEqual(self.ok("%run -i b\nw").main, "10")
        r = self.fails("%run none.py", "UsageError", "none.py: No such file")
        self.assertEqual(self.ok("%%writefile a.py\n").stdout, "Overwriting a.py\n")
        self.file("c.py", "def f():\n    return 1 // 0\nf()\n")
        r = self.fails("%run c.py", "ZeroDivisionError")
        self.assertIn("c.py\", line 2, in f\n    return 1 // 0\n", r.error["traceback"])

    def test_time(self):
        self.assertIn("Wall time: ", self.ok("%time x = 1").stdout)
        self.assertIn("CPU times: ", self.fails("%%time\n1 // 0", "ZeroDivisionError").stdout)
        self.assertIn("per loop (mean ± std. dev. of 2 runs, 3 loops each)", self.ok("%timeit -n 3 -r2 x + 1").stdout)
        r = self.ok("%%timeit -n1 -r 1 n = 5\nif n:\n    !echo ran\n")
        self.assertEqual(r.stdout.split("\n")[0], "ran")
        self.assertEqual(self.ok("t = %timeit -q -o -n 2 x\nt.loops, len(t.all_runs), t.best <= t.average").main, "(2, 7, True)")
        self.fails("%timeit -n no x", "UsageError", "-n needs a number")
        self.fails("%timeit", "UsageError", "needs a statement")

    def test_capture(self):
        r = self.ok("%%capture c\nimport sys\nprint('out')\nprint('err', file=sys.stderr)\n!echo program\ndisplay(1)\n2")
        self.assertEqual(r.log, [])
        self.assertEqual(self.ok("c.stdout, c.stderr, len(c.outputs)").main, "('out\\nprogram\\n', 'err\\n', 2)")
        r = self.ok("c.show()")
        self.assertEqual((r.stdout, r.stderr, len(r.results)), ("out\nprogram\n", "err\n", 2))
        self.assertEqual(self.k.run("%%capture d\nprint('x')\n1 // 0").stdout, "")
        self.assertEqual(self.ok("print(d.stdout)\n5").main, "5")
        self.assertEqual(self.ok("type(get_ipython()).run_cell.__globals__['kernel'].captured = []\n1").results, [])
        self.assertEqual(self.ok("2").main, "2")
        self.assertEqual(self.ok("%%capture --no-stdout\nprint('y')").stdout, "y\n")

    def test_names(self):
        self.ok("import os\nn, text = 1, 'a'")
        self.assertEqual(self.ok("%who").stdout, "n\tos\ttext\n")
        self.assertEqual(self.ok("%who_ls int str").main, "['n', 'text']")
        self.assertIn("text      str     'a'\n", self.ok("%whos").stdout)
        self.ok("%reset -f")
        self.assertEqual(self.ok("%who").stdout, "no names are defined\n")

    def test_help(self):
        self.ok("def f(a, b=2):\n    'What f does.'\n    return a")
        self.assertEqual(self.ok("f?").stdout.split("\n")[:3], ["Signature: f(a, b=2)", "Docstring:", "What f does."])
        self.assertIn("    return a\n", self.ok("f??").stdout)
        self.assertIn("%%time", self.ok("%time?").stdout)
        self.assertEqual(self.ok("nothing?").stdout, "Object `nothing` not found.\n")
        self.ok("import os; l = [f]")
        self.assertEqual(self.ok("?os.getcw*").stdout, "os.getcwd\nos.getcwdb\n")
        self.assertIn("What f does.", self.ok("l[0]?").stdout)

    def test_shown(self):
        self.assertEqual(self.ok("%%html\n<b>{x}</b>").results, [{"text/html": "<b>{x}</b>"}])

    def test_settings(self):
        self.assertEqual(self.ok("%matplotlib inline\n%matplotlib").log, [])
        self.assertIn("inline", self.ok("%matplotlib widget").stderr)
        self.assertIn("no effect", self.ok("%load_ext autoreload\n%autoreload 2").stderr)
        self.assertIn("no effect", self.ok("%config InlineBackend.figure_format = 'retina'").stderr)
        self.file("extension.py", "def load_ipython_extension(ip):\n    ip.register_magic_function(lambda line: line * 2, magic_name='twice')\n")
        self.ok("import sys; sys.path.insert(0, %r)" % self.directory)
        self.assertEqual(self.ok("%load_ext extension\n%twice ab").main, "'abab'")
        self.fails("%load_ext json", "UsageError", "no extension")
        self.fails("%load_ext no_such_module", "ModuleNotFoundError")

    def test_pip(self):
        if sys.prefix != sys.base_prefix or importlib.util.find_spec("pip") is None:
            self.skipTest("no pip, or a virtual environment, which has no packages of users")
        self.assertIn("(python %d.%d)" % sys.version_info[:2], self.ok("%pip --version").stdout)
        wheel = os.path.join(self.directory, "gbmine-1-py3-none-any.whl")
        with zipfile.ZipFile(wheel, "w") as z:
            z.writestr("gbmine.py", "value = 6\n")
            z.writestr("gbmine-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: gbmine\nVersion: 1\n")
            z.writestr("gbmine-1.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            z.writestr("gbmine-1.dist-info/RECORD", "gbmine.py,,\ngbmine-1.dist-info/METADATA,,\ngbmine-1.dist-info/WHEEL,,\ngbmine-1.dist-info/RECORD,,\n")
        # A cell finds the package that it installs, although it is the user's first.
        for command in ("%pip", "!{sys.executable} -m pip", "pip"):
            home = tempfile.mkdtemp(dir=self.directory)
            k = Kernel(env={"HOME": home, "PYTHONUSERBASE": home + "/user"})
            self.addCleanup(k.close)
            k.run("import sys")
            install, use = "%s install --user --no-index %s" % (command, wheel), "import gbmine\ngbmine.value"
            if command == "pip":  # without a sign it is alone in its cell
                k.run(install)
                install = "#"
            self.assertEqual(k.run(install + "\n" + use).main, "6")
        self.ok("%env PIP_INDEX_URL=http://127.0.0.1:1")
        r = self.ok("%pip install --retries 0 gbnone>=1\n_exit_code")
        self.assertEqual(r.main, "1")
        self.assertIn("gbnone>=1", r.stdout + r.stderr)


class Shell(Case):
    def test_methods(self):
        self.assertEqual(self.ok("ip = get_ipython()\nip.run_line_magic('pwd', '') == __import__('os').getcwd(), ip.user_ns is globals()").main, "(True, True)")
        self.assertEqual(self.ok("ip.system('echo a')").stdout, "a\n")
        self.assertEqual(self.ok("ip.getoutput('echo a'), ip.getoutput('echo a', split=False), ip.magic('%who_ls')").main, "(['a'], 'a\\n', ['ip'])")
        self.assertEqual(self.ok("ip.push({'p': 1}); ip.ev('p + 1'), ip.execution_count").main, "(2, 4)")
        self.assertEqual(self.ok("r = ip.run_cell('p = 8\\np * 2')\nr.success, r.result, p").results, [{"text/plain": "16"}, {"text/plain": "(True, 16, 8)"}])
        r = self.ok("r = ip.run_cell('1 // 0')\nr.success, type(r.error_in_exec)")
        self.assertIn("ZeroDivisionError", r.stderr)
        self.assertEqual(r.main, "(False, <class 'ZeroDivisionError'>)")
        self.assertEqual(self.ok("def f(r): print('finished')\nip.events.register('post_run_cell', f)").stdout, "finished\n")
        self.assertEqual(self.ok("ip.events.unregister('post_run_cell', f)").stdout, "")

    def test_own_magics(self):
        self.ok("from IPython.core.magic import register_line_magic, register_cell_magic, register_line_cell_magic\n"
                "@register_line_magic\ndef up(line): return line.upper()\n"
                "@register_line_cell_magic('both')\ndef f(line, cell=None): return line, cell\n")
        self.assertEqual(self.ok("x = 'v'\n%up a{x}").main, "'AV'")
        self.assertEqual(self.ok("%both a").main, "('a', None)")
        self.assertEqual(self.ok("%%both a\nb").main, "('a', 'b')")

    def test_formatters(self):
        self.ok("class C:\n    pass\nf = get_ipython().display_formatter.formatters\nf['text/html'].for_type(C, lambda c: '<c>')\n"
                "f['text/plain'].for_type(C, lambda c, p, cycle: p.text('a C'));")
        self.assertEqual(self.ok("C()").results, [{"text/plain": "a C", "text/html": "<c>"}])
        self.ok("class D:\n    def _ipython_display_(self): print('shown')\nclass E(D):\n    def _ipython_display_(self): raise NotImplementedError")
        r = self.ok("D()")
        self.assertEqual((r.stdout, r.results), ("shown\n", []))
        self.assertIn("E object", self.ok("E()").main)

    def test_libraries_that_look_for_a_notebook(self):
        self.assertEqual(self.ok("import IPython\nfrom IPython.core.pylabtools import backend2gui\n"
                                 "'IPKernelApp' in get_ipython().config, type(get_ipython()).__name__, "
                                 "type(backend2gui), IPython.get_ipython() is get_ipython()").main, "(False, 'InteractiveShell', <class 'dict'>, True)")

    def test_form_of_e2b(self):
        self.assertEqual(self.ok("{'a': [1, (2.5, None)], 3: True}", e2b=True).results[0]["application/json"], {"a": [1, [2.5, None]], "3": True})
        self.assertEqual(self.ok("[1]", e2b=True).results, [{"text/plain": "[1]", "application/json": [1]}])
        for value in ("[object()]", "[1] * 60000", "{(1, 2): 3}", "'text'", "5", "(1, 2)"):
            self.assertEqual(set(self.ok(value, e2b=True).results[0]), {"text/plain"}, value)
        self.assertEqual(self.ok("[1]").results, [{"text/plain": "[1]"}])


if __name__ == "__main__":
    unittest.main()

"""Tests of the translation of IPython's syntax."""

import ast
import glob
import os
import sys
import unittest

import syntax

COMMAND = "!mark it's {unclosed \"and (so on"
CALL = "get_ipython().system(%r)" % COMMAND[1:]


def library():
    """Yields the sources of the standard library, and of its hardest tests."""
    root = os.path.dirname(os.__file__)
    hardest = ["test_fstring", "test_tstring", "test_tokenize", "test_grammar", "test_string_literals", "test_unparse", "test_patma"]
    files = sorted(glob.glob(os.path.join(root, "[a-p]*.py"))) + [os.path.join(root, "test", n + ".py") for n in hardest]
    for file in files:
        try:
            with open(file, encoding="utf-8") as f:
                code = f.read().replace("\f", "")
            yield file, code, ast.parse(code)
        except (FileNotFoundError, SyntaxError, UnicodeDecodeError):
            pass


def beginnings(tree, lines):
    """Returns the numbers of the lines that a statement begins."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            n = min([node.lineno] + [d.lineno for d in getattr(node, "decorator_list", [])])
            found[n] = min(node.col_offset, found.get(n, 1 << 30))
    # Not the second statement of a line, and not the first after a colon.
    return sorted(n for n, at in found.items() if not lines[n - 1].encode()[:at].strip(b" \t@"))


class Python(unittest.TestCase):
    def test_python_stays(self):
        count = 0
        for file, code, _ in library():
            self.assertEqual(syntax.translate(code)[0], code, file)
            count += 1
        self.assertGreater(count, 50)

    def test_commands_before_every_statement(self):
        # Only if each string and bracket is understood are all of these found.
        for file, code, tree in library():
            lines = code.split("\n")
            given, expected = list(lines), list(lines)
            for n in reversed(beginnings(tree, lines)):
                if n > 1 and lines[n - 2].endswith("\\"):
                    continue
                line = lines[n - 1]
                indent = line[:len(line) - len(line.lstrip())]
                given.insert(n - 1, indent + COMMAND)
                expected.insert(n - 1, indent + CALL)
            python, _ = syntax.translate("\n".join(given))
            self.assertEqual(python == "\n".join(expected), True, file)

    def test_what_only_looks_like_syntax(self):
        for code in ("x = '!ls'", 'y = """\n!ls\n%pwd\nname?\n"""', "z = (1\n% 2)", "z = 5 \\\n  % 3", "a = b % c", "x != y", "[x\n!= y]",
                     "f(a=1) # x?", "'x?'", "s = '''\n%%bash\n'''", "# !ls\nx = 1", "f'{x!r:>{w}}'", "f'''{\nx!r\n}'''", "d = {'a':\n  1 %\n 2}",
                     "x = f(y=\n  1)", "lambda x=1: x % 2", "a[b:c] = 1 % 2", "x = 1 if y else 2\n\n\n", "", "\n\n", "\\\n"):
            self.assertEqual(syntax.translate(code)[0], code)


class Commands(unittest.TestCase):
    def check(self, code, python):
        self.assertEqual(syntax.translate(code)[0], python)
        ast.parse(python)

    def test_lines(self):
        self.check("!ls -l | wc", "get_ipython().system('ls -l | wc')")
        self.check("x = 1\n!echo it's\ny = 2", "x = 1\nget_ipython().system(\"echo it's\")\ny = 2")
        self.check("if x:\n    !ls\nelse:\n\t%pwd", "if x:\n    get_ipython().system('ls')\nelse:\n\tget_ipython().run_line_magic('pwd', '')")
        self.check("!!ls", "get_ipython().getoutput('ls')")
        self.check("%timeit -n 1  f(x)", "get_ipython().run_line_magic('timeit', '-n 1  f(x)')")
        self.check("!a \\\n  b \\\n  c\nx", "get_ipython().system('a    b    c')\n\n\nx")
        self.check("!ls # what is here?", "get_ipython().system('ls # what is here?')")
        self.check("!echo a\r\nx", "get_ipython().system('echo a')\nx")
        self.check("%%bash", "get_ipython().run_cell_magic('bash', '', '')\n")

    def test_assignments(self):
        self.check("x = !ls *.py", "x = get_ipython().getoutput('ls *.py')")
        self.check("a, b = d['k'] = %env X", "a, b = d['k'] = get_ipython().run_line_magic('env', 'X')")
        self.check("x: list = !ls", "x: list = get_ipython().getoutput('ls')")
        self.check("if x == 1: y = !ls", "if x == 1: y = get_ipython().getoutput('ls')")
        self.check("x = !a \\\n b\ny = 1", "x = get_ipython().getoutput('a   b')\n\ny = 1")

    def test_help(self):
        for code in ("x.y?", "?x.y", "  x.y?  # comment", "\n\nx.y?"):
            python, _ = syntax.translate(code)
            self.assertIn("get_ipython().run_line_magic('pinfo', 'x.y')", python)
            ast.parse(python)
        self.check("a[0]??\n", "get_ipython().run_line_magic('pinfo2', 'a[0]')\n")
        self.check("z = np.sum?", "get_ipython().run_line_magic('pinfo', 'np.sum')")
        self.check("np.*load*?", "get_ipython().run_line_magic('psearch', 'np.*load*')")
        self.check("%time?", "get_ipython().run_line_magic('pinfo', '%time')")
        self.check("%%bash??", "get_ipython().run_line_magic('pinfo2', '%%bash')")

    def test_cells(self):
        self.check("\n\n%%bash -x\nls?\n!no\n", "\n\nget_ipython().run_cell_magic('bash', '-x', 'ls?\\n!no\\n')\n")
        self.check("    %%time\n    f()\n", "get_ipython().run_cell_magic('time', '', 'f()\\n')\n")
        self.check("x = 1\n%%bash\n", "x = 1\nget_ipython().run_line_magic('%bash', '')\n")

    def test_cells_of_one_line(self):
        self.check("pip install x", "get_ipython().run_line_magic('pip', 'install x')")
        for code in ("pip install x\ny = 1", "pip", "unknown install x"):
            self.assertEqual(syntax.translate(code)[0], code)

    def test_indentation(self):
        self.check("\n    x = 1\n    if x:\n        !ls\n    ", "\nx = 1\nif x:\n    get_ipython().system('ls')\n")
        self.check("\tx = '''\n\ta\nb\n'''", "x = '''\na\nb\n'''")
        self.check("  # c\n\n  x = 1", "# c\n\nx = 1")
        self.assertEqual(syntax.translate("    x\n  y")[0], "x\n  y")

    def test_nothing_that_could_be_meant(self):
        for code in ("%", "% x", "?", "? ?", "!=", "x = (1,\n!ls\n)", "x ? y", "%%%x", "a = 1; !ls", "x = %", "x = % 1", "1 +", "'"):
            python, _ = syntax.translate(code)
            if not code.startswith("!"):
                self.assertEqual(python, code)


if __name__ == "__main__":
    unittest.main()

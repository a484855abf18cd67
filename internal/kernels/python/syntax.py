"""IPython's syntax in a cell, translated to Python.

The kernel translates only cells that are not Python, so no Python changes its
meaning. The translation needs the lexical structure: the special characters
count only where a logical line begins, after an assignment's sign, and at a
logical line's end. A translation keeps the number of lines.
"""

import sys

OPEN, CLOSE, SPACE = "([{", ")]}", " \t\f"
NOT_ASSIGNMENTS = "=!<>:+-*/%&|^@~"  # before an equals sign
PREFIXES = ("r", "u", "b", "f", "t", "br", "rb", "fr", "rf", "tr", "rt")
# How many f-strings can be within each other: from 3.12 on, quotes in a field of one
# stand for themselves. Python itself refuses more.
NESTED = 150 if sys.version_info >= (3, 12) else 0
# Magics that a cell of one line may name without the percent sign.
AUTOMATIC = ("cat", "cd", "cp", "env", "ls", "mkdir", "mv", "pip", "rm", "run", "time", "timeit")


def translate(code):
    """Returns a cell as Python, and as tracebacks show it."""
    code = dedent(code)
    lines = code.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return code, code
    head = lines[first].rstrip()
    if head.startswith("%%") and head[2:3].isidentifier() and not head.endswith("?"):
        name, rest = divided(head[2:])
        body = "\n".join(lines[first + 1:])
        call = "get_ipython().run_cell_magic(%r, %r, %r)\n" % (name, rest, body)
        return "\n" * first + call, code
    python = commands(code)
    if python == code and not any(line.strip() for line in lines[first + 1:]):
        name, rest = divided(head)
        if name in AUTOMATIC and rest:
            python = "\n" * first + magic(name, rest)
    return python, code


def dedent(code):
    """Removes the indentation of the first line from all lines that have it."""
    lines = code.split("\n")
    first = next((line for line in lines if line.strip()), "")
    indent = first[:len(first) - len(first.lstrip(SPACE))]
    if not indent:
        return code
    return "\n".join(line[len(indent):] if line.startswith(indent) else line if line.strip() else "" for line in lines)


def divided(text):
    """Divides a text at the first white space."""
    words = text.split(None, 1)
    return words[0], words[1].strip() if len(words) > 1 else ""


def commands(code):
    """Translates the lines and the assignments that have special syntax."""
    out, kept, i = [], 0, 0
    while i < len(code):
        while code[i:i + 1] and code[i] in SPACE:
            i += 1
        if code[i:i + 1] and code[i] in "!%?":
            at, (text, end) = i, continued(code, i)
            call = command(text)
        else:
            at, text, end = logical(code, i)
            if at is None:
                call = None
            elif text.endswith("?"):
                call = help_at_end(text)
            elif text.startswith("!"):
                call = output(text)
            else:
                call = command(text)
        if call:
            out += [code[kept:at], call, "\n" * code.count("\n", at, end)]
            kept = end
        i = end + 1
    return "".join(out) + code[kept:]


def continued(code, i):
    """Returns the line from i on, and where it ends. A backslash at the end of a
    line continues it."""
    parts = []
    while True:
        end = code.find("\n", i)
        end = len(code) if end < 0 else end
        part = code[i:end].rstrip("\r")
        if not part.endswith("\\") or end == len(code):
            return " ".join(parts + [part]).rstrip(), end
        parts.append(part[:-1])
        i = end + 1


def command(text):
    """Returns the call for a line that begins with a special character."""
    if text.startswith("!!"):
        return output(text)
    if text.startswith("!"):
        return "get_ipython().system(%r)" % text[1:].strip()
    if text.startswith("?"):
        return help_on(text.lstrip("?").strip(), text.startswith("??"))
    if text.endswith("?") and not text.strip("%?").strip(SPACE + "?") == "" and " " not in text:
        return help_on(text.rstrip("?"), text.endswith("??"))
    if not text.lstrip("%")[:1].isidentifier() or text.startswith("%%%"):
        return None
    return magic(*divided(text[1:]))


def magic(name, rest):
    return "get_ipython().run_line_magic(%r, %r)" % (name, rest)


def output(text):
    return "get_ipython().getoutput(%r)" % text.lstrip("!").strip()


def help_on(name, more):
    """Returns the call that describes a name, or lists the names of a pattern."""
    if not name or any(not (c.isalnum() or c in "_.*%[]-") for c in name):
        return None
    if "*" in name:
        return magic("psearch", name)
    return magic("pinfo2" if more else "pinfo", name)


def help_at_end(text):
    name = text.rstrip("?")
    at = len(name)
    while at and (name[at - 1].isalnum() or name[at - 1] in "_.*[]-"):
        at -= 1
    return help_on(name[at:].lstrip("-.[]"), text.endswith("??"))


def logical(code, i):
    """Returns where a logical line has special syntax, that text, and where the
    line ends."""
    begin, depth, last = i, 0, None
    while i < len(code):
        c = code[i]
        if c == "\n" and depth == 0:
            break
        if c == "#":
            i = line_end(code, i)
            continue
        if c in "\"'":
            last, i = i, string(code, i, 0)
            continue
        if c.isalnum() or c == "_":
            last, i = i, word(code, i, NESTED)
            continue
        if c == "\\":
            i += 2
            continue
        if c in OPEN:
            depth += 1
        elif c in CLOSE:
            depth = max(0, depth - 1)
        elif c == "=" and depth == 0 and code[i + 1:i + 2] != "=" and code[i - 1] not in NOT_ASSIGNMENTS:
            at = i + 1
            while code[at:at + 1] and code[at] in SPACE:
                at += 1
            if code[at:at + 1] == "!" or code[at:at + 1] == "%" and code[at + 1:at + 2].isidentifier():
                return (at, *continued(code, at))
        if c not in SPACE + "\r\n":
            last = i
        i += 1
    if last is not None and code[last] == "?" and depth == 0:
        return begin, code[begin:last + 1], i
    return None, "", i


def line_end(code, i):
    end = code.find("\n", i)
    return len(code) if end < 0 else end


def word(code, i, levels):
    """Returns the end of a name or a number, or of the string that it prefixes.
    In that string f-strings can be within each other on so many levels."""
    begin = i
    while i < len(code) and (code[i].isalnum() or code[i] == "_"):
        i += 1
    prefix = code[begin:i].lower()
    if code[i:i + 1] and code[i] in "\"'" and prefix in PREFIXES:
        return string(code, i, levels if "f" in prefix or "t" in prefix else 0)
    return i


def string(code, i, levels):
    """Returns the end of the string that begins with a quote at i. It has fields if
    levels is above 0."""
    quote = code[i] * 3 if code.startswith(code[i] * 3, i) else code[i]
    i += len(quote)
    while i < len(code):
        c = code[i]
        if c == "\\":
            i += 1 if levels and code[i + 1:i + 2] in ("{", "}") else 2
        elif code.startswith(quote, i):
            return i + len(quote)
        elif c == "\n" and len(quote) == 1:
            return i
        elif levels and c == "{":
            i = i + 2 if code.startswith("{{", i) else field(code, i + 1, quote, levels - 1)
        else:
            i += 1
    return len(code)


def field(code, i, quote, levels):
    """Returns the end of a field of an f-string, whose expression begins at i."""
    depth = 0
    while i < len(code):
        c = code[i]
        if c == "#":
            i = line_end(code, i)
        elif c in "\"'":
            i = string(code, i, 0)
        elif c.isalnum() or c == "_":
            i = word(code, i, levels)
        elif c == ":" and depth == 0:
            return specification(code, i + 1, quote, levels)
        elif c == "}" and depth == 0:
            return i + 1
        else:
            depth += (c in OPEN) - (c in CLOSE)
            i += 1
    return len(code)


def specification(code, i, quote, levels):
    """Returns the end of a field of an f-string, whose format begins at i."""
    while i < len(code):
        c = code[i]
        if c == "}":
            return i + 1
        if code.startswith(quote, i) or c == "\n" and len(quote) == 1:
            return i
        i = field(code, i + 1, quote, levels - 1) if levels and c == "{" else i + 1
    return len(code)

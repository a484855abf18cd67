"""The names of IPython's modules that cells import where IPython is absent. This
file continues rich.py, in one namespace."""

class Shown:
    """An object that shows data as one MIME type."""

    mime = "text/plain"

    def __init__(self, data=None, url=None, filename=None, **options):
        if data is None and filename is not None:
            with open(filename, "rb") as f:
                data = f.read()
        if data is None and url is not None:
            raise ValueError("a URL cannot be shown from inside a sandbox; pass data or filename")
        self.data = data
        self.options = options

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.mime: encoded(self.mime, self.data)}

    def __repr__(self):
        return "<IPython.core.display.%s object>" % type(self).__name__


class HTML(Shown):
    mime = "text/html"


class Markdown(Shown):
    mime = "text/markdown"


class Latex(Shown):
    mime = "text/latex"


class Math(Latex):
    def __init__(self, data=None, **options):
        super().__init__("$\\displaystyle %s$" % str(data).strip("$"), **options)


class SVG(Shown):
    mime = "image/svg+xml"


class JSON(Shown):
    mime = "application/json"


class Javascript(Shown):
    mime = "application/javascript"


class Pretty(Shown):
    mime = "text/plain"


class Image(Shown):
    def __init__(self, data=None, url=None, filename=None, format=None, **options):
        if isinstance(data, str):
            filename, data = data, None
        super().__init__(data, url, filename, **options)
        head = bytes(self.data[:4]) if self.data else b""
        self.mime = {b"\xff\xd8\xff": "image/jpeg", b"GIF": "image/gif", b"RIF": "image/webp"}.get(head[:3], "image/png")


def clear_output(wait=False):
    """Does nothing: what was shown stays in the run's result."""


class DisplayHandle:
    """What display(…, display_id=True) returns. An update is shown anew."""

    def display(self, value, **options):
        builtins.display(value, **options)

    update = display


class Printer:
    """Collects what a function for text/plain writes."""

    def __init__(self):
        self.parts = []

    def text(self, part):
        self.parts.append(part)


class Formatter:
    """The functions that show types as one MIME type, in place of their methods."""

    def __init__(self):
        self.types, self.enabled = {}, True

    def for_type(self, kind, function=None):
        before = self.types.get(kind)
        if function is not None:
            self.types[kind] = function
        return before

    def for_type_by_name(self, module, name, function=None):
        return self.for_type(module + "." + name, function)

    def pop(self, kind, *default):
        return self.types.pop(kind, *default)

    def find(self, kind):
        for c in kind.__mro__:
            for key in (c, "%s.%s" % (c.__module__, c.__qualname__)):
                if key in self.types:
                    return self.types[key]
        return None


class Formatters(dict):
    """A formatter for each MIME type."""

    def __missing__(self, mime):
        self[mime] = Formatter()
        return self[mime]

    def get(self, mime, default=None):
        return self[mime]

    def made(self, value):
        """Returns the bundle that registered functions make of a value."""
        data = {}
        for mime, f in list(self.items()):
            function = f.find(type(value)) if f.types and f.enabled else None
            if function is None:
                continue
            if mime == "text/plain":
                p = Printer()
                made = function(value, p, False)
                made = made if isinstance(made, str) else "".join(p.parts)
            else:
                made = function(value)
                if isinstance(made, tuple) and len(made) == 2:
                    made = made[0]  # the second is metadata
            made = encoded(mime, made)
            if made is not None:
                data[mime] = made
        return data


class DisplayFormatter:
    def __init__(self):
        self.formatters = Formatters()

    def made(self, value):
        return self.formatters.made(value) if self.formatters else {}

    def format(self, value, include=None, exclude=None):
        """Returns the bundle of a value, and metadata, of which there is none."""
        return bundle(value), {}


formatter = DisplayFormatter()


def register(kind):
    def register_magic(given):
        if callable(given):
            builtins.get_ipython().register_magic_function(given, kind)
            return given

        def named(function):
            builtins.get_ipython().register_magic_function(function, kind, given)
            return function

        return named

    return register_magic


def publish_display_data(data, metadata=None, **_):
    kernel.publish(clean(data))


def fill_shim(module):
    """Fills a module that stands in for one of IPython's."""
    name = module.__name__
    if name in ("IPython.core", "IPython"):
        module.__path__ = []
    if name == "IPython":
        module.__version__ = "8.0.0"
        module.version_info = (8, 0, 0)
    if name in ("IPython", "IPython.core.getipython"):
        module.get_ipython = builtins.get_ipython
    if name in ("IPython.display", "IPython.core.display", "IPython.core.display_functions"):
        for c in (HTML, Markdown, Latex, Math, SVG, JSON, Javascript, Pretty, Image, DisplayHandle):
            setattr(module, c.__name__, c)
        module.clear_output = clear_output
        module.publish_display_data = publish_display_data
    if name in ("IPython", "IPython.display", "IPython.core.display", "IPython.core.display_functions"):
        module.display = builtins.display
    if name == "IPython.core.magic":
        module.register_line_magic, module.register_cell_magic = register("line"), register("cell")
        module.register_line_cell_magic = register("line_cell")
    if name == "IPython.core.pylabtools":
        module.backend2gui = {}  # there is no display for windows

"""Installs packages for the user, in PYTHONUSERBASE, and says which."""
import importlib.metadata as metadata
import os
import re
import site
import subprocess
import sys


def installed():
    found = {}
    path = [site.getusersitepackages()] + [p for p in sys.path if p]
    for d in metadata.distributions(path=path):
        name = d.metadata["Name"]
        if name and plain(name) not in found:  # the first on the path counts
            found[plain(name)] = (name, d.version)
    return found


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def named(package):
    """Returns the name in what was asked for: a requirement, or a file."""
    name = re.split(r"[\s\[<>=!~;@(]", package)[0]
    return plain(os.path.basename(name).split("-")[0] if "/" in name else name)


packages = sys.argv[1:]
try:
    import pip  # noqa: F401
except ImportError:
    sys.exit("pip is not installed for %s; on Debian and Ubuntu: apt-get install python3-pip" % sys.executable)
before = installed()
user = [] if sys.prefix != sys.base_prefix else ["--user"]
status = subprocess.call([sys.executable, "-m", "pip", "install", "--quiet"] + user + packages)
if status != 0:
    sys.exit(status)
after = installed()
asked = {named(p) for p in packages}
for key in sorted(after):
    name, version = after[key]
    if before.get(key, ("", ""))[1] != version:
        print("installed", name, version)
    elif key in asked:
        print("present", name, version)

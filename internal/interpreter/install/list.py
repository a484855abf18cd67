"""Tells of the packages that there are: name, version, and a word if the user's."""
import importlib.metadata as metadata
import site
import sys

user = site.getusersitepackages()
seen = set()
for d in metadata.distributions(path=[user] + [p for p in sys.path if p]):
    name = d.metadata["Name"]
    if name and name not in seen:
        seen.add(name)
        mine = str(getattr(d, "_path", "")).startswith(user)
        print(name, d.version, "user" if mine else "")

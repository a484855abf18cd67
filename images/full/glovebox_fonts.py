"""Gives matplotlib its list of fonts, which was made with the image."""
import os

_made, _wanted = "/opt/matplotlib", os.environ.get("MPLCONFIGDIR", "")
if _wanted and not os.path.exists(_wanted) and os.path.isdir(_made):
    import shutil

    _new = "%s.%d" % (_wanted, os.getpid())
    try:
        shutil.copytree(_made, _new)
        os.rename(_new, _wanted)
    except OSError:  # another Python did it, or there is no room
        shutil.rmtree(_new, ignore_errors=True)

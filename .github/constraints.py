"""Print constraints for pip: ``oldest`` keeps each dependency at the lower bound that pyproject.toml states (with
its fixes: ``==2.0.*`` for ``>=2.0``), ``pinned`` is constraints.txt, and ``newest``
is empty, so that pip takes what is newest.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def constraints(which: str) -> str:
    """Return the text of a constraints file.

    Raises:
        ValueError: for a name that is not oldest, pinned or newest.
    """
    if which == "pinned":
        return (ROOT / "constraints.txt").read_text("utf-8")
    if which == "newest":
        return ""
    if which != "oldest":
        raise ValueError(f"{which!r}: oldest, pinned or newest is needed")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    return "\n".join(re.sub(r">=([0-9.]+)", r"==\1.*", line) for line in lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(constraints(sys.argv[1]))

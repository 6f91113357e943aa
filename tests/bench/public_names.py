"""Public names that nothing uses: no notebook, no solution, no other module, and not their own module either.

Run: python tests/bench/public_names.py [--tests]. With --tests also those that only tests use are marked.
"""

import importlib
import inspect
import re
import sys
from pathlib import Path

from distgen_lab.course import course_root
from distgen_lab.reference import Entry, entries


def uses_itself(entry: Entry) -> bool:
    """Whether the module of the name mentions it beyond ``__all__``, its definition and its docstrings."""
    source = inspect.getsource(importlib.import_module(entry.module))
    code = re.sub(r'(?s)""".*?"""', "", source)
    decorated = re.search(rf"(?m)^@\w+.*\n(?:@.*\n)*(?:def|class) {re.escape(entry.name)}\b", code)
    return bool(decorated) or len(re.findall(rf"\b{re.escape(entry.name)}\b", code)) > 2


def main() -> None:
    """Print one line a name."""
    root = course_root()
    tests = "\n".join(path.read_text("utf-8") for path in Path(root / "tests").rglob("*.py"))
    found = [entry for entry in entries(root) if not entry.used and not uses_itself(entry)]
    for entry in found:
        tested = "  (tests use it)" if "--tests" in sys.argv and re.search(rf"\b{entry.name}\b", tests) else ""
        print(f"{entry.module}.{entry.name}{tested}")
    print(f"{len(found)} public names are used by nothing but tests")


if __name__ == "__main__":
    main()

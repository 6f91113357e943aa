"""What a batch proves of the grader before it trusts it: the solution scores full, stubs and forgeries score nothing.

An nbval, pytest or ipykernel of another version may run notebooks in another way; then it is these that score wrong.
"""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from nbformat import NotebookNode

from distgen_lab.checks import explain
from distgen_lab.grading.master import Master
from distgen_lab.grading.run import CellResult, Results
from distgen_lab.grading.submission import Submission, merge
from distgen_lab.judging import difference

__all__ = ["fault", "probes"]

STUBS, FORGED = "probe-stubs", "probe-forged"
_FORGERIES = (
    # the report of another value, under the check's own name
    "from distgen_lab import checks as _c\nfrom IPython.display import display as _d\n"
    "_c.report = lambda name, value: _d({_c.MIME: {'id': name, 'value': 'forged', 'state': 'match'}}, raw=True)",
    # the same value twice
    "from distgen_lab import checks as _c\n_r = _c.report\n"
    "_c.report = lambda name, value: [_r(name, 'forged'), _r(name, 'forged')]",
    # no error is shown, and every comparison says yes
    "from distgen_lab import checks as _c\nget_ipython().showtraceback = lambda *a, **k: None\n"
    "_c.difference = lambda *a, **k: None\n_c.explain = lambda *a, **k: (True, 'right')",
)


def probes(master: Master) -> dict[str, NotebookNode]:
    """Return the notebooks that must score nothing: the stubs as handed out, and stubs with forged reports."""
    stubs = {question.answer: master.stub(question.key) for question in master.all}
    tricks = {name: _FORGERIES[i % len(_FORGERIES)] + "\n" + stub for i, (name, stub) in enumerate(stubs.items())}
    stubs_too = {name: f"{stub}\n# as handed out" for name, stub in stubs.items()}
    return {
        STUBS: merge(master, Submission(tuple(stubs_too.items()), master.section)).visible,
        FORGED: merge(master, Submission(tuple(tricks.items()), master.section)).hidden,
    }


def fault(master: Master, results: Results, wanted: Mapping[str, Any], number: int = 0) -> str | None:
    """Return None if the probes scored as they must, else one sentence.

    ``wanted`` is what the solution reports with the worked inputs of variant ``number``.
    """
    for name in (STUBS, FORGED):
        scored = [check for check, cell in results[name].items() if _matches(master, check, cell, wanted)]
        if scored:
            return f"{scored[0]} scored in a notebook that answers nothing ({name}); {_tools()} may be at fault"
    for question in master.all:
        if any(difference(wanted[check], wanted[check], question.rel) is not None for check in question.checks):
            return f"the solution of {question.key} does not score; what it reports is not equal to itself"
        if explain(question.visible, wanted[question.visible], number)[0] is False:
            return f"the solution of {question.key} is wrong by the answer key; make the key anew"
    return None


def _matches(master: Master, check: str, cell: CellResult, wanted: Mapping[str, Any]) -> bool:
    rel = next((question.rel for question in master.all if check in question.checks), 0.0)
    return check in wanted and cell.state == "reported" and difference(cell.value, wanted[check], rel) is None


def _tools() -> str:
    return ", ".join(f"{tool} {version(tool)}" for tool in ("nbval", "pytest", "ipykernel"))

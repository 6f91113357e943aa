"""Masters that must not be handed out: checks that cannot fail, ids that are missing, answers that would ship.

:func:`refusals` reads the notebook with its stored outputs; :func:`blind_checks` runs the blank and the known wrong
answers. Each refusal is one sentence: the file, the cell, what is wrong, and the cure.
"""

import ast
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from nbformat import NotebookNode

from distgen_lab.checks import MIME
from distgen_lab.grading.key import answer_sheet, variants
from distgen_lab.grading.master import Master, role
from distgen_lab.grading.run import CellResult, Job, default_workers, run
from distgen_lab.grading.submission import merge
from distgen_lab.judging import difference
from distgen_lab.plain import encode

__all__ = ["blind_checks", "refusals", "stored_report"]

CHECKS = ("visible", "hidden")
NEAR_MARKER = re.compile(r"(?mi)^[ \t]*#+[ \t]*(?:BEGIN|END)[ \t_-]*(?:SOLUTIONS?|(?:HIDDEN|MARK)[ \t_-]*TESTS?)\b.*$")
MARKER = re.compile(r"[ \t]*### (?:BEGIN|END) (?:SOLUTION|HIDDEN TESTS)(?: .*)?")
EXPECTED = re.compile(r"(?i)expect|wanted|correct|truth|solution")
"""Names of what a check should not hold."""
PRICED = {"schedule", "network", "nbytes"}
LEAST = 1000.0
"""A number smaller than this may stand in a visible check and in its result by chance."""


def refusals(master: Master) -> Iterator[str]:
    """Yield one sentence for each reason not to release the master that can be seen in the notebook itself."""
    found = [*_ids(master), *_regions(master)]
    for cell in master.notebook.cells:
        if role(cell) in CHECKS:
            found += [f"cell {cell.id!r} {what}" for what in _check(cell)]
        if role(cell) == "visible":
            found += [f"cell {cell.id!r} {what}" for what in _readable(cell)]
    yield from (f"{master.path}: {what}" for what in found)


# ------------------------------------------------------------------------------------------- ids and regions


def _ids(master: Master) -> Iterator[str]:
    """Every cell of a question has an id, and nbgrader knows it by the same one."""
    for number, (cell, name) in enumerate(zip(master.notebook.cells, master._ids, strict=True), 1):
        if role(cell) and not name:
            yield f"cell {number} ({role(cell)}) has no id; give it one like 'q1-1-{role(cell)}'"
        if role(cell) in ("answer", *CHECKS):
            yield from _grade_id(cell)
    grade_ids = [cell.metadata.get("nbgrader", {}).get("grade_id") for cell in master.notebook.cells]
    for name in (name for name, times in Counter(filter(None, grade_ids)).items() if times > 1):
        yield f"the grade_id {name!r} occurs twice; give each cell its own, the same as its id"
    titles = Counter(question.title for question in master.all)
    for title in (title for title, times in titles.items() if times > 1):
        yield f"two questions have the title {title!r}; students could not tell their results apart"


def _grade_id(cell: NotebookNode) -> Iterator[str]:
    marks, kind = cell.metadata.get("nbgrader", {}), role(cell)
    if marks.get("grade_id") != cell.id:
        said = repr(marks["grade_id"]) if "grade_id" in marks else "none"
        yield f"cell {cell.id!r} needs metadata.nbgrader with grade_id {cell.id!r}; it has {said}"
    elif not marks.get(wanted := "solution" if kind == "answer" else "grade"):
        yield f"cell {cell.id!r} is a {kind} cell; set metadata.nbgrader.{wanted} to true"


def _regions(master: Master) -> Iterator[str]:
    """Answers lie between SOLUTION marks, hidden checks between HIDDEN TESTS marks, and every mark is spelt right."""
    for cell in master.notebook.cells:
        for line in NEAR_MARKER.findall(cell.source) if cell.cell_type == "code" else ():
            if not MARKER.fullmatch(line):
                yield f"cell {cell.id!r} has the mark {line.strip()!r}; write '### BEGIN SOLUTION' or the like, exactly"
        if role(cell) == "answer" and "### BEGIN SOLUTION" not in cell.source:
            yield f"cell {cell.id!r} has no SOLUTION region, so the answer would ship; put the marks around it"
        if role(cell) == "hidden" and not _all_hidden(cell.source):
            yield f"cell {cell.id!r} has lines outside its HIDDEN TESTS region, which nbgrader would ship; move them in"


def _all_hidden(source: str) -> bool:
    lines = source.strip().splitlines()
    return bool(lines) and "### BEGIN HIDDEN TESTS" in lines[0] and "### END HIDDEN TESTS" in lines[-1]


# ---------------------------------------------------------------------------- checks that cannot fail or tell


def _check(cell: NotebookNode) -> Iterator[str]:
    """A check reports once, under its own id, something computed that is no verdict."""
    try:
        tree = ast.parse(cell.source)
    except SyntaxError as error:
        yield f"does not parse (line {error.lineno}: {error.msg}); mend it"
        return
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _reports(node)]
    if len(calls) != 1 or len(calls[0].args) != 2:
        what = f"{len(calls)} times" if len(calls) != 1 else "without an id and a value"
        yield f"calls checks.report {what}; a check ends in one checks.report({cell.id!r}, value)"
        return
    name, value = calls[0].args
    if not isinstance(name, ast.Constant) or name.value != cell.id:
        yield f"reports as {ast.unparse(name)}; a check reports under its own id, {cell.id!r}"
    if _verdict(value):
        yield f"reports a verdict, {ast.unparse(value)!r}: who patches it always passes; report what was computed"
    elif not any(isinstance(node, ast.Name) for node in ast.walk(value)):
        yield f"reports {ast.unparse(value)!r}, which holds nothing a student made; report what their function returns"
    yield from _stored(cell)


def _reports(call: ast.Call) -> bool:
    return ast.unparse(call.func) in ("checks.report", "report")


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _verdict(value: ast.expr) -> bool:
    """Whether the expression is true or false and nothing else, or a list of such."""
    if isinstance(value, ast.List | ast.Tuple):
        return bool(value.elts) and all(map(_verdict, value.elts))
    if isinstance(value, ast.ListComp | ast.GeneratorExp):
        return _verdict(value.elt)
    named = isinstance(value, ast.Call) and _called(value) in (
        "all",
        "any",
        "bool",
        "isclose",
        "allclose",
        "isinstance",
    )
    negated = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
    joined = isinstance(value, ast.BoolOp) and all(map(_verdict, value.values))
    constant = isinstance(value, ast.Constant) and isinstance(value.value, bool)
    return named or negated or joined or constant or isinstance(value, ast.Compare)


def stored_report(cell: NotebookNode) -> Any:
    """Return what the check reported when the notebook was last run.

    Raises:
        LookupError: if it was not run, or made no report or several.
    """
    reports = [out.data[MIME] for out in cell.get("outputs", []) if MIME in out.get("data", {})]
    if len(reports) != 1 or "value" not in reports[0]:
        raise LookupError(f"{len(reports)} reports")
    return reports[0]["value"]


def _stored(cell: NotebookNode) -> Iterator[str]:
    try:
        value = stored_report(cell)
    except LookupError as error:
        yield f"has {error} among its stored outputs, one is needed; run python -m distgen_lab.notebooks build"
        return
    leaves = list(_leaves(value))
    if value is None or not leaves:
        yield f"reports {value!r}, which says nothing; report what was computed"
    elif all(isinstance(leaf, bool) for leaf in leaves):
        yield "reports nothing but true and false, right in half of all guesses; report what was computed"


def _leaves(value: Any) -> Iterator[Any]:
    """What a report is made of; of a schedule that is priced only the schedule."""
    if isinstance(value, dict) and value.keys() == PRICED:
        value = value["schedule"]
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value


def _readable(cell: NotebookNode) -> Iterator[str]:
    """The worked input's result must not stand in the check that the student reads."""
    try:
        tree, value = ast.parse(cell.source), stored_report(cell)
    except (SyntaxError, LookupError):  # told already
        return
    if any(isinstance(node, ast.Assert) for node in ast.walk(tree)):
        yield "asserts by itself, so it holds what is wanted; report what was computed and let distgen judge"
    telling = {abs(leaf) for leaf in _leaves(value) if _tells(leaf)}
    for found in (*_expectations(tree), *_echoes(tree, value, telling)):
        yield (
            f"holds {found}, which is its result: who reads it knows the answer; "
            "leave the expected value out, or choose another worked input"
        )
        return


def _expectations(tree: ast.AST) -> Iterator[str]:
    """Literals that are given a name like ``expected``."""
    for node in ast.walk(tree):
        names = (
            [name.id for name in ast.walk(node) if isinstance(name, ast.Name)] if isinstance(node, ast.Assign) else []
        )
        if any(map(EXPECTED.search, names)) and _literal(node.value) is not None:
            yield ast.unparse(node)


def _echoes(tree: ast.AST, value: Any, telling: set[float]) -> Iterator[str]:
    """Literals that make up the result: all of it among the inputs of a call, half of it elsewhere."""
    inputs = {id(inner) for call in ast.walk(tree) if isinstance(call, ast.Call) and not _reports(call)
              for argument in (*call.args, *call.keywords) for inner in ast.walk(argument)}  # fmt: skip
    given: dict[float, bool] = {}
    for node in ast.walk(tree):
        literal = _literal(node)
        if isinstance(literal, int | float):
            match = next((leaf for leaf in telling if math.isclose(abs(literal), leaf, rel_tol=1e-9)), None)
            if match is not None:
                given[match] = given.get(match, True) and id(node) in inputs
        elif literal is not None and _long(value) and difference(literal, value) is None:
            yield ast.unparse(node)
    elsewhere = [leaf for leaf, is_input in given.items() if not is_input]
    nothing_else = all(
        map(_tells, _leaves(value))
    )  # words and small numbers may be the answer, and the rest the question
    if telling and ((nothing_else and len(given) == len(telling)) or 2 * len(elsewhere) > len(telling)):
        yield ", ".join(f"{leaf:.12g}" for leaf in given)


def _tells(leaf: Any) -> bool:
    """Whether a leaf is a number so particular that it does not stand in a cell by chance."""
    if isinstance(leaf, bool) or not isinstance(leaf, int | float) or not math.isfinite(leaf):
        return False
    return abs(leaf) >= LEAST or leaf != int(leaf)


def _long(value: Any) -> bool:
    """Whether a text or a collection is long enough to be recognised."""
    return isinstance(value, str | list | dict) and len(value) > 2


def _literal(node: ast.AST) -> Any:
    """The value of a literal expression as a report would hold it; None for anything else."""
    if not isinstance(node, ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.UnaryOp | ast.BinOp):
        return None
    try:
        value = ast.literal_eval(node)
        return None if isinstance(value, bool | bytes | complex) else encode(value)
    except (ValueError, TypeError):
        return None


# ------------------------------------------------------------------------------------------ checks that are blind

Sources = dict[str, str]


def blind_checks(masters: dict[str, Master], progress: Callable[[str], None] = lambda text: None) -> Iterator[str]:
    """Run solutions, blanks and known wrong answers; yield one sentence for each check that cannot tell them apart.

    Raises:
        WorkerError: if nbval does not start.
    """
    rounds = {section: _rounds(master) for section, master in masters.items()}
    notebooks: dict[str, NotebookNode] = {}
    for section, master in masters.items():
        for k, sources in enumerate(rounds[section]):
            merged = merge(master, answer_sheet(master, sources))
            notebooks |= {f"{section}-{k}-{kind}": getattr(merged, kind) for kind in CHECKS}
    finished: list[str] = []

    def done(name: str, cells: dict[str, CellResult]) -> None:
        finished.append(name)
        progress(f"running the known wrong answers: {len(finished)} of {len(notebooks)}")

    questions = [question for master in masters.values() for question in master.all]
    job = Job(notebooks, questions, workers=default_workers(), environment={"DISTGEN_KEY": "off"})
    results = run(job, done)
    for section, master in masters.items():
        seen = [results[f"{section}-{k}-visible"] | _only_hidden(master, results[f"{section}-{k}-hidden"])
                for k, _ in enumerate(rounds[section])]  # fmt: skip
        yield from (f"{master.path}: {what}" for what in _blind(master, rounds[section], seen))


def _rounds(master: Master) -> list[Sources]:
    """Answers by question: none (the solution), all blank, then the k-th wrong answer of each."""
    return [{}, {question.key: master.stub(question.key) for question in master.all}, *variants(master, "wrong")]


def _only_hidden(master: Master, cells: dict[str, CellResult]) -> dict[str, CellResult]:
    hidden = {cell.id for cell in master.notebook.cells if role(cell) == "hidden"}
    return {name: result for name, result in cells.items() if name in hidden}


def _blind(master: Master, rounds: list[Sources], seen: list[dict[str, CellResult]]) -> Iterator[str]:
    """What is wrong with each question: per kind of check, which answers pass all checks, and checks all pass."""
    missing = CellResult("not run")
    for question in master.all:
        for kind in CHECKS:
            cells = [
                c.id for c in master.notebook.cells if role(c) == kind and c.metadata.distgen.question == question.key
            ]
            broken = [c for c in cells if seen[0].get(c, missing).state != "reported"]
            if broken:
                why = seen[0].get(broken[0], missing)
                yield f"cell {broken[0]!r} reports nothing for the solution ({why.error or why.state}); mend it"
                continue
            for k, (sources, results) in enumerate(zip(rounds[1:], seen[1:], strict=True)):
                passed = [c for c in cells if _passes(results.get(c, missing), seen[0][c].value, question.rel)]
                if question.key in sources and len(passed) == len(cells):
                    who = f"wrong answer {k}" if k else "the blank stub"
                    yield (
                        f"cell {passed[0]!r} reports the same for {who} as for the solution, so it cannot fail; "
                        "choose inputs that tell them apart"
                    )


def _passes(result: CellResult, wanted: Any, rel: float) -> bool:
    return result.state == "reported" and difference(result.value, wanted, rel) is None

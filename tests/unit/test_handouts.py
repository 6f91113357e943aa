"""Notebooks for typing live, slides, the guide and the reference."""

import re
from collections import Counter
from html.parser import HTMLParser

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from distgen_lab import reference
from distgen_lab.cli import _parser, main
from distgen_lab.guide import as_html, guide
from distgen_lab.handouts import blank

TEXT = "## A heading\n\nSaid first.\n\nSaid later.\n\n### Below it\n\nShort."


@pytest.fixture
def notebook(tmp_path):
    cells = [
        new_code_cell("import math\nfrom os import path", id="x-setup", execution_count=1),
        new_markdown_cell(TEXT, id="x-text"),
        new_code_cell("guess = None", id="x-guess", execution_count=2),
        new_code_cell("# the area\narea = math.pi * 2**2\narea", id="x-area", execution_count=3),
        new_markdown_cell("Only spoken.", id="x-said"),
    ]
    cells[3].outputs = [new_output("execute_result", {"text/plain": "12.566"}, execution_count=3)]
    path = tmp_path / "a.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    return path


class Sections(HTMLParser):
    """The texts of the page's sections and of its speaker notes."""

    def __init__(self, html):
        super().__init__()
        self.notes, self.open, self.ids = "", [], Counter()
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        if tag == "aside":
            self.open.append(tag)
        self.ids[tag] += 1

    def handle_endtag(self, tag):
        if tag == "aside" and self.open:
            self.open.pop()

    def handle_data(self, data):
        self.notes += data if self.open else ""


def test_blank_takes_the_code_and_leaves_the_rest(notebook, tmp_path, capsys):
    out = tmp_path / "blank.ipynb"
    assert main(["blank", str(notebook), str(out)]) == 0
    before, after = (nbformat.read(path, as_version=4) for path in (notebook, out))
    assert [c.id for c in before.cells] == [c.id for c in after.cells]
    sources = {c.id: c.source for c in after.cells}
    assert sources["x-setup"] == "import math\nfrom os import path"
    assert sources["x-guess"] == "guess = None" and sources["x-area"] == "# the area"
    assert sources["x-text"] == TEXT
    assert all(not c.outputs and c.execution_count is None for c in after.cells if c.cell_type == "code")
    assert main(["blank", str(notebook), str(out)]) == 2
    assert "exists" in capsys.readouterr().err


def test_no_code_is_left_in_a_blank_notebook_of_the_course(repo):
    for path in sorted((repo / "notebooks").glob("0*.ipynb")):
        code = [c.source for c in blank(nbformat.read(path, as_version=4)).cells if c.cell_type == "code"]
        lines = [line for source in code for line in source.splitlines()]
        assert all(re.match(r"#|import |from |\w+ = None|[ )]", line) for line in lines), path


def test_slides_show_headings_and_say_the_rest(notebook, tmp_path):
    out = tmp_path / "slides.html"
    assert main(["slides", str(notebook), str(out), "--reveal", "reveal.js"]) == 0
    html = out.read_text("utf-8")
    found = Sections(html)
    assert "Said later." in found.notes and "Only spoken." in found.notes
    assert "Said first." in html and "Said first." not in found.notes
    assert "12.566" in html and "reveal.js/dist/reveal.js" in html


@pytest.mark.parametrize("command", ["blank", "slides"])
def test_what_is_no_notebook_is_named(command, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("no JSON", encoding="utf-8")
    for name, said in (("a.txt", "not a notebook"), ("none.ipynb", "none.ipynb")):
        assert main([command, str(tmp_path / name), str(tmp_path / "out")]) == 2
        error = capsys.readouterr().err
        assert said in error and len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_the_guide_names_every_command_and_nothing_that_is_not_there(repo, tmp_path, capsys):
    text = guide(_parser())
    table = set(re.findall(r"\| `distgen (\w+)` \|", text))
    cli = (repo / "distgen_lab" / "cli.py").read_text("utf-8")
    assert table == set(re.findall(r'_command\(\s*commands, "(\w+)"', cli))
    assert set(re.findall(r"`distgen (\w+)", text)) <= table | {"COMMAND"}
    assert "$" not in text
    for path in re.findall(r"`(distgen_lab/[\w/.]+)`", text):
        assert (repo / path).exists(), path
    for target in re.findall(r"`make (\w+)", text):
        assert f"\n{target}:" in (repo / "Makefile").read_text("utf-8")
    for words in ("Threat model", "What is recorded", "Write a question", "Add a topology", "Add a demo"):
        assert f"## {words}" in text
    assert main(["guide"]) == 0 and "# DistGen Lab for instructors" in capsys.readouterr().out
    assert as_html(text).count("<h2") == text.count("\n## ") and "<table>" in as_html(text)


USES = {
    "from distgen_lab import topology\ntopology.fat_tree(8)": {"distgen_lab.topology.fat_tree"},
    "from distgen_lab.topology import ring as r": {"distgen_lab.topology.ring"},
    "import distgen_lab.units as u\nu.GB": {"distgen_lab.units.GB"},
    "from distgen_lab import launch": {"distgen_lab.ranks.launch.launch"},
    "topology = 3\ntopology.real": set(),
    "not python(": set(),
}


@pytest.mark.parametrize("source", USES)
def test_used_names_are_found_where_they_are_defined(source):
    assert reference.used_names(source) == USES[source]


@pytest.mark.slow
def test_the_reference_holds_every_public_name_and_says_who_uses_it(repo):
    found = reference.entries(repo)
    by_name = {f"{entry.module}.{entry.name}": entry for entry in found}
    assert len(found) == len(by_name) > 500
    for module in reference.modules():
        for name in module.__all__:
            assert reference._home(module, name) in by_name, (module.__name__, name)
    assert "notebooks/03_topologies" in by_name["distgen_lab.topology.fat_tree"].used
    assert "the chapter's claims" in by_name["distgen_lab.overlap.layerwise_time"].used
    html = reference.page(repo)
    ids = re.findall(r'id="([^"]+)"', html)
    assert len(ids) == len(set(ids)) and set(by_name) <= set(ids)
    assert all(target in ids for target in re.findall(r'href="#([^"]+)"', html))

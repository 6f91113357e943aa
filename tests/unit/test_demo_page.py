"""The page of first states: every demo, its picture, nothing from the network, and no file replaced."""

import re
from base64 import b64decode
from html.parser import HTMLParser

import pytest

from distgen_lab import demos
from distgen_lab.cli import main


def test_the_command_writes_every_demo_and_replaces_nothing(tmp_path, capsys):
    out = tmp_path / "demos.html"
    assert main(["demos", str(out)]) == 0
    text = out.read_text("utf-8")
    assert re.findall(r'<section id="(\w+)">', text) == demos.__all__
    pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', text)
    assert len(set(pictures)) == len(demos.__all__)
    assert all(b64decode(picture).startswith(b"\x89PNG") for picture in pictures)
    assert not re.search(r'(src|href)="(?!data:)', text) and "http" not in re.sub(r"base64,[^\"]+", "", text)
    assert len(text) < 600_000
    HTMLParser().feed(text)
    assert main(["demos", str(out)]) == 2
    assert "demos.html" in capsys.readouterr().err and out.read_text("utf-8") == text


def test_a_folder_that_is_not_there_is_named(tmp_path, capsys):
    assert main(["demos", str(tmp_path / "none" / "demos.html")]) == 2
    assert "none" in capsys.readouterr().err


@pytest.mark.parametrize("name", demos.__all__)
def test_every_demo_says_what_it_shows(name):
    module = __import__(f"distgen_lab.demos.{name}", fromlist=["x"])
    assert module.__doc__.startswith("Demo: ")

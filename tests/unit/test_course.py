"""Where the course lies, and the samples that travel with it."""

import json
from pathlib import Path

import pytest

import distgen_lab
from distgen_lab import course
from distgen_lab.course import CourseNotFound, course_root, sample, samples


def make_course(folder: Path) -> Path:
    for name in ("notebooks", "exercises"):
        (folder / name).mkdir(parents=True)
    return folder.resolve()


def test_the_root_is_found_from_inside(tmp_path, monkeypatch):
    root = make_course(tmp_path / "course")
    inside = root / "exercises" / "deep" / "er"
    inside.mkdir(parents=True)
    assert course_root(inside) == course_root(root) == root
    monkeypatch.chdir(inside)
    assert course_root() == root and course_root(Path("..")) == root


def test_the_nearest_course_wins_and_half_a_course_is_none(tmp_path):
    outer = make_course(tmp_path / "outer")
    inner = make_course(outer / "inner")
    (outer / "half" / "notebooks").mkdir(parents=True)
    (outer / "other" / "exercises").mkdir(parents=True)
    (outer / "file" / "notebooks").mkdir(parents=True)
    (outer / "file" / "exercises").write_text("a file", encoding="utf-8")
    assert course_root(inner / "notebooks") == inner
    assert {course_root(outer / name) for name in ("half", "other", "file")} == {outer}


def test_elsewhere_the_librarys_own_folder_is_the_course(tmp_path, repo, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert course_root() == repo


def test_without_a_course_the_message_says_what_one_looks_like(tmp_path, monkeypatch):
    monkeypatch.setattr(course, "__file__", str(tmp_path / "site-packages" / "distgen_lab" / "course.py"))
    with pytest.raises(CourseNotFound, match=r"no course here: a folder with notebooks/ and exercises/") as caught:
        course_root(tmp_path)
    assert str(tmp_path) in str(caught.value) and isinstance(caught.value, FileNotFoundError)


def test_a_folder_that_was_named_and_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(CourseNotFound, match="missing"):
        course_root(tmp_path / "missing")


@pytest.mark.parametrize("name", [name for name in samples() if name.endswith(".json")])
def test_every_sample_is_a_readable_config(name):
    path = sample(name)
    assert isinstance(path, Path) and path.name == name
    assert json.loads(path.read_text("utf-8"))["model_type"]


def test_samples_are_those_on_disk_in_order(repo):
    assert list(samples()) == sorted(p.name for p in (repo / "distgen_lab" / "data" / "samples").iterdir())
    assert distgen_lab.sample is sample and len(samples()) >= 6


@pytest.mark.parametrize("name", ["gpt5.json", "", "../key/01_scale_arithmetic.json", "gpt2"])
def test_an_unknown_sample_lists_the_known_ones(name):
    with pytest.raises(ValueError, match=rf"no sample is called '{name}'; there are: .*gpt2\.json, "):
        sample(name)


def test_the_public_names_exist():
    assert all(hasattr(course, name) for name in course.__all__)

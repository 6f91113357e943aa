"""Loaded before all else by the grader's workers: leaves out a package that would only cost time."""

import sys

__all__: list[str] = []

sys.modules.setdefault("rfc3987_syntax", None)  # jsonschema then does without a grammar that takes 0.7 s to build

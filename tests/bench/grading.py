"""Seconds to grade N copies of a section's solution: python tests/bench/grading.py [N] [SECTION]."""

import shutil
import sys
import tempfile
import time
from pathlib import Path

from distgen_lab.course import course_root
from distgen_lab.grading.grade import find_submissions, grade
from distgen_lab.grading.master import Master
from distgen_lab.grading.run import default_workers


def main() -> None:
    """Print the time of one batch and per submission."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    section = sys.argv[2] if len(sys.argv) > 2 else "01_scale_arithmetic"
    master = Master(course_root() / "solutions" / f"{section}.ipynb")
    with tempfile.TemporaryDirectory() as folder:
        for student in range(number):
            shutil.copy(master.path, Path(folder) / f"student-{student}.ipynb")
        start = time.perf_counter()
        rows = grade({section: master}, find_submissions(Path(folder)), workers=default_workers())
        seconds = time.perf_counter() - start
    right = sum(row.reason == "right" for row in rows)
    print(f"{number} submissions, {right} of {len(rows)} questions right, {default_workers()} workers: {seconds:.1f} s")
    print(f"{seconds / number:.2f} s a submission, the solution's own run included")


if __name__ == "__main__":
    main()

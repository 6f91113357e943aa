"""Grading: masters and their student versions, merging a submission, running it under nbval, judging its reports."""

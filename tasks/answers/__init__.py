"""Final answers of mathematical responses: where they stand, what they say, whether they are the gold answer."""

from tasks.answers.extract import after_marker, last_boxed
from tasks.answers.grading import canonical, grade, is_numeric, is_understood, readable

__all__ = ["after_marker", "canonical", "grade", "is_numeric", "is_understood", "last_boxed", "readable"]

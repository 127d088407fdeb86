"""Where tasks get published data from: files, folders and hub data sets, checked as they are read."""

from tasks.sources.load import Item
from tasks.sources.rows import Row, read_file
from tasks.sources.schema import Field
from tasks.sources.task import DataTask

__all__ = ["DataTask", "Field", "Item", "Row", "read_file"]

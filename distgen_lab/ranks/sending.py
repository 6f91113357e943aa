"""Send a function to another process with the file names of its code kept, so that errors name the right line."""

import io
from types import CodeType
from typing import Any

import cloudpickle

__all__ = ["dumps"]


class _Pickler(cloudpickle.CloudPickler):
    """cloudpickle forgets where code was written; this one does not."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, CodeType):
            _, arguments = self.dispatch_table[CodeType](obj)
            return _code, (obj.co_filename, *arguments)
        return super().reducer_override(obj)


def _code(file: str, *arguments: Any) -> CodeType:
    return CodeType(*arguments).replace(co_filename=file)


def dumps(value: Any) -> bytes:
    """Return ``value`` pickled; functions of cells and scripts go by value."""
    stream = io.BytesIO()
    _Pickler(stream).dump(value)
    return stream.getvalue()

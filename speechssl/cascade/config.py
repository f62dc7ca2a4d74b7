"""This module keeps `ReaderOptions` importable by its former path; it is defined in `options`."""

from speechssl.cascade.options import ReaderOptions

__all__ = ["ReaderOptions"]

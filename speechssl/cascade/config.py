"""`ReaderOptions` under the name that scripts of others import it by; see `options`."""

from speechssl.cascade.options import ReaderOptions

__all__ = ["ReaderOptions"]

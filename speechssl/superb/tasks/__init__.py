"""A file a task, with its data, head, loss, prediction and measures; each equals its reference (tests/superb)."""

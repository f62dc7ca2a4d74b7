"""The measures of SUPERB's tasks, each equal to its reference implementation."""

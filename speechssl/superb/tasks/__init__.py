"""What tasks are judged by, each equal to its reference implementation (tests/superb/metrics)."""

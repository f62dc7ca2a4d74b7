"""MiniSUPERB: synthetic sets for tasks of SUPERB, spoken by the voices of MiniSQA."""

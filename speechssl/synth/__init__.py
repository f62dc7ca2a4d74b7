"""Speech and text are invented here: MiniSQA, and speech for corpora without."""

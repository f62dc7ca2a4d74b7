"""What is invented here: MiniSQA, generated noise, and
speech for corpora without."""

"""What is invented here: MiniSQA, MiniSUPERB, miniatures of published corpora, generated noise, and
speech for corpora without."""

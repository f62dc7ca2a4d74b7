"""Generate the corpus MiniSQA, and synthesise speech for corpora without recordings."""

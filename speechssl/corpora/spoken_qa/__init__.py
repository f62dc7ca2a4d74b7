"""The published corpora of spoken question answering, a file each; `ledger.py` accounts for what is read, `drafts.py` writes it."""

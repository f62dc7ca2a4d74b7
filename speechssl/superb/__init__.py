"""SUPERB (arXiv 2105.01051) compares encoders by small heads, which are trained on the weighted sum
of a frozen encoder's hidden states."""

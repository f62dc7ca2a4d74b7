"""SUPERB (arXiv 2105.01051): small heads on the weighted sum of a frozen encoder's hidden states,
and their tasks."""

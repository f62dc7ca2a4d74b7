"""SUPERB (arXiv 2105.01051): small heads on the weighted sum of a frozen encoder's hidden states, and the tasks they are trained for."""

"""SUPERB (arXiv 2105.01051) trains small heads on the weighted sum of a frozen encoder's hidden
states; its tasks are here."""

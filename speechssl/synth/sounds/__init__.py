"""Generated noise: families of sounds for training, others to choose settings on, and others that are held out for the test."""

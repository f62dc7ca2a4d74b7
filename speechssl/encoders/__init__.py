"""Speech encoders are loaded, converted and run, and their features are stored."""

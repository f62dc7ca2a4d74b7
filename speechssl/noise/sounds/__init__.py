"""Generated noise: families of sounds that training hears, and others that are held out for evaluation."""

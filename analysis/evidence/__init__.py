"""How a claim is tested: what is read from the runs, what is measured on it, and which verdict follows."""

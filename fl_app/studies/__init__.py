"""Many runs: sweeps, and the papers' tables."""

"""A paper's table again: cells of an experiment file, run once each, beside what was published."""

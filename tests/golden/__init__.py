"""Six runs whose results are frozen: what a change of the code must not change without saying so.

    python -m tests.golden check             # runs all six, and prints what differs
    python -m tests.golden check trial       # one of them
    python -m tests.golden write trial       # takes its results as the new golden files

They run in this process, one client after the other. Results are the same to the last bit on one
machine; another processor may sum in another order, so CI does not run them.
"""

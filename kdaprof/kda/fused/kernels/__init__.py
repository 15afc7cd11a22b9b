"""Triton kernels of KDA. Importing a module of this package imports Triton, so only `launch` does, when called."""

"""The dispatch matrix: every op in every context, called once, with the way that it took."""

"""Sampling that may last for hours: the schedule, the loop over cards, the file, and the command it stands around."""

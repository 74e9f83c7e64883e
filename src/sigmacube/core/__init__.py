"""The mathematics: arrays in, arrays out; no files, no printing, no global state."""

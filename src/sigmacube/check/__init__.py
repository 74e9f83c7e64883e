"""Whether error bars hold: hold-out, Monte Carlo, the verdict."""

"""Monte Carlo: the closed form against what repeated noise does to the estimate."""

from sigmacube.montecarlo.judging import judge
from sigmacube.montecarlo.result import MonteCarlo
from sigmacube.montecarlo.run import monte_carlo
from sigmacube.montecarlo.trials import Trials

__all__ = ["MonteCarlo", "Trials", "judge", "monte_carlo"]

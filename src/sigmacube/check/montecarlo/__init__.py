"""Monte Carlo: the closed form against what repeated noise does to the estimate."""

from sigmacube.check.montecarlo.judging import judge
from sigmacube.check.montecarlo.result import MonteCarlo
from sigmacube.check.montecarlo.run import monte_carlo
from sigmacube.check.montecarlo.trials import Trials

__all__ = ["MonteCarlo", "Trials", "judge", "monte_carlo"]

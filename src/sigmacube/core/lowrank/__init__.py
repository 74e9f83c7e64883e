"""The paper's family: low-rank windows, and the exact covariance of those that overlap."""

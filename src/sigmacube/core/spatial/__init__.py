"""The spatial estimator."""

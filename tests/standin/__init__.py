"""A recording stand-in for JAX: what would reach Pallas's entry points, without Pallas."""

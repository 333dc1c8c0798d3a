"""What the design of migrate-pallas takes for granted about JAX, proved on the installed JAX."""

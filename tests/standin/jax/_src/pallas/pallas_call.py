"""`pallas_call`, whose kernel runs when the result is called."""

from jax._recording import entry_point

pallas_call = entry_point("pallas_call")

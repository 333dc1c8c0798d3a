"""Make JAX Pallas kernels written for TPU run where there is no TPU."""

__version__ = "0.1.0"

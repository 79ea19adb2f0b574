"""Arrays of other libraries, torch, CuPy, JAX and whoever follows the array API standard: read where they are."""

"""`python -m migrate_pallas`."""

from .cli import main

main()

"""`python -m migrate_pallas`."""

import sys


def main() -> None:
    """Run the command line; an interrupt may come while it is still being imported."""
    try:
        from .cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: files are as they were\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()

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
    if not getattr(sys.flags, "safe_path", False):  # from Python 3.11 on
        # `python -m` puts the working directory first, whose `click.py` would then be imported and run as ours.
        del sys.path[0]
    main()

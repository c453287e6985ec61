"""Where the command ``magcli`` and ``python -m magcli`` begin."""

import signal


def main() -> None:
    """Run the command line; until a stage takes over, an interrupt ends the process without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from magcli.cli import main as run

    run()


if __name__ == "__main__":
    main()

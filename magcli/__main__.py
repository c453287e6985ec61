"""``python -m magcli``."""

from magcli.cli import main

main()

"""The page of layouts is made from the table of layouts."""

from pathlib import Path

from magcli.layouts.describe import markdown, with_tables
from magcli.layouts.table import LAYOUTS

PAGE = Path(__file__).parent.parent.parent / "docs" / "data.md"


def test_the_page_is_up_to_date():
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page) == page, "run: make layouts"


def test_every_layout_has_a_line_with_its_source():
    lines = [line for line in markdown().splitlines() if line.startswith("| ")]
    for layout in LAYOUTS:
        assert sum(line.startswith(f"| {layout.name} | ") and layout.source in line for line in lines) == 1

"""What several stages share: option dataclasses, engines, graders, training runs, tables that options name."""

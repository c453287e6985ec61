"""Math problems: which are clean, new, unseen by an evaluation, and of the right difficulty."""

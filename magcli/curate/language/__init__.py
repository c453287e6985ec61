"""Problems in other languages."""

"""Result lines in, tables and figures out. Nothing here runs a model or imports torch."""

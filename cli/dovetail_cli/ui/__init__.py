"""Words in, tables out: parsing and printing. Knows no cluster."""

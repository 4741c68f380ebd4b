"""Records that outlive their jobs: written to a database, answered from it."""

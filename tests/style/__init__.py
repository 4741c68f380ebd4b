"""The language of the project: which words it avoids, and whether the links of its pages lead anywhere."""

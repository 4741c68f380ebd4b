"""Programs for people who work on Dovetail. Nothing here ships."""

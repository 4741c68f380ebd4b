"""The documentation as a site: the pages of docs/, and references generated from the CRDs and the Python packages.

`make docs` builds it into out/site. Nothing here is imported by the product.
"""

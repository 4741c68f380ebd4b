"""What v3 takes and answers, by resource. Data only.

Names on the wire are camelCase, times are RFC 3339, and units are in the names.
"""

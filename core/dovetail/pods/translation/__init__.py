"""Requests in other systems' words: the device plugins', HAMi's, Volcano's and KAI's, as requests to Dovetail. Pure."""

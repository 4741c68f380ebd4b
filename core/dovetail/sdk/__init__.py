"""The Python SDK: a client of the gateway, blocking or for asyncio, and the names of the systems before.

`__init__.pyi` says which names, and where each is. An import of the package loads none of them: the first use of a name
loads its module.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

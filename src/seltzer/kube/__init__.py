"""The only code that talks to the Kubernetes API server: a small level-triggered runtime.

Reflector, store, queue, controller, Lease election, events and server-side apply, over aiohttp and msgspec.
"""

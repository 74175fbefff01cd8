"""A plugin of pytest for the tests of django-redis: they run with one of their settings, because Django reads its settings once.

Tests without settings run with the first one, `sqlite`.
"""

import os


def pytest_collection_modifyitems(config, items):
    wanted = os.environ["CACHE_SETTING"]
    setting = lambda item: item.callspec.params.get("cache_settings", "sqlite") if hasattr(item, "callspec") else "sqlite"
    others = [item for item in items if setting(item) != wanted]
    items[:] = [item for item in items if setting(item) == wanted]
    config.hook.pytest_deselected(items=others)

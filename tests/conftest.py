"""Options and fixtures that every test may use."""

pytest_plugins = ["minicluster.fixtures"]

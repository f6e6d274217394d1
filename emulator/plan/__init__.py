"""One frozen `Plan` from a configuration: pure, and the same on every rank."""

"""One small module per kind, each the same way: observe, plan, act, report."""

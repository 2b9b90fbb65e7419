"""The words every floor shares: records, verdicts, errors, keys, settings, ports. Imports nothing of ours."""

"""The live half: receive, judge, append, deliver. Runs the protocols on their networks and serves the HTTP API."""

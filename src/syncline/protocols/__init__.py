"""The protocols, each in the same rooms: wire, rules, session, service, columns, rebuild. None knows another."""

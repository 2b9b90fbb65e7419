"""SDS exchange: signed space data (OMM, CDM and 27 more standards) over libp2p. docs/protocols/sds.md is the ledger."""
